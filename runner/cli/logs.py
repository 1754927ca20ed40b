"""`ansible-operator logs`: the output of an object's runs, from the run folders."""

from __future__ import annotations

import argparse
import asyncio
import codecs
import contextlib
import os
import sys
import time
from dataclasses import replace
from datetime import UTC, datetime
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from runner.base.config import commands
from runner.base.config.commands import Subparsers
from runner.base.config.options import PREFIX
from runner.base.config.settings import RUNNER_DIR
from runner.values.errors import KindNotFoundError, NotKeptError, OperatorError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from runner.base.console import Line
    from runner.core.engine.output import Kept
    from runner.values.objects import GVK

_DESCRIPTION = """\
Show the output of an object's last run, from the run folders of an operator on this machine. Of a failed run, show the
cause and the failed task; --all shows all output. In a cluster, run the command in the operator's pod:

  kubectl exec -n memcached-operator-system deploy/memcached-operator-controller-manager \\
    -c manager -- ansible-operator logs Memcached/sample -n shop

KIND is a kind, a resource or a qualified name: Memcached, memcacheds, memcached.cache.example.com. It can be a short
name of a CRD in the project of this folder, or of a kind in the cluster of your kubeconfig. The run's ID and result go
to standard error; for a run in a pod, also the command for the pod's log. Control characters are shown as text, and
managedFields of objects are omitted. Long values are shortened without --all. The output of an active run is not
masked; the operator masks secrets when the run ends."""
_EXAMPLES = ("Memcached/sample -n shop", "Memcached/sample --follow", "Memcached/sample --previous --all")
_CRDS = Path("config/crd/bases")
_DISCOVERY_TIMEOUT = 5.0
"""Seconds to look up a short name in the cluster."""
_POLL_INTERVAL = 0.2
_CHUNK = 1 << 16


def add_commands(subparsers: Subparsers) -> None:
    """Add `logs`."""
    text = "show the output of an object's last run"
    logs = commands.add(subparsers, "logs", _logs, text, _DESCRIPTION, _EXAMPLES, "KIND/NAME [flags]")
    logs.add_argument("object", metavar="KIND/NAME", help="object of the run")
    logs.add_argument("-n", "--namespace", help="namespace of the object; required if the name is ambiguous")
    logs.add_argument("-f", "--follow", action="store_true", help="follow the output until the run ends")
    logs.add_argument("-a", "--all", action="store_true", help="show all output of the run, and whole values")
    logs.add_argument("-p", "--previous", action="store_true", help="show the run before the last one")
    default = os.environ.get(f"{PREFIX}RUNNER_DIR") or RUNNER_DIR
    logs.add_argument(
        "--runner-dir",
        type=Path,
        default=default,
        metavar="DIR",
        help=f"see `run --help` [{default}]",
    )


def _logs(arguments: argparse.Namespace) -> int:
    from runner.core.engine.output import pod_log_command  # noqa: PLC0415 - as below

    kept = _find(arguments.runner_dir, _long(arguments.object), arguments.namespace)
    runs = kept.runs()
    position = 2 if arguments.previous else 1
    if len(runs) < position:
        missing = "no run before the last one" if runs else "no run"
        raise NotKeptError(f"{kept.folder} contains {missing} of {kept.gvk.kind} {kept.key}")
    ident = runs[-position]
    state = "is active" if kept.is_live(ident) else f"ended: {kept.status(ident)}{_end_of(kept)}"
    sys.stderr.write(f"run {ident} of {kept.gvk.kind} {kept.key} {state}\n")
    if job := kept.job_of_pod(ident):
        sys.stderr.write(f"log of its pod: {pod_log_command(job)}\n")
    sys.stderr.flush()
    try:
        if arguments.all or arguments.follow or not _show_failure(kept, ident):
            _show(kept, ident, sys.stdout.buffer, follow=arguments.follow, whole=arguments.all)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # `| head` has closed the pipe
    return 0


def _end_of(kept: Kept) -> str:
    """Return when the object was deleted. One that leaves the selector of its watch counts too."""
    from runner.core.engine.artifacts import deleted_at  # noqa: PLC0415 - as below

    if not kept.is_deleted:
        return ""
    when = datetime.fromtimestamp(deleted_at(kept.folder), UTC)
    return f"; the object was deleted at {when:%Y-%m-%dT%H:%M:%SZ}, or is not selected any more since then"


