"""Masking of secret values in what the operator writes about a run."""
