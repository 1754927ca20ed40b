"""Little to write to: a read-only root file system, and a disk that is full.

The operator gets mounts of its own (mount_namespaces(7)), which takes the right to make some.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.kit.places import ROOT
from tests.kit.wait import wait_until

if TYPE_CHECKING:
    from tests.kit.objects import Things
    from tests.kit.operator import Project

# Folders of root's own are replaced by ones that everybody may enter and that hold only what is needed.
MOUNTS = """
set -e
runs=$1 size=$2; shift 2
mount --make-rprivate /
mount -t tmpfs tmpfs /mnt
mkdir /mnt/tmp /mnt/root
mount --bind /tmp /mnt/tmp
mount --bind /root /mnt/root
mount -t tmpfs -o size=64m,mode=1777 tmpfs /tmp
mount -t tmpfs -o mode=755 tmpfs /root
while [ "$1" != -- ]; do
    case "$1" in /tmp/*|/root/*)
        [ -d "$1" ] || { mkdir -p "$1"; mount --bind "/mnt$1" "$1"; mount -o remount,ro,bind "$1"; }
    esac
    shift
done
shift
mkdir -p "$runs" 2>/dev/null || true
mount -t tmpfs -o "size=$size,mode=1777" tmpfs "$runs"
umount -l /mnt
mount -o remount,ro,bind /root
mount -o remount,ro,bind /
cd "$PWD"
if touch "$HOME/probe" "$PWD/probe" 2>/dev/null; then echo 'this is not read-only' >&2; exit 1; fi
exec "$@"
"""
WORKS = """
- name: Write a file where modules do
  ansible.builtin.tempfile: {state: file}
- name: Read it from the cluster
  kubernetes.core.k8s_info: {kind: Pod, namespace: "{{ ansible_operator_meta.namespace }}"}
"""
WAITS = """
- name: Wait
  ansible.builtin.wait_for: {path: "{{ go }}", timeout: 120}
- name: Go on
  ansible.builtin.debug: {msg: done}
"""


def _may_mount() -> bool:
    probe = ["unshare", "-m", "mount", "-t", "tmpfs", "tmpfs", "/mnt"]
    try:
        return subprocess.run(probe, check=False, capture_output=True).returncode == 0
    except FileNotFoundError:
        return False


needs_mounts = pytest.mark.skipif(not _may_mount(), reason="needs the right to make mounts of its own")


def _within(project: Project, size: str) -> list[str]:
    runs = project.folder / "runs"
    runs.mkdir(exist_ok=True)
    needed = [ROOT, Path(sys.prefix), Path(sys.base_prefix), Path(sys.base_prefix).resolve(), project.kubeconfig.parent]
    return ["unshare", "-m", "sh", "-c", MOUNTS, "sh", str(runs), size, *map(str, needed), "--"]


NOBODY = "54321"
"""A user that owns no file and is not in the list of users."""


def _as_nobody(project: Project) -> list[str]:
    """As the Deployment of config/manager has it run: any user, group 0, no capability, and none to be had."""
    for path in (project.kubeconfig.parent, project.kubeconfig):
        os.chown(path, int(NOBODY), 0)
    capabilities = ["--bounding-set=-all", "--inh-caps=-all", "--no-new-privs"]
    return ["setpriv", f"--reuid={NOBODY}", "--regid=0", "--clear-groups", *capabilities]


@needs_mounts
def test_any_user_without_capabilities_and_with_two_writable_folders_is_enough(
    project: Project, things: Things
) -> None:
    project.role("thing", WORKS)
    project.role("cleanup", WORKS)
    project.grant([""], ["pods"])
    project.watch("thing", finalizer={"name": "test.example.com/cleanup", "role": "cleanup"})
    within = [*_within(project, "64m"), *_as_nobody(project)]
    nameless = dict.fromkeys(("LOGNAME", "USER", "LNAME", "USERNAME"), "")
    operator = project.start(within=within, environment={"HOME": str(Path.home()), **nameless})
    facts = dict(line.split(":\t", 1) for line in Path(f"/proc/{operator.process.pid}/status").read_text().splitlines())
    assert facts["Uid"].split() == [NOBODY] * 4
    assert facts["Groups"].split() == []
    assert facts["NoNewPrivs"] == "1"
    assert {int(facts[each], 16) for each in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb")} == {0}
    things.create("one", {})
    things.await_success("one")
    things.delete("one")
    things.await_gone("one")
    assert operator.lines(level="error") == []
    assert operator.stop() == 0


@needs_mounts
def test_a_full_disk_fails_the_run_that_meets_it_and_no_more_once_there_is_room(
    project: Project, things: Things
) -> None:
    project.role("thing", WAITS)
    project.watch(
        "thing", retry={"delay": "500ms", "maxDelay": "500ms"}, vars={"go": str(project.folder / "runs" / "go")}
    )
    operator = project.start(within=_within(project, "8m"), environment={"HOME": str(Path.home())})
    inside = Path(f"/proc/{operator.process.pid}/root{project.folder / 'runs'}")
    things.create("one", {})
    wait_until(lambda: "TASK [thing : Wait]" in operator.log, "the run to be on its way")
    _fill(inside / "filler")
    (inside / "go").touch()
    ended = operator.await_line("Run ended", name="one")
    assert "No space left on device" in ended["error"]
    things.create("two", {})
    failure = things.await_condition("two", "Failure")
    assert "No space left on device" in failure["message"]
    (inside / "filler").unlink()
    for name in ("one", "two"):
        things.await_success(name)
    assert operator.stop() == 0


def _fill(path: Path) -> None:
    """Leave no byte on a disk."""
    with path.open("wb", buffering=0) as file, contextlib.suppress(OSError):
        while True:
            file.write(bytes(4096))
