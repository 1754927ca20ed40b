"""GitHub's workflows are well formed, and call what there is. They are not run here."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import yaml

from tests.kit.go_programs import get_actionlint, get_helm
from tests.kit.places import ROOT
from tests.kit.processes import captured

FOLDER = ROOT / ".github/workflows"


def lint(*files: Path) -> tuple[int, str]:
    program = get_actionlint(os.environ, sys.stderr)
    done = captured(program, "-no-color", *files, cwd=ROOT)
    return done.returncode, done.stdout + done.stderr


def test_workflows_are_well_formed() -> None:
    assert lint(*FOLDER.glob("*.yml")) == (0, "")


def test_an_invalid_workflow_is_reported(tmp_path: Path) -> None:
    text = (FOLDER / "test.yml").read_text()
    broken = tmp_path / "test.yml"
    broken.write_text(text.replace("github.ref }}", "githib.ref }}"))
    code, reported = lint(broken)
    assert code == 1
    assert 'undefined variable "githib"' in reported


def test_pages_are_published_on_a_new_branch_then_added_to_it_and_unchanged_files_make_no_commit(
    tmp_path: Path,
) -> None:
    remote, clone, files = tmp_path / "remote.git", tmp_path / "clone", tmp_path / "files"
    helm = get_helm(os.environ, sys.stderr)
    identity = {
        f"GIT_{who}_{what}": f"{what.lower()}@example.com"
        for who in ("AUTHOR", "COMMITTER")
        for what in ("NAME", "EMAIL")
    }
    environ = {**os.environ, **identity, "PATH": f"{helm.parent}{os.pathsep}{os.environ['PATH']}"}

    def run(*command: str | Path, cwd: Path = clone) -> str:
        done = captured(*command, cwd=cwd, env=environ)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def publish(version: str) -> list[str]:
        (files / "chart/Chart.yaml").write_text(f"apiVersion: v2\nname: sample\nversion: {version}\n")
        if not (files / f"sample-{version}.tgz").exists():
            run(helm, "package", files / "chart", "--destination", files)
        run(ROOT / "hack/publish-pages", files, "https://example.com/pages", f"Charts of {version}")
        return run("git", "--git-dir", remote, "log", "--format=%s", "gh-pages").splitlines()

    run("git", "init", "--quiet", "--bare", remote, cwd=tmp_path)
    run("git", "clone", "--quiet", remote, clone, cwd=tmp_path)
    (clone / "README.md").write_text("main\n")
    for command in (["add", "."], ["commit", "--quiet", "--message=main"], ["push", "--quiet", "origin", "HEAD:main"]):
        run("git", *command)
    (files / "chart").mkdir(parents=True)
    (files / "book").mkdir()
    (files / "book/index.html").write_text("book\n")
    run("tar", "-czf", "book.tar.gz", "-C", "book", ".", cwd=files)

    assert publish("0.1.0") == ["Charts of 0.1.0"]
    assert publish("0.1.0") == ["Charts of 0.1.0"]
    assert publish("0.2.0") == ["Charts of 0.2.0", "Charts of 0.1.0"]
    found = run("git", "--git-dir", remote, "ls-tree", "-r", "--name-only", "gh-pages").split()
    assert found == ["book/index.html", "charts/sample-0.1.0.tgz", "charts/sample-0.2.0.tgz", "index.yaml"]
    index = yaml.safe_load(run("git", "--git-dir", remote, "show", "gh-pages:index.yaml"))
    urls = {each["version"]: each["urls"] for each in index["entries"]["sample"]}
    assert urls == {
        version: [f"https://example.com/pages/charts/sample-{version}.tgz"] for version in ("0.1.0", "0.2.0")
    }
