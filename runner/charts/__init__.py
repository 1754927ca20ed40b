"""Helm charts of operator projects."""
