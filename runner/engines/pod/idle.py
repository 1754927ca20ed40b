"""Operator's side of an agent that waits for its run.

Promises: the agent gets the token of one run. The token of an idle agent obtains no other run: afterwards it is valid
only for the same agent, until this link is closed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import orjson

from runner.agent.frames import PROTOCOL, Kind
from runner.base import log
from runner.core.proxy.http.limits import Turn
from runner.engines.pod.connection import AgentConnection, Hello

_log = log.get(__name__)


class IdleLink:
    """Connection to an idle agent."""

    accepts = frozenset({Kind.PONG})

    def __init__(self, token: str, forget: Callable[[Any], None], changed: Callable[[], None]) -> None:
        """`forget` removes the link from the server; `changed` is called when the agent connects or disconnects."""
        self.token = token
        self._forget = forget
        self._changed = changed
        self._connection: AgentConnection | None = None
        self._agent: str | None = None
        self._run: bytes | None = None
        self.problem = ""
        """Why the agent has not loaded Ansible."""
        self.connects = 0
        """How often the agent was accepted."""
        self.turn: Turn | None = None

    @property
    def is_connected(self) -> bool:
        """True while the agent is connected."""
        return self._connection is not None

    @property
    def is_ready(self) -> bool:
        """True if the agent can get a run."""
        return self._connection is not None and self._run is None

    def assign(self, run: str, token: str) -> None:
        """Give the agent its run, now or when it connects. It connects again with the token of the run."""
        if self._run is not None:
            raise ValueError("the agent has a run already")
        self._run = orjson.dumps({"run": run, "token": token})
        if self._connection is not None:
            self._connection.send(Kind.ASSIGN, payload=self._run)

    def dismiss(self) -> None:
        """End the agent. One that is not connected ends soon, because no operator accepts it."""
        self._forget(self)
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.refuse("the pod is not needed", final=True)

    def close(self) -> None:
        """Forget the agent."""
        self._forget(self)
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.abort()

    # For the server and the connection.

    def attach(self, connection: AgentConnection, hello: Hello) -> IdleLink | None:
        """Accept an agent that has the token, or refuse it and return None."""
        if objection := self._objection(hello):
            _log.debug("Idle agent refused", problem=objection)
            connection.refuse(objection, final=False)
            return None
        if self._connection is not None:
            self._connection.abort()
        self._agent = hello.agent
        self._connection = connection
        self.connects += 1
        self.problem = hello.problem
        connection.send(Kind.WELCOME, payload=orjson.dumps({"applied": 0}))
        if self._run is not None:
            connection.send(Kind.ASSIGN, payload=self._run)
        self._changed()
        return self

    def _objection(self, hello: Hello) -> str:
        """Return why the agent is refused, or an empty text."""
        if hello.protocol != PROTOCOL:
            return f"protocol {hello.protocol} is not supported, only {PROTOCOL}"
        if self._agent not in {None, hello.agent}:
            return "another agent has this pod"
        return "the agent has had a run" if hello.last else ""

    def receive_frame(self, kind: int, number: int, payload: bytes) -> None:
        """Do nothing: it sends only PONG."""

    def fail(self, error: Exception) -> None:
        """Forget the connection; its pod is replaced if it does not connect again."""
        _log.warning("An idle agent sent invalid data", problem=str(error))
        self._lost()

    def resume_texts(self) -> None:
        """Do nothing: there are no texts."""

    def lose(self, connection: AgentConnection, *, orderly: bool) -> None:  # noqa: ARG002 - the signature of receivers
        """Wait for the next connection."""
        if self._connection is connection:
            self._lost()

    def _lost(self) -> None:
        self._connection = None
        self._changed()
