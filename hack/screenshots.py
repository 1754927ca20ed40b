"""Screenshots of the status page and of `dev`, light and dark: `make docs` writes them to docs/screenshots.

They are not in the repository. Without a browser, the site has no screenshots, and a line says why.
"""

from __future__ import annotations

import fcntl
import html
import os
import pty
import re
import signal
import struct
import subprocess
import sys
import tempfile
import termios
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from runner.sdk.devcluster.cluster import get_programs
from tests.kit.browser import Reader, start
from tests.kit.programs import find_browser

ROOT = Path(__file__).resolve().parents[1]
FOLDER = ROOT / "docs/screenshots"
_ROWS, _COLUMNS = 30, 120
_DEADLINE = 300.0
_FRAME = "\x1b[H\x1b[J"
"""What the live view writes before each picture."""
_PRE = """\
<meta charset="utf-8"><meta name="color-scheme" content="light dark"><main>
<pre style="font: 14px monospace; line-height: 1.4; padding: 1em">{}</pre></main>
"""


class LiveView:
    """`ansible-operator dev` of the sample project in a terminal."""

    def __init__(self, process: subprocess.Popen[bytes], terminal: int) -> None:
        self._process = process
        self._terminal = terminal
        self._written = b""
        self._reading = threading.Thread(target=self._read)
        self._reading.start()

    def frame(self) -> str:
        """Return the last complete picture."""
        pictures = self._written.decode(errors="replace").split(_FRAME)
        return pictures[-2] if len(pictures) > 2 else ""  # noqa: PLR2004 - text before the first, and the newest part

    def await_frame(self, pattern: str) -> re.Match[str]:
        """Return the match in a picture. Raises TimeoutError."""
        deadline = time.monotonic() + _DEADLINE
        while not (found := re.search(pattern, self.frame())):
            if time.monotonic() > deadline or self._process.poll() is not None:
                raise TimeoutError(f"`dev` does not show {pattern!r}: {self._written[-2000:].decode(errors='replace')}")
            time.sleep(0.2)
        return found

    def close(self) -> None:
        """Stop it as Ctrl-C does."""
        self._process.send_signal(signal.SIGINT)
        self._process.wait(_DEADLINE)
        self._reading.join()

    def _read(self) -> None:
        while True:
            try:
                self._written += os.read(self._terminal, 1 << 16)
            except OSError:  # the process has closed the terminal
                return


@contextmanager
def _live_view(state: Path) -> Iterator[LiveView]:
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", _ROWS, _COLUMNS, 0, 0))
    environ = {**os.environ, "XDG_STATE_HOME": str(state), "TERM": "xterm"}
    command = [sys.executable, "-m", "runner", "dev", "--name=screenshots", "--", f"--runner-dir={state}/runs"]
    with subprocess.Popen(command, cwd=ROOT, env=environ, stdin=slave, stdout=slave, stderr=slave) as process:
        os.close(slave)
        view = LiveView(process, master)
        try:
            yield view
        finally:
            view.close()
            os.close(master)


def _take(reader: Reader, name: str) -> None:
    for scheme in ("light", "dark"):
        reader.prefer(scheme)
        reader.driver.save_screenshot(str(FOLDER / f"{name}-{scheme}.png"))


def main() -> int:
    """Write the screenshots; return the exit code."""
    if find_browser() is None:
        print("The site has no screenshots: chromium and chromedriver are not in PATH")
        return 0
    FOLDER.mkdir(exist_ok=True)
    kubectl = str(get_programs(os.environ, sys.stderr)["kubectl"])
    with (
        tempfile.TemporaryDirectory(prefix="ansible-operator-screenshots-") as folder,
        _live_view(Path(folder)) as view,
    ):
        page = view.await_frame(r"Page: (http\S+)")[1]
        config = f"--kubeconfig={folder}/ansible-operator/clusters/screenshots/run/kubeconfig"
        sample = f"--filename={ROOT}/config/samples/cache_v1alpha1_memcached.yaml"
        subprocess.run([kubectl, config, "apply", sample], check=True, stdout=subprocess.DEVNULL)
        view.await_frame("memcached-sample")
        waited = (kubectl, config, "wait", "--for=condition=Successful", "memcached/memcached-sample", "--timeout=120s")
        subprocess.run(waited, check=True, stdout=subprocess.DEVNULL)
        driver = start(Path(folder, "chromium"))
        try:
            reader = Reader(driver)
            reader.resize(1280)
            reader.open(page)
            reader.await_text("Memcached")
            _take(reader, "status-page")
            shown = Path(folder, "dev.html")
            text = view.frame().replace(str(ROOT), "~/memcached-operator").replace(folder, "~/.local/state")
            shown.write_text(_PRE.format(html.escape(re.sub(r"\x1b\[[0-9;?]*[A-Za-z]|\r", "", text))), encoding="utf-8")
            reader.open(shown.as_uri())
            _take(reader, "dev")
        finally:
            driver.quit()
    return 0


if __name__ == "__main__":
    sys.exit(main())
