"""Runs in pods of their own: the agent in the pod, and the connection between it and the operator."""
