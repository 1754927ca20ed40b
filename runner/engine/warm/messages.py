"""What the operator and a fork server say to each other. Imports nothing heavy: both ends need it."""

from __future__ import annotations

RUN = b"run"
"""Asks for a run; comes with the descriptors of its streams."""
MESSAGE = 65536
"""The longest message, in bytes."""
