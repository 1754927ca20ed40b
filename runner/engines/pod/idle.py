"""Operator's side of an agent that waits for its run.

Promises: the agent gets the token of one run. The token of an idle agent obtains no other run: afterwards it is valid
only for the same agent, until this link is closed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import orjson

from runner.agent.frames import Kind
from runner.base import log
from runner.engines.pod.connection import AgentConnection, AgentLink, Hello

_log = log.get(__name__)


class IdleLink(AgentLink):
    """Connection to an idle agent."""

    accepts = frozenset({Kind.PONG})
    subject = "pod"

    def __init__(self, token: str, forget: Callable[[Any], None], changed: Callable[[], None]) -> None:
        """`forget` removes the link from the server; `changed` is called when the agent connects or disconnects."""
        super().__init__(token)
        self._forget = forget
        self._changed = changed
        self._run: bytes | None = None
        self.problem = ""
        """Why the agent has not loaded Ansible."""

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
        if (connection := self._detach()) is not None:
            connection.refuse("the pod is not needed", final=True)

    def close(self) -> None:
        """Forget the agent."""
        self._forget(self)
        self._drop()

    # For the server and the connection.

    def objection(self, hello: Hello) -> str:
        """Return why the agent is refused, or an empty text."""
        return super().objection(hello) or ("the agent has had a run" if hello.last else "")

    def attach(self, connection: AgentConnection, hello: Hello) -> None:
        """Use the new connection of the agent."""
        super().attach(connection, hello)
        self.problem = hello.problem
        connection.send(Kind.WELCOME, payload=orjson.dumps({"applied": 0}))
        if self._run is not None:
            connection.send(Kind.ASSIGN, payload=self._run)
        self._changed()

    def fail(self, error: Exception) -> None:
        """Forget the connection; its pod is replaced if it does not connect again."""
        _log.warning("An idle agent sent invalid data", problem=str(error))
        self._drop()
        self._changed()

    def lose(self, connection: AgentConnection, *, orderly: bool) -> None:
        """Wait for the next connection."""
        super().lose(connection, orderly=orderly)
        self._changed()
