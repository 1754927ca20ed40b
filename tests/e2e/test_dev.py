"""`ansible-operator dev` in a new project: from nothing to a role that is edited and runs again."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import IO

import pytest

COMMAND = Path(sys.executable).with_name("ansible-operator")
PATIENCE = 90.0


class Dev:
    """The running command, and what it says."""

    def __init__(self, process: subprocess.Popen[str], said: IO[str]) -> None:
        self.process = process
        self._lines: list[str] = []
        self._more = threading.Condition()
        self._reading = threading.Thread(target=self._read, args=(said,))
        self._reading.start()

    def _read(self, said: IO[str]) -> None:
        for line in said:
            with self._more:
                self._lines.append(line.rstrip("\n"))
                self._more.notify_all()

    def until(self, beginning: str) -> str:
        """Wait for a line that begins so; return what follows in it."""

        def found() -> list[str]:
            return [line.removeprefix(beginning) for line in self._lines if line.startswith(beginning)]

        with self._more:
            assert self._more.wait_for(found, PATIENCE), f"no {beginning!r} in:\n" + "\n".join(self._lines)
            return found()[-1].strip()

    def end(self) -> int:
        os.killpg(self.process.pid, signal.SIGINT)  # as a terminal does: to all that it started in the foreground
        code = self.process.wait(PATIENCE)
        self._reading.join(PATIENCE)
        return code


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "shop-operator"
    made.mkdir()
    for line in ("init --domain example.org", "create api --group shop --kind Basket"):
        subprocess.run([COMMAND, *line.split()], cwd=made, check=True, stdout=subprocess.DEVNULL)
    return made


@pytest.fixture
def dev(folder: Path, tmp_path: Path) -> Iterator[Dev]:
    environ = {name: value for name, value in os.environ.items() if not name.startswith(("KUBE", "K8S_", "ANSIBLE_"))}
    flags = [f"--runner-dir={tmp_path / 'runs'}", "--user-metrics-port=0"]
    with subprocess.Popen(
        [COMMAND, "dev", "--name", f"dev-{os.getpid()}", "--", *flags],
        cwd=folder,
        env={**environ, "KUBEBUILDER_ASSETS": os.environ.get("KUBEBUILDER_ASSETS", ""), "TMPDIR": str(tmp_path)},
        text=True,
        start_new_session=True,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    ) as process:
        assert process.stdout is not None
        made = Dev(process, process.stdout)
        yield made
        if process.poll() is None:
            made.end()


@pytest.mark.full
def test_a_resource_is_run_an_edited_role_runs_again_and_ctrl_c_ends_everything(dev: Dev, folder: Path) -> None:
    kubeconfig = dev.until("Use it:      export KUBECONFIG=")
    kubectl = dev.until("kubectl:")
    dev.until("watching shop.example.org/v1alpha1, Kind=Basket")
    sample = folder / "config/samples/shop_v1alpha1_basket.yaml"
    subprocess.run([kubectl, f"--kubeconfig={kubeconfig}", "apply", "-f", str(sample)], check=True)
    dev.until("Basket default/basket-sample: succeeded in ")

    tasks = folder / "roles/basket/tasks/main.yml"
    tasks.write_text("---\n- name: Say hello\n  ansible.builtin.debug:\n    msg: hello\n", encoding="utf-8")
    dev.until("What runs execute was edited: roles/basket/tasks/main.yml changed")
    dev.until("Basket default/basket-sample: task 3: Say hello")

    assert dev.end() == 0
    assert not Path(kubeconfig).exists()
