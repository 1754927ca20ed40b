"""`python -m runner` is `ansible-operator`."""

from __future__ import annotations

import sys

from runner.cli.main import main

sys.exit(main())
