"""`ansible-operator logs`: what the last run of an object said, and what a live one says.

Owns arguments and output of the command; what is kept where is `run_folders`' business.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from runner.config.options import PREFIX, RUNNER_DIR
from runner.errors import NotKeptError

if TYPE_CHECKING:
    from runner.engine.run_folders import Kept

    Subparsers = argparse._SubParsersAction[argparse.ArgumentParser]  # noqa: SLF001 - argparse has no public name for it

_DESCRIPTION = """\
Show what the last run of an object said, from the run folders of an operator on this machine; in a cluster, call it in
the operator's pod:

  kubectl exec deploy/controller-manager -c manager -- ansible-operator logs Memcached/sample -n shop

KIND is written as for kubectl: Memcached, memcacheds, memcached.cache.example.com. Which run it is, and what came of
it, is said on standard error. Secrets are masked once a run has ended; a live one is shown as Ansible says it."""
_LOOK_AGAIN = 0.2
_PIECE = 1 << 16


def add_commands(subparsers: Subparsers) -> None:
    """Add `logs`."""
    logs = subparsers.add_parser(
        "logs",
        help="show what the last run of an object said",
        usage="ansible-operator logs KIND/NAME [flags]",
        description=_DESCRIPTION,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    logs.add_argument("object", metavar="KIND/NAME", help="whose run")
    logs.add_argument("-n", "--namespace", help="where it is; needed where objects in several have the name")
    logs.add_argument("-f", "--follow", action="store_true", help="stay until the run has ended")
    logs.add_argument("-p", "--previous", action="store_true", help="the run before the last one")
    default = os.environ.get(f"{PREFIX}RUNNER_DIR") or RUNNER_DIR
    logs.add_argument("--runner-dir", type=Path, default=default, metavar="DIR", help=f"as for `run` [{default}]")
    logs.set_defaults(func=_logs)


def _logs(arguments: argparse.Namespace) -> int:
    from runner.engine import run_folders  # noqa: PLC0415 - costs what help should not

    kept = run_folders.find(arguments.runner_dir, arguments.object, arguments.namespace)
    runs = kept.runs()
    wanted = 2 if arguments.previous else 1
    if len(runs) < wanted:
        what = "no run before the last one" if runs else "no run"
        raise NotKeptError(f"{what} of {kept.gvk.kind} {kept.key} is kept in {kept.folder}")
    ident = runs[-wanted]
    state = "goes on" if kept.is_live(ident) else f"ended: {kept.status(ident)}"
    sys.stderr.write(f"run {ident} of {kept.gvk.kind} {kept.key} {state}\n")
    sys.stderr.flush()
    try:
        _show(kept, ident, sys.stdout.buffer, follow=arguments.follow)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # `| head` has seen enough
    return 0


def _show(kept: Kept, ident: str, out: BinaryIO, *, follow: bool) -> None:
    """Write what there is; to follow, until the run has ended, which says that no more is to come."""
    path = kept.output(ident)
    while not path.exists() and follow and kept.is_live(ident):
        time.sleep(_LOOK_AGAIN)
    if not path.exists():
        sys.stderr.write("it has said nothing\n")
        return
    with path.open("rb") as file:
        while True:
            was_live = follow and kept.is_live(ident)
            while piece := file.read(_PIECE):
                out.write(piece)
            out.flush()
            if not was_live:
                return
            time.sleep(_LOOK_AGAIN)
