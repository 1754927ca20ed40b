"""The operator without options: from an event of the API server to the status of its object.

Features and engines use it. It imports none of them, and names none.
"""
