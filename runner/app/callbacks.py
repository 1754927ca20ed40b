"""Callbacks of Ansible that features add to each run."""

from __future__ import annotations

from runner.features.hosts import inventory
from runner.features.masking import requests

CALLBACKS = (inventory.CALLBACKS, requests.CALLBACKS)
"""Their folders. Ansible loads them in this order."""
