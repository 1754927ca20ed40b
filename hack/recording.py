"""The terminal recording of the first page: the operator of README.md in `ansible-operator dev`, as an SVG file.

`make docs` records it anew and writes docs/pictures/dev.svg if a line differs by more than numbers. If the programs of
the control plane are missing, the file remains.
"""

from __future__ import annotations

import os
import re
import shlex
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from html import escape
from pathlib import Path
from typing import IO

from runner.sdk.devcluster.binaries import CONTROL_PLANE, find, this_machine
from tests.kit.wait import wait_until

ROOT = Path(__file__).resolve().parents[1]
FILE = ROOT / "docs/pictures/dev.svg"
_COLUMNS, _CHARACTER, _LINE, _MARGIN = 120, 7.2, 18, 14
_SPEED = 4
"""Times faster than the terminal: a reader of the first page does not wait."""
_STYLE = (
    "rect{fill:#1b1f2b}text{font:12px ui-monospace,Menlo,Consolas,monospace;fill:#c9d1e0;white-space:pre}"
    ".title{fill:#8891a8}.typed{fill:#8fd18f;font-weight:bold}.line{animation:appear 0s step-end}"
    "@keyframes appear{from{visibility:hidden}}@media (prefers-reduced-motion:reduce){.line{animation:none}}"
)
_YAML = re.compile(r"^```yaml\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_PROMPT = "$ "


@dataclass(frozen=True, slots=True)
class Line:
    """A line of a terminal, and the second in which it appears."""

    second: float
    text: str


@dataclass(slots=True)
class Pane:
    """A terminal."""

    title: str
    began: float = field(default_factory=time.monotonic)
    lines: list[Line] = field(default_factory=list)

    def add(self, text: str) -> None:
        """Append lines that appear now."""
        now = time.monotonic() - self.began
        self.lines += [Line(now, line) for line in text.splitlines()]

    def shows(self, part: str) -> bool:
        """Return True if a line contains the text."""
        return any(part in line.text for line in self.lines)


def svg(title: str, panes: Sequence[Pane]) -> str:
    """Return the terminals below each other, as a picture whose lines appear one after the other. Pure."""
    rows: list[str] = []
    for pane in panes:
        rows += [
            _text(len(rows), "title", pane.title),
            *(_row(len(rows) + n + 1, line) for n, line in enumerate(pane.lines)),
            "",
        ]
    width, height = round(_COLUMNS * _CHARACTER) + 2 * _MARGIN, len(rows) * _LINE + 2 * _MARGIN
    return "\n".join((
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" role="img">',
        f"<title>{escape(title)}</title>",
        f"<style>{_STYLE}</style>",
        f'<rect width="{width}" height="{height}" rx="8"/>',
        *filter(None, rows),
        "</svg>",
        "",
    ))  # fmt: skip


def _row(row: int, line: Line) -> str:
    kind = "line typed" if line.text.startswith(_PROMPT) else "line"
    text = line.text if len(line.text) <= _COLUMNS else line.text[: _COLUMNS - 1] + "…"
    return _text(row, kind, text, f' style="animation-duration:{line.second / _SPEED:.1f}s"')


def _text(row: int, kind: str, text: str, more: str = "") -> str:
    return (
        f'<text class="{kind}" x="{_MARGIN}" y="{_MARGIN + 12 + row * _LINE}"{more}>{escape(text, quote=False)}</text>'
    )


def record(folder: Path) -> tuple[Pane, Pane]:
    """Run the operator of README.md in an empty folder; return both terminals. Raises CalledProcessError."""
    watches, tasks, resource = _YAML.findall((ROOT / "README.md").read_text(encoding="utf-8"))
    project, state = folder / "grafana-operator", folder / "state"
    project.mkdir()
    environ = {name: value for name, value in os.environ.items() if not name.startswith(("KUBE", "ANSIBLE_"))}
    environ |= {"XDG_STATE_HOME": str(state), "TMPDIR": str(folder), "NO_COLOR": "1"}
    if assets := os.environ.get("KUBEBUILDER_ASSETS"):
        environ["KUBEBUILDER_ASSETS"] = assets
    for arguments in ("init --domain example.com", "create api --group tools --kind Dashboard"):
        command = (*_PROGRAM, *arguments.split())
        subprocess.run(command, cwd=project, env=environ, check=True, stdout=subprocess.DEVNULL)
    (project / "watches.yaml").write_text(watches, encoding="utf-8")
    (project / "roles/dashboard/tasks/main.yml").write_text(f"---\n{tasks}", encoding="utf-8")
    (project / "sales.yaml").write_text(resource, encoding="utf-8")
    operator, user = Pane("first terminal"), Pane("second terminal")
    with _dev(operator, project, environ, {str(state): "~/.local/state", str(folder): "/tmp", str(Path.home()): "~"}):  # noqa: S108 - shown
        wait_until(lambda: operator.shows("watching tools.example.com"), lambda: f"the operator: {operator.lines}")
        kubectl = find(os.environ, this_machine(), CONTROL_PLANE)["kubectl"]
        (kubeconfig,) = state.glob("ansible-operator/clusters/*/run/kubeconfig")
        environ["KUBECONFIG"] = str(kubeconfig)
        for line in (
            "kubectl apply --filename sales.yaml",
            "kubectl wait dashboard/sales --for=jsonpath='{.status.readyReplicas}'=2 --timeout=120s",
            "kubectl get dashboards,deployments,secrets",
        ):
            user.add(_PROMPT + line)
            _, *words = shlex.split(line)
            done = subprocess.run(
                (kubectl, *words), cwd=project, env=environ, check=True, text=True, stdout=subprocess.PIPE
            )
            user.add(done.stdout)
    return operator, user


_PROGRAM = (sys.executable, "-m", "runner")


@contextmanager
def _dev(pane: Pane, project: Path, environ: dict[str, str], shown_as: dict[str, str]) -> Iterator[None]:
    """Run `ansible-operator dev`, whose lines the pane gets, until the block ends."""
    pane.add(f"{_PROMPT}ansible-operator dev")
    command = (*_PROGRAM, "dev", "--node=fake", "--", f"--runner-dir={project.parent}/runs", "--user-metrics-port=0")
    with subprocess.Popen(
        command, cwd=project, env=environ, text=True, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE
    ) as process:
        reading = threading.Thread(target=_read, args=(process.stdout, pane, shown_as))
        reading.start()
        try:
            yield
        finally:
            process.send_signal(signal.SIGINT)
            reading.join()


def _read(output: IO[str], pane: Pane, shown_as: dict[str, str]) -> None:
    for line in output:
        for path, short in shown_as.items():
            line = line.replace(path, short)  # noqa: PLW2901 - the same line
        pane.add(line)


def _words(picture: str) -> set[str]:
    """Return the lines of a picture without numbers and names of temporary files."""
    texts = re.findall(r"<text[^>]*>(.*)</text>", picture)
    return {re.sub(r"[\d.]+(?:m?s)?|dev-\w+", "0", " ".join(text.split())) for text in texts}


def main() -> int:
    """Write the recording; return the exit code."""
    if len(find(os.environ, this_machine(), CONTROL_PLANE)) < len(CONTROL_PLANE.programs):
        print("The terminal recording remains: the programs of the control plane are missing, see `make setup`")
        return 0
    with tempfile.TemporaryDirectory(prefix="ansible-operator-recording-") as folder:
        picture = svg("The operator of this page in ansible-operator dev", record(Path(folder)))
    if not FILE.exists() or _words(FILE.read_text(encoding="utf-8")) != _words(picture):
        FILE.parent.mkdir(exist_ok=True)
        FILE.write_text(picture, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
