"""Masking of known secret values in text."""
