"""Transport of event data to the supervisor through a socket instead of one file for each event.

ansible-runner's callback writes the data of each event to a file, and only the event's name to the terminal. The reader
of the terminal reads the file and removes it. Here the callback first sends the data through a socket that preserves
messages. Three kinds of data still go through a file, so that no process waits for another:

- data that is too large for a message;
- data that does not fit while the supervisor is slow;
- data from a worker's process.

The terminal output of an event is written at once at its end, not line by line. `install` must be called only where
Ansible is loaded; the rest is for the supervisor.
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
"""Characters of the UUID with which a message begins."""
_KEY = ":1:ev-"
"""Prefix that the callback adds to the UUID."""
_CALLBACKS = "ansible.plugins.callback."
"""Prefix of the Python modules of callbacks, also of those that ansible-runner brings."""
_MOST = 4096
_FIRST_NUMBER = 64
"""Lowest number of the descriptor, above the run's own."""


def pair() -> tuple[socket.socket, socket.socket]:
    """Return the supervisor's end and the callback's end."""
    return socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)


def keep(sender: socket.socket) -> int:
    """Return a descriptor of the callback's end with a number that roles do not notice. An exec closes it."""
    return fcntl.fcntl(sender.fileno(), fcntl.F_DUPFD_CLOEXEC, _FIRST_NUMBER)


class EventReceiver:
    """Received data until it is read."""

    def __init__(self, receiver: socket.socket) -> None:
        receiver.settimeout(0)
        self._receiver = receiver
        self._waiting: OrderedDict[str, deque[bytes]] = OrderedDict()

    def has(self, uuid: str) -> bool:
        """Return True if data of this event was sent."""
        self._receive()
        return uuid in self._waiting

    def take(self, uuid: str) -> dict[str, Any] | None:
        """Return the data of an event, which was sent before its mark on the terminal; None if it is in a file."""
        self._receive()
        waiting = self._waiting.get(uuid)
        if not waiting:
            return None
        data = waiting.popleft()
        if not waiting:
            del self._waiting[uuid]
        event_data: dict[str, Any] = json.loads(data)
        return event_data

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
    """Install the transport of ansible-runner's callback through the socket with this descriptor."""
    from ansible.executor.task_queue_manager import TaskQueueManager  # noqa: PLC0415 - see above

    sender = socket.socket(fileno=number)
    sender.settimeout(0)
    load: Callable[..., Any] = TaskQueueManager.load_callbacks

    @functools.wraps(load)
    def load_callbacks(self: Any) -> Any:
        done = load(self)
        for module in [module for name, module in sys.modules.items() if name.startswith(_CALLBACKS)]:
            _redirect(module, sender)
        return done

    TaskQueueManager.load_callbacks = load_callbacks


def _redirect(module: Any, sender: socket.socket) -> None:
    """Replace the transport of a callback's module with the socket, if it is ansible-runner's."""
    context = getattr(module, "event_context", None)
    if isinstance(getattr(context, "cache", None), getattr(module, "IsolatedFileWrite", ())):
        context.cache = _SocketCache(context.cache, sender, module.AnsibleJSONEncoderLocal)  # type: ignore[union-attr]
        held = _Held([sys.stdout, sys.stderr])
        os.register_at_fork(after_in_child=held.forget)
        context.dump = functools.partial(_mark, context, held)  # type: ignore[union-attr]


def _mark(context: Any, held: _Held, stream: Any, data: Any, width: int = 78, *, flush: bool = False) -> None:
    """Write on the terminal which event begins, or ends if `flush` is set."""
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
    """Streams to one terminal, and the output of one of them since an event began, until it is flushed.

    The holder of the display's lock writes an event. Other threads may write meanwhile if they do
    not use Ansible's lock.
    """

    def __init__(self, streams: list[TextIO]) -> None:
        self._parts: list[str] = []
        self._by: Callable[[str], int] | None = None
        self._lock = threading.Lock()
        self._writes = {id(stream): stream.write for stream in streams}
        for stream in streams:
            # Bound methods identify streams, also if Ansible or a callback wrapped these methods before.
            stream.write = functools.partial(self._write, stream.write)  # type: ignore[method-assign]
            stream.flush = functools.partial(self._flush, stream.flush)  # type: ignore[method-assign]

    def begin(self, stream: TextIO) -> None:
        """Hold the output of this stream; ignore an unknown stream."""
        self._release()
        self._by = self._writes.get(id(stream))

    def forget(self) -> None:
        """Drop the held output in a new process, because it is the parent's."""
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


class _SocketCache:
    """Replacement for ansible-runner's writer of files."""

    def __init__(self, files: Any, sender: socket.socket, encoder: type[json.JSONEncoder]) -> None:
        self._files = files
        self._sender = sender
        self._encoder = encoder
        self._pid = os.getpid()
        # The first file creates the folder.
        self._has_folder = False

    def set(self, key: str, value: Any) -> None:
        """Send an event's data."""
        uuid = key[len(_KEY) :]
        if self._has_folder and os.getpid() == self._pid and len(uuid) == _UUID:
            data = json.dumps(value, cls=self._encoder).encode()
            if len(data) <= _LARGEST:
                try:
                    self._sender.send(uuid.encode() + data)
                except OSError:  # it is full, or the other end is closed
                    pass
                else:
                    return
        self._files.set(key, value)
        self._has_folder = True
