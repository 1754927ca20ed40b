"""Places of this checkout."""

from __future__ import annotations

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SAMPLE_CRD = ROOT / "config/crd/bases/cache.example.com_memcacheds.yaml"
BIN = Path(sys.executable).parent
"""The programs of the environment that the tests run in."""
