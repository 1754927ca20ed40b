"""Callback that sends the operator the arguments that Ansible does not log, so that they are masked everywhere.

Runs inside ansible-playbook, with every supported ansible-core, which loads it from `ANSIBLE_CALLBACK_PLUGINS`. It
reads the arguments of each task with a result and selects:

- arguments that the module declares as `no_log`, according to its result or its source;
- arguments with names that indicate a secret;
- for tasks with `no_log`, all arguments except ordinary ones.

It posts them, with the run's own token, to the proxy on loopback before ansible-runner's callback emits the event with
the result. So the operator has them when it receives the event.

Must not fail a run: if the proxy is unavailable, it warns once, and the operator withholds the output that follows.
Must not import anything of the operator, because ansible-playbook may have another Python environment.
"""  # noqa: INP001 - Ansible loads it by its path

from __future__ import annotations

import contextlib
import functools
import json
import os
import re
import socket
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from ansible.plugins.callback import CallbackBase
from ansible.plugins.loader import module_loader

DOCUMENTATION = """
name: ansible_operator_no_log
type: aggregate
short_description: reports secret arguments to the operator
description:
  - Part of the Ansible operator. The operator enables it.
"""

NO_LOG_PATH = "/ansible-operator/no-log"
"""Path on the proxy that receives the arguments; same as in `runner.features.masking.requests`."""

_MASKED = "VALUE_SPECIFIED_IN_NO_LOG_PARAMETER"
_SECRET_NAME = re.compile(
    r"(?i)(?:pass(?:w|word|wd|phrase)?|pwd|secret|token|credentials?|(?:api|access|private)_?key)(?P<more>\w{0,32})$"
)
_ABOUT = re.compile(r"(?i)(?:name|file|path|url|uri|mode|type|ref|endpoint|policy|length|method|provider|enabled)s?$")
_DECLARED = re.compile(
    rb"""(\w+)["']?\s*[=:]\s*(?:dict\(|\{)[^(){}]*?["']?no_log["']?\s*[=:]\s*True""",
)
"""Options that a module's source declares as `no_log`."""
_ORDINARY = frozenset(
    """
    api_version apiVersion db dest group host hostname kind login_host login_user method mode name namespace owner path
    port removes creates chdir src state type uid url user username
    """.split()  # noqa: SIM905 - a list of words
)
"""Arguments of tasks with `no_log` that describe the action and are not secret."""
_TIMEOUT = 30.0
"""Seconds; longer than any pause of the operator."""
UNREPORTED = "ansible_operator_no_log:"
"""Word of the warning by which the operator recognizes it; same as in `runner.core.engine.redaction`."""
_LONGEST = 1 << 20
_CALLBACKS = "ansible.plugins.callback."
"""Prefix of the Python modules of callbacks."""
_RESULTS = (
    *("v2_runner_on_ok", "v2_runner_on_failed", "v2_runner_on_unreachable"),
    *("v2_runner_item_on_ok", "v2_runner_item_on_failed"),
)


