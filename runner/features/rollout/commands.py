"""`ansible-operator rollout`: state of a kind's rollout, and its pause, continuation and restart."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from runner.base.config import commands
from runner.base.config.commands import Subparsers
from runner.values.errors import ConfigError, ConflictError, OperatorError

if TYPE_CHECKING:
    from runner.core.kube.client import Client
    from runner.features.rollout.member import Member
    from runner.features.rollout.state import RolloutStore, State

_VERBS = ("status", "pause", "resume", "restart")
_DESCRIPTION = """\
Show or change the rollout of a kind whose watch sets `rollout`. The command uses only the API of the cluster of the
kubeconfig: it reads the objects, and reads and writes the ConfigMap of the rollout in the operator's namespace. The
operator sees a change within seconds, and before it begins another object.

  status    shows the steps, the objects that failed, with the cause, and those that no step runs
  pause     lets no further outdated object begin
  resume    continues; the failures until now do not pause the rollout again
  restart   runs all objects again, step by step

KIND is a kind, or a qualified name: Memcached, memcached.cache.example.com."""
_EXAMPLES = (
    "status Memcached",
    "status Memcached --watch    wait for the end (code 0) or a pause (1)",
    "pause Memcached -n memcached-operator-system",
)
_INTERVAL = 2.0
_PATIENCE = 30.0
"""Seconds until the command reports that it waits for the operator."""
_ATTEMPTS = 20
_MOST_NAMED = 10


def add_commands(subparsers: Subparsers) -> None:
    """Add `rollout`."""
    text = "show, pause, resume or restart a rollout"
    parser = commands.add(subparsers, "rollout", _command, text, _DESCRIPTION, _EXAMPLES, "VERB KIND [flags]")
    parser.add_argument("verb", choices=_VERBS, metavar="VERB", help="status, pause, resume or restart")
    parser.add_argument("kind", metavar="KIND", help="kind of the objects")
    parser.add_argument("-n", "--namespace", default="", help="namespace of the operator; default: all are searched")
    parser.add_argument("--watch", action="store_true", help="with status: wait until the rollout ends or is paused")
    parser.add_argument("--kubeconfig", metavar="FILE", help="see `run --help`")
    parser.add_argument("--context", metavar="NAME", help="see `run --help`")


def _command(arguments: argparse.Namespace) -> int:
    return asyncio.run(_rollout(arguments))


async def _rollout(arguments: argparse.Namespace) -> int:
    from runner.base.credentials import auth  # noqa: PLC0415 - as above
    from runner.core.kube.client import Client  # noqa: PLC0415 - slow to import, which --help need not wait for

    credentials = await auth.load(arguments.kubeconfig, arguments.context, auth.HostEnvironment.of_process())
    async with Client(credentials) as client:
        store = await _find(client, arguments.kind, arguments.namespace)
        if arguments.verb != "status":
            await _change(store, lambda state: _changed(state, arguments.verb))
        state = await (_watched(store) if arguments.watch else store.load())
        members = await _members(client, store)
        sys.stdout.write("\n".join(_report(store, state, [*members], members)) + "\n")
        return 1 if arguments.watch and state.paused else 0


async def _watched(store: RolloutStore) -> State:
    """Wait until the rollout ends or is paused. The state of a former rollout does not count.

    So the operator must confirm first that the state is about its own content.
    """
    from runner.core.kube.state import StateError  # noqa: PLC0415 - as above

    clock = asyncio.get_running_loop().time
    number, began, is_noted = time.time_ns(), clock(), False
    try:
        await _change(store, lambda state: replace(state, asked=max(number, state.asked)))
    except StateError as error:
        number = 0
        sys.stderr.write(f"The state may be that of the former rollout: the operator cannot be asked ({error})\n")
    while True:
        state = await store.load()
        is_confirmed = state.confirmed >= number
        if is_confirmed and (state.ended or state.paused):
            return state
        if not (is_confirmed or is_noted) and clock() - began > _PATIENCE:
            is_noted = True
            sys.stderr.write("No operator has confirmed the state of the rollout yet; is it running, and the leader?\n")
        await asyncio.sleep(_INTERVAL)


async def _find(client: Client, kind: str, namespace: str) -> RolloutStore:
    """Return the storage of a kind's rollout."""
    from runner.features.rollout.state import RolloutStore  # noqa: PLC0415 - as above

    stores = await RolloutStore.all(client, namespace)
    names = {store.kind.kind for store in stores}
    name = kind.lower()
    matching = [
        store for store in stores if name in {store.kind.kind.lower(), f"{store.kind.kind}.{store.kind.group}".lower()}
    ]
    if not matching:
        known = f"; there are rollouts of {', '.join(sorted(names))}" if names else ""
        raise OperatorError(f"no rollout of {kind}{known}: set `rollout` in watches.yaml, and start the operator")
    if len(matching) > 1:
        places = ", ".join(f"{store.kind.kind}.{store.kind.group} in {store.namespace}" for store in matching)
        raise ConfigError(f"{kind} has several rollouts: {places}; set --namespace, or write KIND.GROUP")
    return matching[0]


