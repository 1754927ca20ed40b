"""Options because of which Ansible executes only some tasks or hosts, so that no run counts for `prune`."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from configparser import ConfigParser
from configparser import Error as ConfigParserError
from pathlib import Path

from runner.base.config import paths

_SELECTING = (
    "--tags",
    "--skip-tags",
    "--start-at-task",
    "--limit",
    "--check",
    "--syntax-check",
    "--step",
    "--list-tasks",
    "--list-tags",
    "--list-hosts",
)
_SELECTING_SHORT = frozenset("tlC")


def tasks_are_selected(ansible_args: str, environ: Mapping[str, str], cwd: Path) -> str:
    """Return which option makes Ansible execute only some tasks or hosts; empty if none does."""
    try:
        arguments: Sequence[str] = shlex.split(ansible_args)
    except ValueError:
        arguments = ansible_args.split()
    for argument in arguments:
        name = argument.partition("=")[0]
        is_long = len(name) > len("--") and any(option.startswith(name) for option in _SELECTING)
        is_short = name.startswith("-") and not name.startswith("--") and not _SELECTING_SHORT.isdisjoint(name)
        if is_long or is_short:
            return f"--ansible-args contains {argument}"
    for name in ("ANSIBLE_RUN_TAGS", "ANSIBLE_SKIP_TAGS"):
        if environ.get(name):
            return f"environment variable {name}"
    return _selecting_config(environ, cwd)


def _selecting_config(environ: Mapping[str, str], cwd: Path) -> str:
    config = next((path for path in paths.ansible_configs(environ, cwd) if path.is_file()), None)
    parser = ConfigParser(inline_comment_prefixes=(";",), interpolation=None)
    try:
        parser.read_string(config.read_text(encoding="utf-8", errors="replace") if config else "")
    except (ConfigParserError, OSError):
        return ""  # Ansible reports an invalid file itself
    if any(parser.get("tags", name, fallback="") for name in ("run", "skip")):
        return f"section [tags] of {config}"
    return ""