class CallbackModule(CallbackBase):  # type: ignore[misc]  # Ansible has no types
    """Ansible's callback plugin."""

    CALLBACK_VERSION = 2.0
    CALLBACK_TYPE = "aggregate"
    CALLBACK_NAME = "ansible_operator_no_log"

    def __init__(self) -> None:
        super().__init__()
        self._declared: dict[str, frozenset[str]] = {}
        self._reported: set[tuple[str, ...]] = set()
        self._proxy = _proxy(os.environ.get("K8S_AUTH_KUBECONFIG", ""))
        modules = [module for name, module in sys.modules.items() if name.startswith(_CALLBACKS)]
        emitters = [module.CallbackModule for module in modules if hasattr(module, "event_context")]
        for emitter in emitters:
            for name in _RESULTS:
                setattr(emitter, name, self._reporting(getattr(emitter, name)))
        if not emitters and self._proxy is not None:
            self._give_up("ansible-runner's callback is not loaded")

    def _reporting(self, method: Any) -> Any:
        """Return a method of ansible-runner's callback that reports the arguments of a task before its result."""

        @functools.wraps(method)
        def reporting(callback: Any, result: Any, *args: Any, **kwargs: Any) -> Any:
            try:
                if self._proxy is not None:
                    self._look(result)
            except Exception as error:  # noqa: BLE001 - whatever fails, the arguments are not reported
                self._give_up(f"{type(error).__name__}: {error}")
            return method(callback, result, *args, **kwargs)

        return reporting

    def _give_up(self, problem: str) -> None:
        self._proxy = None
        self._display.warning(f"{UNREPORTED} cannot report secret arguments, so output is withheld: {problem}")

    def _look(self, result: Any) -> None:
        task, shown = result._task, result._result  # noqa: SLF001 - the only names that all versions have
        is_hidden = "censored" in shown or task.no_log is True
        names = self._secret_names(task, shown)
        if not is_hidden and not names:
            return
        arguments = result._task_fields.get("args")  # noqa: SLF001 - the same
        arguments = arguments if isinstance(arguments, Mapping) else {}
        chosen = arguments if is_hidden else {name: arguments[name] for name in names & arguments.keys()}
        values = tuple(dict.fromkeys(_leaves(chosen)))
        if (values or is_hidden) and (report := (str(task._uuid), *values)) not in self._reported:  # noqa: SLF001 - the same
            self._reported.add(report)
            self._report(report[0], values)

    def _secret_names(self, task: Any, shown: Mapping[str, Any]) -> set[str]:
        raw = task.args if isinstance(task.args, Mapping) else {}
        action = str(getattr(task, "resolved_action", None) or task.action)
        names = {name for name in raw if _names_secret(str(name))}
        names |= self._declared_by(action) & raw.keys()
        invocation = shown.get("invocation")
        module_args = invocation.get("module_args") if isinstance(invocation, Mapping) else None
        names |= {
            name
            for name, value in (module_args.items() if isinstance(module_args, Mapping) else ())
            if value == _MASKED
        }
        return names

    def _declared_by(self, action: str) -> frozenset[str]:
        if action not in self._declared:
            names: frozenset[str] = frozenset()
            with contextlib.suppress(Exception):  # a module that cannot be found or read declares nothing
                path = module_loader.find_plugin(action)
                source = Path(path).read_bytes() if path else b""
                if b"no_log" in source:
                    names = frozenset(name.decode() for name in _DECLARED.findall(source))
            self._declared[action] = names
        return self._declared[action]

    def _report(self, task: str, values: tuple[str, ...]) -> None:
        assert self._proxy is not None  # noqa: S101 - the caller has checked it
        host, port, token = self._proxy
        body = json.dumps({"task": task, "values": values}).encode()
        head = (
            f"POST {NO_LOG_PATH} HTTP/1.1\r\nHost: {host}\r\nAuthorization: Bearer {token}\r\nConnection: close\r\n"
            f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
        )
        with socket.create_connection((host, port), _TIMEOUT) as connection:
            connection.sendall(head.encode() + body)
            answer = connection.recv(1 << 10)
        if b" 200 " not in answer.split(b"\r\n")[0] + b" ":
            raise ConnectionError("the proxy did not take it")


def _proxy(kubeconfig: str) -> tuple[str, int, str] | None:
    """Return the proxy's host and port and the run's token; None if the kubeconfig was not written by the operator."""
    with contextlib.suppress(OSError, ValueError, LookupError, TypeError):
        config = json.loads(Path(kubeconfig).read_bytes())
        address = urlsplit(config["clusters"][0]["cluster"]["server"])
        token = config["users"][0]["user"]["token"]
        if address.hostname and address.port:
            return address.hostname, address.port, token
    return None


def _names_secret(name: str) -> bool:
    match = _SECRET_NAME.search(name)
    return match is not None and not _ABOUT.search(match["more"])


def _leaves(value: Any) -> Iterator[str]:
    """Yield the strings in an argument, except those that could not be templated and those with ordinary names."""
    if isinstance(value, Mapping):
        for name, item in value.items():
            if name not in _ORDINARY and not str(name).startswith("_ansible_"):
                yield from _leaves(item)
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _leaves(item)
    elif isinstance(value, str | int | float) and not isinstance(value, bool):
        text = str(value)
        if text and "{{" not in text and len(text) <= _LONGEST:
            yield text
