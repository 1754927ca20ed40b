"""Agent in the pod of a run, and what it has in common with the engine: for Python 3.9, with the standard library only.

It travels to the pod as a zip application with another name, so its modules import each other relatively.
"""
