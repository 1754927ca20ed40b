"""Conditions: what the start and end of a run write, kstatus, and the writer."""
