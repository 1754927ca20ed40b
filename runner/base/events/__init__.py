"""Kubernetes Events: recorder, series and bodies."""
