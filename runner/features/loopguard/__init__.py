"""Delays of runs that a dependent or reference triggers again and again, and the condition `Contended`."""
