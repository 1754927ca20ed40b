"""Screenshots of the status page and of `dev`, light and dark: `make docs` writes them to docs/screenshots.

They are not in the repository, except for the picture of the first page: it is written again when a file of the page is
newer. Without a browser, the site has no screenshots, and a line says why.
"""

from __future__ import annotations

import base64
import html
import os
import re
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from runner.sdk.devcluster.cluster import get_programs
from tests.kit.browser import Reader, start
from tests.kit.programs import find_browser
from tests.kit.terminal import Terminal
from tests.kit.wait import wait_until

ROOT = Path(__file__).resolve().parents[1]
FOLDER = ROOT / "docs/screenshots"
_NAME = "--leader-election-id=memcached-operator"
"""The name of the operator on the page."""
_PICTURE = ROOT / "docs/pictures/page.webp"
_OF_PAGE = ROOT / "runner/features/ui/files"
_CHECKOUT = 60.0
"""Seconds by which files of one checkout differ in age."""
_SIZE = (30, 120)
"""Rows and columns of the terminal."""
_DEADLINE = 300.0
_FRAME = "\x1b[H\x1b[J"
"""What the live view writes before each picture."""
_OBJECTS = """
apiVersion: v1
kind: Namespace
metadata: {{name: {namespace}}}
---
apiVersion: v1
kind: ResourceQuota
metadata: {{name: quota, namespace: {namespace}}}
spec: {{hard: {{count/deployments.apps: "{most}"}}}}
---
apiVersion: cache.example.com/v1alpha1
kind: Memcached
metadata: {{name: {name}, namespace: {namespace}}}
spec: {{size: 2}}
"""
_MEMCACHEDS = (("cart", "shop", 9), ("session", "shop", 9), ("pages", "shop", 9), ("search", "lab", 0))
"""Names and namespaces of resources, and how many Deployments a quota permits there."""
_NO_PATHS = """
for (const node of document.querySelectorAll(".place")) {
  node.textContent = node.textContent.replace(arguments[0], "/opt/ansible");
}
"""
_PRE = """\
<meta charset="utf-8"><meta name="color-scheme" content="light dark"><main>
<style>
  pre {{ font: 14px monospace; line-height: 1.4; padding: 1em; white-space: pre-wrap }}
  .s1 {{ font-weight: bold }} .s2 {{ opacity: .7 }} .s31 {{ color: light-dark(#b3261e, #ff9e96) }}
  .s32 {{ color: light-dark(#1a6e3c, #7fd3a0) }} .s33 {{ color: light-dark(#7a4d00, #f0bf6c) }}
  .s36 {{ color: light-dark(#0b5cad, #7db7f3) }}
</style><pre>{}</pre></main>
"""


@contextmanager
def _live_view(state: Path) -> Iterator[Callable[[], str]]:
    """Run `ansible-operator dev` of the sample project in a terminal; yield what returns its last picture."""
    terminal = Terminal("dev", ROOT, {**os.environ, "XDG_STATE_HOME": str(state)}, _SIZE)
    command = [sys.executable, "-m", "runner", "dev", "--name=screenshots", "--", f"--runner-dir={state}/runs", _NAME]
    terminal.type(shlex.join(command))
    try:
        yield lambda: terminal.shown.rpartition(_FRAME)[2]
    finally:
        terminal.close(_DEADLINE)


def _draw(reader: Reader) -> None:
    """Write the picture of the first page, unless it is newer than the page."""
    newest = max(path.stat().st_mtime for path in _OF_PAGE.iterdir())
    if _PICTURE.exists() and _PICTURE.stat().st_mtime > newest - _CHECKOUT:
        return
    reader.prefer("light")
    _PICTURE.write_bytes(_captured(reader, format="webp", quality=80))


def _take(reader: Reader, name: str) -> None:
    for scheme in ("light", "dark"):
        reader.prefer(scheme)
        (FOLDER / f"{name}-{scheme}.png").write_bytes(_captured(reader, format="png"))


def _captured(reader: Reader, **how: object) -> bytes:
    """Return a picture of the page, without what is below its content and without paths of this machine."""
    reader.script(_NO_PATHS, str(ROOT))
    bottom = reader.script("return document.querySelector('main').lastElementChild.getBoundingClientRect().bottom")
    clip = {"x": 0, "y": 0, "width": 1280, "height": bottom + 24, "scale": 1}
    return base64.b64decode(reader.driver.execute_cdp_cmd("Page.captureScreenshot", {"clip": clip, **how})["data"])


def _coloured(text: str) -> str:
    """Return text of a terminal as HTML. A style begins with its number, and ends with 0."""
    escaped = html.escape(text.replace("\r", ""))
    styled = re.sub(r"\x1b\[([1-9][0-9]*)m(.*?)\x1b\[0m", r'<span class="s\1">\2</span>', escaped)
    return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", styled)


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
        page = wait_until(lambda: re.search(r"Page: (http[^\s\x1b]+)", view()), "the page", _DEADLINE)[1]
        config = f"--kubeconfig={folder}/ansible-operator/clusters/screenshots/run/kubeconfig"
        for name, namespace, most in _MEMCACHEDS:
            text = _OBJECTS.format(name=name, namespace=namespace, most=most)
            apply = (kubectl, config, "apply", "--filename=-")
            subprocess.run(apply, input=text, text=True, check=True, stdout=subprocess.DEVNULL)
        for name, namespace, most in _MEMCACHEDS:
            condition = f"--for=condition={'Successful' if most else 'Failure'}"
            waited = (
                kubectl,
                config,
                "wait",
                condition,
                f"memcached/{name}",
                f"--namespace={namespace}",
                "--timeout=120s",
            )
            subprocess.run(waited, check=True, stdout=subprocess.DEVNULL)
        driver = start(Path(folder, "chromium"))
        try:
            reader = Reader(driver)
            reader.resize(1280)
            reader.open(page)
            reader.await_text("3 ready", "1 failing")
            _take(reader, "status-page")
            _draw(reader)
            shown = Path(folder, "dev.html")
            text = view().replace(str(ROOT), "~/memcached-operator").replace(folder, "~/.local/state")
            shown.write_text(_PRE.format(_coloured(text)), encoding="utf-8")
            reader.open(shown.as_uri())
            _take(reader, "dev")
        finally:
            driver.quit()
    return 0


if __name__ == "__main__":
    sys.exit(main())
