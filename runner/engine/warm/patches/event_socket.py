"""What events hold goes to the supervisor through a socket, not through a file for each.

ansible-runner's callback writes the data of each event to a file, and says on the terminal only which; who reads the
terminal reads the file and removes it. Here the data goes ahead through a socket of whole messages. What is too large
for it, does not fit while the supervisor is slow, or comes from a worker's process goes through a file as ever, so that
nobody waits for anybody. And what an event says on the terminal goes there in one write at its end, not line by line.
`install` must be called only where Ansible is loaded; the rest is for the supervisor.
"""

from __future__ import annotations

import base64
import fcntl
import functools
import json
import os
import socket
import sys
import threading
from collections import OrderedDict, deque
from collections.abc import Callable
from typing import Any, TextIO

_LARGEST = 64 * 1024
_UUID = 36
"""Characters of a UUID, which a message begins with."""
_KEY = ":1:ev-"
"""What the callback puts before it."""
_MOST = 4096
_FIRST_NUMBER = 64
"""Of an open file that a run's own are not to be counted behind."""


def pair() -> tuple[socket.socket, socket.socket]:
    """The supervisor's end and the callback's."""
    return socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)


def keep(sender: socket.socket) -> int:
    """Return the callback's end under a number that roles see no difference by; closed where a program is executed."""
    return fcntl.fcntl(sender.fileno(), fcntl.F_DUPFD_CLOEXEC, _FIRST_NUMBER)


class Heard:
    """What has come, until it is asked for."""

    def __init__(self, receiver: socket.socket) -> None:
        receiver.settimeout(0)
        self._receiver = receiver
        self._waiting: OrderedDict[str, deque[bytes]] = OrderedDict()

    def take(self, uuid: str) -> dict[str, Any] | None:
        """Return the data of an event, which was sent before the terminal said that there is one; None: in a file."""
        self._receive()
        waiting = self._waiting.get(uuid)
        if not waiting:
            return None
        data = waiting.popleft()
        if not waiting:
            del self._waiting[uuid]
        found: dict[str, Any] = json.loads(data)
        return found

    def _receive(self) -> None:
        while True:
            try:
                message = self._receiver.recv(_UUID + _LARGEST)
            except OSError:  # nothing more for now
                return
            if not message:
                return
            self._waiting.setdefault(message[:_UUID].decode(), deque()).append(message[_UUID:])
            if len(self._waiting) > _MOST:
                self._waiting.popitem(last=False)


def install(number: int) -> None:
    """Have the callback of ansible-runner tell through the socket of this number."""
    from ansible.executor.task_queue_manager import TaskQueueManager  # noqa: PLC0415 - see above

    sender = socket.socket(fileno=number)
    sender.settimeout(0)
    load: Callable[..., Any] = TaskQueueManager.load_callbacks

    @functools.wraps(load)
    def load_callbacks(self: Any) -> Any:
        done = load(self)
        for callback in (getattr(self, "_stdout_callback", None), *self._callback_plugins):
            _redirect(sys.modules[type(callback).__module__], sender)
        return done

    TaskQueueManager.load_callbacks = load_callbacks


def _redirect(module: Any, sender: socket.socket) -> None:
    """Have a callback's module tell through a socket, if it is ansible-runner's."""
    context = getattr(module, "event_context", None)
    if isinstance(getattr(context, "cache", None), getattr(module, "IsolatedFileWrite", ())):
        context.cache = _Told(context.cache, sender, module.AnsibleJSONEncoderLocal)  # type: ignore[union-attr]
        held = _Held([sys.stdout, sys.stderr])
        os.register_at_fork(after_in_child=held.forget)
        context.dump = functools.partial(_mark, context, held)  # type: ignore[union-attr]


def _mark(context: Any, held: _Held, stream: Any, data: Any, width: int = 78, *, flush: bool = False) -> None:
    """Say on the terminal which event begins, or ends, where `flush` says so."""
    text = base64.b64encode(json.dumps(data).encode()).decode()
    parts = (text[start : start + width] for start in range(0, len(text), width))
    marks = "".join(f"{part}\x1b[{len(part)}D" for part in parts)
    with context.display_lock:
        if not flush:
            held.begin(stream)
        stream.write(f"\x1b[K{marks}\x1b[K")
        if flush:
            stream.flush()


class _Held:
    """Streams that lead to one terminal, and what one of them was given since an event began, until it is flushed.

    Who holds the display's lock writes an event; others may write meanwhile, where Ansible does not hold them off.
    """

    def __init__(self, streams: list[TextIO]) -> None:
        self._parts: list[str] = []
        self._by: Callable[[str], int] | None = None
        self._lock = threading.Lock()
        self._writes = {id(stream): stream.write for stream in streams}
        for stream in streams:
            # Streams are known by what they are, also where Ansible or a callback wrapped these methods before.
            stream.write = functools.partial(self._write, stream.write)  # type: ignore[method-assign]
            stream.flush = functools.partial(self._flush, stream.flush)  # type: ignore[method-assign]

    def begin(self, stream: TextIO) -> None:
        """Hold what this stream is given; one that is not known is left alone."""
        self._release()
        self._by = self._writes.get(id(stream))

    def forget(self) -> None:
        """Hold nothing, in a new process: what was held is the old one's."""
        self._lock = threading.Lock()
        self._parts, self._by = [], None

    def _write(self, write: Callable[[str], int], text: str) -> int:
        with self._lock:
            if write == self._by and isinstance(text, str):
                self._parts.append(text)
                return len(text)
        self._release()
        return write(text)

    def _flush(self, flush: Callable[[], None]) -> None:
        self._release()
        flush()

    def _release(self) -> None:
        with self._lock:
            parts, write = self._parts, self._by
            self._parts, self._by = [], None
        if parts and write is not None:
            write("".join(parts))


class _Told:
    """Takes the place of what writes files."""

    def __init__(self, files: Any, sender: socket.socket, encoder: type[json.JSONEncoder]) -> None:
        self._files = files
        self._sender = sender
        self._encoder = encoder
        self._pid = os.getpid()
        # The folder is made with the first file.
        self._has_folder = False

    def set(self, key: str, value: Any) -> None:
        """Tell an event's data."""
        uuid = key[len(_KEY) :]
        if self._has_folder and os.getpid() == self._pid and len(uuid) == _UUID:
            data = json.dumps(value, cls=self._encoder).encode()
            if len(data) <= _LARGEST:
                try:
                    self._sender.send(uuid.encode() + data)
                except OSError:  # it is full, or nobody listens
                    pass
                else:
                    return
        self._files.set(key, value)
        self._has_folder = True
