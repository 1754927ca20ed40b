"""A terminal with a shell in it, for who types into it and reads what it shows."""

from __future__ import annotations

import codecs
import fcntl
import os
import pty
import re
import struct
import subprocess
import termios
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path

_PROMPT = re.compile(r"<<ended with (\d+)>>\r?\n")
_SEQUENCES = re.compile(r"\x1b(\[[0-9;?]*[A-Za-z]|[()][A-Z0-9]|[=>])")


class TerminalError(Exception):
    """What was waited for did not come; the message holds what the terminal showed last."""


class Terminal:
    """Bash in a terminal of its own. It types only when bash asks for it, so that nothing else reads what it types."""

    def __init__(self, name: str, cwd: Path, environ: Mapping[str, str], size: tuple[int, int] = (50, 200)) -> None:
        """`size`: rows and columns."""
        self.name = name
        self._master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", *size, 0, 0))
        attributes = termios.tcgetattr(slave)
        attributes[3] &= ~termios.ECHO
        termios.tcsetattr(slave, termios.TCSANOW, attributes)
        self._shell = subprocess.Popen(
            ["setsid", "--ctty", "bash", "--norc", "--noprofile", "--noediting", "-i"],
            cwd=cwd,
            env={**environ, "PS1": "<<ended with $?>>\n", "PS2": "", "TERM": "xterm"},
            stdin=slave,
            stdout=slave,
            stderr=slave,
        )
        os.close(slave)
        self.shown = ""
        """Everything that it showed, with control sequences."""
        self._seen = 0
        self._more = threading.Condition()
        self._reading = threading.Thread(target=self._read)
        self._reading.start()
        self._await_prompt(30.0)

    def type(self, line: str) -> None:
        """Type a line, and do not wait for what comes of it."""
        os.write(self._master, f"{line}\n".encode())

    def run(self, line: str, patience: float) -> str:
        """Type a line; return what it printed, once it has ended well. Raises TerminalError."""
        self.type(line)
        code, printed = self._await_prompt(patience)
        if code:
            raise TerminalError(f"terminal {self.name}: `{line}` ended with {code}:\n{printed}")
        return printed

    def interrupt(self, patience: float) -> int:
        """Press Ctrl-C; return how what was in the foreground ended."""
        os.write(self._master, b"\x03")
        return self._await_prompt(patience)[0]

    def await_shown(self, is_it: Callable[[str], bool], what: str, patience: float) -> None:
        """Wait until it shows, after what was asked for before, something of which `is_it` is true."""

        def found() -> bool:
            if is_it(_plain(self.shown[self._seen :])):
                return True
            ended = _PROMPT.search(self.shown, self._seen)
            if ended:
                raise TerminalError(f"terminal {self.name}: what stays has ended:\n{_plain(self.shown[self._seen :])}")
            return False

        with self._more:
            if not self._more.wait_for(found, patience):
                raise TerminalError(f"terminal {self.name}: no {what!r} in:\n{_plain(self.shown[self._seen :])}")
            self._seen = len(self.shown)

    def close(self, patience: float) -> None:
        """End what runs in it as its user would, and then the shell."""
        if self._shell.poll() is None:
            os.write(self._master, b"\x03")
            try:
                self._await_prompt(patience)
                self.type("exit")
                self._shell.wait(patience)
            except (TerminalError, OSError, subprocess.TimeoutExpired):
                self._shell.kill()
                self._shell.wait()
        self._reading.join(patience)
        os.close(self._master)

    def _await_prompt(self, patience: float) -> tuple[int, str]:
        """Wait until bash asks for the next line; return how the last one ended and what was shown in between."""
        until = time.monotonic() + patience
        with self._more:
            while (ended := _PROMPT.search(self.shown, self._seen)) is None:
                left = until - time.monotonic()
                if left <= 0 or not self._more.wait(left):
                    told = _plain(self.shown[self._seen :])
                    raise TerminalError(f"terminal {self.name}: not done after {patience:.0f} s:\n{told}")
            printed = self.shown[self._seen : ended.start()]
            self._seen = ended.end()
        return int(ended[1]), _plain(printed)

    def _read(self) -> None:
        decoder = codecs.getincrementaldecoder("utf-8")("replace")
        while True:
            try:
                data = os.read(self._master, 65536)
            except OSError:  # the other side is closed: that is how a terminal says so on Linux
                return
            if not data:
                return
            with self._more:
                self.shown += decoder.decode(data)
                self._more.notify_all()


def _plain(text: str) -> str:
    return _SEQUENCES.sub(" ", text).replace("\r", "")
