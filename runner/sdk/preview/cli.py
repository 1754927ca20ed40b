"""`ansible-operator plan`.

Owns arguments, output and exit codes of the command: 0 no change, 2 changes, 1 error.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import os
import signal
import sys
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import TYPE_CHECKING, Any

from runner.base.config import commands
from runner.base.config.commands import Subparsers
from runner.base.config.options import Option
from runner.base.config.settings import OPTIONS

if TYPE_CHECKING:
    from runner.features.plan.changes import Plan

UNCHANGED, FAILED, CHANGES = 0, 1, 2
FLAGS = (
    *("watches-file", "ansible-roles-path", "ansible-collections-path", "ansible-args", "engine"),
    *("max-concurrent-reconciles", "kubeconfig", "context"),
)
"""Flags of `run` that the command has too."""
_FORMS = "[--delete] KIND/NAME [flags]\n--all [KIND] [flags]\n-f FILE [flags]"
_DESCRIPTION = """\
Show what the roles in this folder would change in the cluster of the kubeconfig. The command runs the role or playbook
of watches.yaml for each resource as the operator does, with `--check --diff`. Each write becomes a dry run of the API
server. Nothing is stored: no object, status, Event or Lease.

A plan is partial if a task does not support check mode. It fails if a task fails; the changes until then are shown.
Values of Secrets are masked.

Exit codes: 0 no change, 2 changes, 1 error."""
_EXAMPLES = (
    "Memcached/sample -n shop    one resource",
    "--all                       every resource of every watch",
    "-f sample.yaml              a resource that is not applied",
    "--delete Memcached/sample   the deletion of a resource",
    "--all Memcached --output json",
)


def add_commands(subparsers: Subparsers, add_option: Callable[[Any, Option], None]) -> None:
    """Add `plan`. `add_option` adds a flag of `run`."""
    text = "show what the roles in this folder would change, without changing it"
    parser = commands.add(subparsers, "plan", _plan, text, _DESCRIPTION, _EXAMPLES, _FORMS)
    parser.add_argument("object", nargs="?", default="", metavar="KIND/NAME", help="resource to plan")
    parser.add_argument("--all", action="store_true", help="plan all resources, of one kind or of all watched kinds")
    parser.add_argument(
        *("-f", "--filename"),
        action="append",
        default=[],
        metavar="FILE",
        help="plan the resources in this file or folder (- for standard input) as if they were applied; repeatable",
    )
    parser.add_argument("--delete", action="store_true", help="plan the deletion of KIND/NAME")
    parser.add_argument("-n", "--namespace", dest="within", default="", metavar="NAME", help="namespace")
    parser.add_argument(
        "--output", choices=("text", "json"), metavar="text|json", default="text", help="format of the report [text]"
    )
    for option in OPTIONS:
        if option.flag in FLAGS:
            add_option(parser, option)


def _plan(arguments: argparse.Namespace) -> int:
    from runner.app.features import FEATURE_FIELDS  # noqa: PLC0415 - as below
    from runner.base import log  # noqa: PLC0415 - slow to import, which --help need not wait for
    from runner.base.config import sources  # noqa: PLC0415 - as above
    from runner.core.watches import watch as watches  # noqa: PLC0415 - as above
    from runner.sdk.preview.selection import ResourceSelection  # noqa: PLC0415 - as above

    selection = ResourceSelection.parse(
        arguments.object,
        arguments.within,
        everything=arguments.all,
        files=arguments.filename,
        deletes=arguments.delete,
    )
    settings, warnings = sources.load(arguments, os.environ)
    loaded = watches.load_configured(settings, os.environ, Path.cwd(), FEATURE_FIELDS)
    log.configure(level=logging.WARNING, encoder="console")
    for warning in (*warnings, *loaded.warnings):
        log.get(__name__).warning("Check the configuration", detail=warning)
    from runner.sdk.preview import planner  # noqa: PLC0415 - slow to import, so input is checked first
    from runner.sdk.preview.progress import Progress  # noqa: PLC0415 - as above

    progress = Progress()
    stops: list[int] = []
    try:
        work = planner.plan(settings, loaded.watches, selection, progress)
        plan = asyncio.run(_interruptible(work, progress.show(), stops))
    except asyncio.CancelledError:
        return 128 + stops[0]  # as shells count
    show(plan, arguments.output)
    return FAILED if plan.has_failed else CHANGES if plan.has_changes else UNCHANGED


async def _interruptible(work: Coroutine[Any, Any, Plan], display: Coroutine[Any, Any, None], stops: list[int]) -> Plan:
    """Cancel the work at SIGINT or SIGTERM, so that no process of a run and no file is left. `stops` gets the signal.

    A terminal sends SIGINT to the processes of the runs too, so the log does not contain their ends.
    """
    from runner.base import log  # noqa: PLC0415 - as above

    task, shown = asyncio.ensure_future(work), asyncio.ensure_future(display)

    def stop(number: int) -> None:
        if stops:
            return  # it is about to end; an end at once would leave files
        stops.append(number)
        log.configure(level=logging.CRITICAL, encoder="console")
        task.cancel()

    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stop, number)
    try:
        return await task
    finally:
        shown.cancel()
        await asyncio.wait([shown])


def show(plan: Plan, output: str) -> None:
    """Print a plan as `text` or `json`. If the reader has closed the pipe, as `| head` does, discard the rest."""
    try:
        _write(plan, output)
        sys.stdout.flush()
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _write(plan: Plan, output: str) -> None:
    if output == "json":
        from runner.sdk.preview.grouping import document  # noqa: PLC0415 - as above

        sys.stdout.write(json.dumps(document(plan), indent=2) + "\n")
        return
    from runner.base import log  # noqa: PLC0415 - as above
    from runner.sdk.preview.text import Style, lines  # noqa: PLC0415 - as above

    for line in lines(plan, Style(log.has_colour(sys.stdout))):
        sys.stdout.write(line + "\n")