async def _change(store: RolloutStore, change: Callable[[State], State]) -> None:
    for _ in range(_ATTEMPTS):
        state = await store.load()
        with contextlib.suppress(ConflictError):  # the operator wrote it meanwhile
            await store.save(change(state))
            return
    raise OperatorError("the state of the rollout changes all the time; repeat the command")


def _changed(state: State, verb: str) -> State:
    """Return the state after a command."""
    from runner.features.rollout.state import BY_USER  # noqa: PLC0415 - as above

    if verb == "pause":
        return replace(state, paused=BY_USER)
    return state.resumed() if verb == "resume" else state.restarted(str(time.time_ns()))


async def _members(client: Client, store: RolloutStore) -> dict[Member, str]:
    """Read all objects of the watch, and the causes of their failures."""
    from runner.core.kube.discovery import Discovery  # noqa: PLC0415 - as above
    from runner.features.rollout.member import Member, cause_of  # noqa: PLC0415 - as above

    resource = await Discovery(client).find(store.kind)
    spaces = store.namespaces or [""]
    pages = [await client.list_page(resource, space, store.selection, 0, "") for space in spaces]  # 0: all at once
    return {Member.of(item, {}, "apply"): cause_of(item) for page in pages for item in page.items}


def _report(store: RolloutStore, state: State, members: Sequence[Member], causes: Mapping[Member, str]) -> list[str]:
    """Return the lines of `status`."""
    from runner.values.objects import first_names  # noqa: PLC0415 - as above

    updated = [member for member in members if member.content == state.content != ""]
    step = "ended" if state.ended else f"step {state.step + 1} of {max(len(state.limits), 1)}"
    lines = [
        f"{store.kind.kind}: {step}" + (f", paused: {state.paused}" if state.paused else ""),
        f"objects after each step: {', '.join(map(str, state.limits)) or 'not known yet'}",
        f"{len(updated)} of {len(members)} objects ran the content {state.content or '(not known yet)'}",
    ]
    groups = {
        "running": [member for member in members if member.content != state.content and member.uid in state.begun],
        "in progress": [member for member in updated if member.unfinished],
        "failed": [member for member in updated if member.failed],
        "not Ready": [member for member in updated if member.unready and not (member.failed or member.unfinished)],
        "omitted": [member for member in members if member.content != state.content and member.out],
    }
    for what, group in groups.items():
        if group:
            lines.append(f"{what}: {first_names([str(member.key) for member in group], _MOST_NAMED)}")
        if what in {"failed", "not Ready"}:
            lines += [f"  {member.key}: {why}" for member in group[:_MOST_NAMED] if (why := causes.get(member))]
    return lines
