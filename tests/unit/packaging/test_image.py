"""Properties of the image that need no build, such as the files that an arbitrary user of group 0 can write."""

from __future__ import annotations

import re
import stat
import subprocess
import tomllib
from pathlib import Path

import pytest

DOCKERFILE = Path(__file__).resolve().parents[3] / "Dockerfile"
_OF_PROJECTS = ("google-auth", "pyasn1", "pyasn1-modules", "requests-unixsocket")
"""Packages that only projects of the Go operator use, and what they require."""


@pytest.fixture
def instructions() -> list[str]:
    """Each instruction in one line, without comments."""
    lines = [line for line in DOCKERFILE.read_text(encoding="utf-8").splitlines() if not line.startswith("#")]
    return [each for each in "\n".join(lines).replace("\\\n", " ").splitlines() if each]


@pytest.mark.parametrize("umask", ["022", "077"])
def test_group_0_may_write_where_the_user_may_and_others_nowhere(
    instructions: list[str], tmp_path: Path, umask: str
) -> None:
    (makes_home,) = (each for each in instructions if each.startswith("RUN ") and "chmod --recursive" in each)
    # The user of this test cannot change users and owners; the assertions below check them.
    steps = [step.strip() for step in makes_home.removeprefix("RUN ").split("&&")]
    kept = [step for step in steps if not step.startswith(("useradd", "chown"))]
    assert len(steps) - len(kept) == 2
    script = " && ".join(kept).replace("/etc/ansible", f"{tmp_path}/etc")
    home = tmp_path / "home"
    subprocess.run(
        ["sh", "-c", f"umask {umask} && {script}"], env={"HOME": str(home), "PATH": "/usr/bin:/bin"}, check=True
    )
    found = [home, *home.rglob("*")]
    assert home / ".ansible" / "tmp" in found
    for path in found:
        mode = path.stat().st_mode
        assert (mode & stat.S_IRWXG) >> 3 == (mode & stat.S_IRWXU) >> 6
        assert not mode & stat.S_IWOTH


def locked(name: str) -> dict[str, str]:
    """The version of each package that a file of requirements/ holds."""
    text = (DOCKERFILE.parent / "requirements" / name).read_text(encoding="utf-8")
    return dict(re.findall(r"^([a-z0-9-]+)==([^ ;]+)", text, re.MULTILINE))


@pytest.mark.parametrize("core", ["2.18", "2.21"])
def test_the_image_holds_the_versions_that_were_tested(core: str) -> None:
    image = locked(f"image-{core}.txt")
    tested = locked(f"core-{core}.txt")
    for package in ("pip", *_OF_PROJECTS):
        assert image.pop(package), "which no test needs"
    assert image.items() <= tested.items()
    assert image["ansible-core"].startswith(f"{core}.")
    text = (DOCKERFILE.parent / "pyproject.toml").read_text(encoding="utf-8")
    wanted = [re.split(r"[<>=~!]", each)[0] for each in tomllib.loads(text)["project"]["dependencies"]]
    assert set(wanted) <= set(image)


def test_the_base_is_pinned(instructions: list[str]) -> None:
    (base,) = (each for each in instructions if each.startswith("ARG DEBIAN="))
    assert re.search(r"@sha256:[0-9a-f]{64}$", base)
    froms = [each.split()[1] for each in instructions if each.startswith("FROM ")]
    assert froms == ["${DEBIAN}", "${DEBIAN}", "base"]