def _find(root: Path, object_name: str, namespace: str | None) -> Kept:
    """Return the object of KIND/NAME. The cluster resolves a KIND that is the name of none with runs."""
    from runner.core.engine import output  # noqa: PLC0415 - slow to import, which --help need not wait for

    try:
        return output.find(root, object_name, namespace)
    except output.UnknownKindError as error:
        kind, _, name = object_name.partition("/")
        try:
            resolved = asyncio.run(_kind_in_cluster(kind.lower(), error.kinds))
        except (OperatorError, TimeoutError) as problem:
            cause = str(problem) or f"no response within {_DISCOVERY_TIMEOUT:.0f} s"
            raise NotKeptError(
                f"{error}. {_CRDS} contains no short name {kind!r}, and it cannot be looked up in a cluster ({cause}). "
                "Use the kind, or set KUBECONFIG to the cluster"
            ) from error
        if not resolved:
            raise
        return output.find(root, f"{resolved}/{name}", namespace)


async def _kind_in_cluster(short: str, kinds: Sequence[GVK]) -> str:
    """Return the qualified name of the kind of these that has this short name in the cluster; empty if none has.

    Raises OperatorError or TimeoutError if the cluster cannot be reached.
    """
    from runner.base.credentials import auth  # noqa: PLC0415 - as above
    from runner.core.kube.client import Client  # noqa: PLC0415 - as above
    from runner.core.kube.discovery import Discovery  # noqa: PLC0415 - as above
    from runner.values.objects import type_name  # noqa: PLC0415 - as above

    async with asyncio.timeout(_DISCOVERY_TIMEOUT):
        credentials = await auth.load(None, None, auth.HostEnvironment.of_process())
        async with Client(credentials) as client:
            discovery = Discovery(client)
            for gvk in kinds:
                with contextlib.suppress(KindNotFoundError):  # a kind of another cluster, or whose CRD was deleted
                    if short in (await discovery.find(gvk)).short_names:
                        return type_name(gvk)
    return ""


def _long(object_name: str) -> str:
    """Replace a short name in KIND/NAME by the kind that has it in the CRDs of the project in this folder."""
    if find_spec("runner.sdk") is None:  # in an image, there is no project
        return object_name
    from runner.sdk.schema import files  # noqa: PLC0415 - as above

    kind, slash, name = object_name.partition("/")
    resolved = files.kind_of_short_name(_CRDS, kind.lower())
    return f"{resolved}{slash}{name}" if resolved else object_name


def _show_failure(kept: Kept, ident: str) -> bool:
    """Write the cause of a failed run, and the results of its failed tasks. Return False if no event has them."""
    from runner.cli import excerpt  # noqa: PLC0415 - as above

    lines = excerpt.of_failure(kept.events(ident)) if kept.status(ident) == "failed" and not kept.is_live(ident) else []
    if lines:
        sys.stdout.write("\n".join(map(_rendered, (*lines, excerpt.HINT))) + "\n")
        sys.stdout.flush()
    return bool(lines)


def _rendered(line: Line) -> str:
    from runner.base.log import has_colour, visible  # noqa: PLC0415 - as above

    shown = replace(line, text=visible(line.text))
    return shown.coloured() if has_colour(sys.stdout) else shown.text


def _show(kept: Kept, ident: str, out: BinaryIO, *, follow: bool, whole: bool) -> None:
    """Write the output; with `follow`, until the run has ended."""
    path = kept.output(ident)
    while not path.exists() and follow and kept.is_live(ident):
        time.sleep(_POLL_INTERVAL)
    if not path.exists():
        sys.stderr.write("the run has no output\n")
        return
    from runner.base.log import visible  # noqa: PLC0415 - as above
    from runner.cli import excerpt  # noqa: PLC0415 - as above
    from runner.core.engine.output import ManagedFieldsFilter  # noqa: PLC0415 - as above

    def shown(text: str) -> bytes:
        if whole:
            return visible(text).encode()
        parts = (part.partition("\n") for part in visible(text).splitlines(keepends=True))
        return "".join(f"{_rendered(line)}{end}" for part, end, _ in parts if (line := excerpt.line(part))).encode()

    decode, lines = codecs.getincrementaldecoder("utf-8")("backslashreplace").decode, ManagedFieldsFilter()
    with path.open("rb") as file:
        while True:
            was_live = follow and kept.is_live(ident)
            while chunk := file.read(_CHUNK) + file.readline():
                out.write(shown(lines.feed(decode(chunk))))
            if not was_live:
                out.write(shown(lines.end()))
            out.flush()
            if not was_live:
                return
            time.sleep(_POLL_INTERVAL)
