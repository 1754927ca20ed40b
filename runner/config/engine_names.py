"""The names of the engines, as flags and watches write them. Imports nothing of this package."""

from __future__ import annotations

from typing import Literal, TypeAlias, get_args

EngineName: TypeAlias = Literal["auto", "warm", "exec"]
"""`exec`: a new interpreter for each run and each module; `warm`: forks of one that has all of it loaded; `auto`: warm
where that was tested."""

ENGINES: tuple[EngineName, ...] = get_args(EngineName)
