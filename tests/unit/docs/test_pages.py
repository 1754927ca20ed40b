"""What the book says can be followed: its links, commands, flags, files, tests, and fragments of YAML."""

from __future__ import annotations

import argparse
import ast
import re
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import SimpleNamespace

import pytest
import yaml

from hack import book
from runner.app.features import FEATURE_FIELDS
from runner.base.config import paths
from runner.base.config.options import REMOVED
from runner.cli import main
from runner.compatibility import validation
from runner.core.watches import declared, watch
from runner.core.watches.watch import LoadedWatches
from tests.kit.places import ROOT

PAGES = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md"))]
NAMES = [str(page.relative_to(ROOT)) for page in PAGES]
FENCE = re.compile(
    r"^(?:<!-- from: (?P<source>\S+) -->\n)?(?P<indent> *)```(?P<language>[a-z]*)[^\n]*\n(?P<text>.*?)^ *```$",
    re.DOTALL | re.MULTILINE,
)
# Flags of other programs that pages name.
OTHERS = {
    "--as": "kubectl",
    "--diff": "ansible-playbook",
    "--field-selector": "kubectl",
}


@dataclass(frozen=True)
class Block:
    page: str
    source: str
    """The file that it is a part of; empty: not said."""
    language: str
    text: str

    def __str__(self) -> str:
        return f"{self.page}: {self.text.splitlines()[0] if self.text else ''}"


@cache
def blocks(language: str) -> list[Block]:
    return [
        Block(name, found["source"] or "", found["language"], textwrap.dedent(found["text"]))
        for name, page in zip(NAMES, PAGES, strict=True)
        for found in FENCE.finditer(page.read_text())
        if found["language"] == language
    ]


@cache
def prose(page: Path) -> str:
    return FENCE.sub("", page.read_text())


@cache
def anchors(page: Path) -> set[str]:
    """Anchors of headings that GitHub and the book agree on."""
    found: set[str] = set()
    for title in re.findall(r"^#+ (.+)$", prose(page), re.MULTILINE):
        plain = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", title).replace("`", "")
        github = re.sub(r"[^\w\- ]", "", plain.strip().lower()).replace(" ", "-")
        if github.isascii() and "--" not in github:
            found.add(github)
    return found


@pytest.mark.parametrize("page", PAGES, ids=NAMES)
def test_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"(?<!`)\[[^]\n]*\]\(([^)\s]+)\)", prose(page)):
        if re.match(r"https?:", target):
            continue
        file, _, anchor = target.partition("#")
        there = (page.parent / file).resolve() if file else page
        assert there.exists(), f"{target} is not there"
        assert not anchor or anchor in anchors(there), f"{target} has no such heading"


def commands(line: str) -> Iterator[str]:
    """Calls of ansible-operator in a line."""
    for call in re.findall(r"(?:^|[;&|(] *|-- |or: )ansible-operator((?: +[\w./:=*,'{}$-]+)+)", line):
        yield call.strip()


@cache
def whole() -> argparse.ArgumentParser:
    return main._parser()[0]


def parser_of(words: list[str]) -> tuple[argparse.ArgumentParser, str]:
    """The parser of a command, and the word that is no command; empty where all are."""
    parser = whole()
    for word in words:
        subs = [each for each in parser._actions if isinstance(each, argparse._SubParsersAction)]
        if not subs:
            break
        if word.startswith("-"):
            break
        if word not in subs[0].choices:
            return parser, word
        parser = subs[0].choices[word]
    return parser, ""


def all_flags(parser: argparse.ArgumentParser) -> set[str]:
    found = set(parser._option_string_actions)
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for sub in action.choices.values():
                found |= all_flags(sub)
    return found


@pytest.mark.parametrize("page", PAGES, ids=NAMES)
def test_commands_and_their_flags_exist(page: Path) -> None:
    text = page.read_text()
    code = [block["text"] for block in FENCE.finditer(text) if block["language"] in {"sh", ""}]
    for line in "\n".join([*code, *re.findall(r"`([^`\n]+)`", prose(page))]).splitlines():
        for call in commands(re.sub(r"\s#.*", "", line)):
            if call.startswith("COMMAND"):
                continue
            words, _, behind = call.partition(" -- ")
            parser, unknown = parser_of(words.split())
            assert not unknown, f"{call}: {unknown!r} is no command"
            flags = re.findall(r"(?<!\S)--?[a-z][\w-]*", words)
            assert set(flags) <= set(parser._option_string_actions), call
            run, _ = parser_of(["run"])
            assert set(re.findall(r"(?<!\S)--[\w-]+", behind)) <= set(run._option_string_actions), call
    known = all_flags(whole()) | OTHERS.keys() | {"--flag", "--zap-", *(f"--{name}" for name in REMOVED)}
    assert [flag for flag in re.findall(r"`(--[a-z][\w-]+)[^`\n]*`", prose(page)) if flag not in known] == []


# A test does all that these pages say, as it stands there.
DONE = ("docs/guide.md", "docs/database.md")

# YAML that is neither a part of a watches file nor of a role, with the reason why it is right.
OTHER_YAML = {
    "ansible_operator_run:": "shows a variable; tests/integration/operator/test_variables.py reads it",
    "kind: Kustomization": "Flux's; what it reads of status is shown by tests/kit/kstatus.py",
    "data:": "Argo CD's; run by tests/unit/status/test_kstatus.py",
    "images:": "ansible-builder's; its version 3.2 built it, and the image ran a role in a pod",
    "kind: NetworkPolicy": "Kubernetes'; tests/unit/scaffold/test_pods.py compares it with the labels and the port",
    "kind: Dashboard": "an object; tests/e2e/test_readme.py creates it",
    "kind: WebServer": "an object; tests/features/hosts/integration/test_hosts.py creates such ones",
    "status:": "results of hosts; tests/features/hosts/integration/test_hosts.py reads them",
    "kind: Role": "a rule; tests/integration/operator/test_service_account.py grants it",
}


def test_modules_and_metrics_that_are_named_exist() -> None:
    text = "".join(prose(page) for page in PAGES)
    modules = ROOT / "runner/collections/ansible_collections/operator_sdk/util/plugins/modules"
    assert set(re.findall(r"operator_sdk\.util\.([a-z0-9_]+)", text)) <= {file.stem for file in modules.glob("*.py")}
    code = "".join(file.read_text() for file in (ROOT / "runner").rglob("*.py"))
    named = set(re.findall(r"`((?:ansible_operator|workqueue|controller_runtime|resource|leader)_[a-z_]+[a-z])", text))
    # The library adds these endings.
    assert [name for name in named if name.removesuffix("_total").removesuffix("_info") not in code] == []


def test_blocks_with_a_source_are_parts_of_that_file() -> None:
    parts = [FENCE.match(found[0]) for page in PAGES for found in FENCE.finditer(page.read_text())]
    taken = [(part["source"], textwrap.dedent(part["text"])) for part in parts if part and part["source"]]
    assert taken
    assert [source for source, text in taken if not indented_in(text, (ROOT / source).read_text())] == []


def in_watches(fragment: object) -> bool:
    if isinstance(fragment, dict):
        return set(fragment) <= {each.name for each in declared.with_features(FEATURE_FIELDS)[""]}
    return isinstance(fragment, list) and all(isinstance(each, dict) and "name" not in each for each in fragment)


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    project = tmp_path_factory.mktemp("project")
    for role in ("memcached", "memcached_finalizer", "cleanup", "webserver", "dashboard"):
        (project / "roles" / role / "tasks").mkdir(parents=True)
    for file in ("playbooks/site.yml", "playbooks/cleanup.yml", "inventories/base.yml"):
        (project / file).parent.mkdir(exist_ok=True)
        (project / file).write_text("[]\n")
    return project


def loaded(project: Path, text: str) -> LoadedWatches:
    (project / "watches.yaml").write_text(text)
    return watch.load(
        Path("watches.yaml"), environ={}, cwd=project, roles_path="", collections_path="", features=FEATURE_FIELDS
    )


@pytest.mark.parametrize(
    "block", [each for each in blocks("yaml") if not each.source and each.page not in DONE], ids=str
)
def test_yaml_without_a_source_is_valid_for_the_operators_parsers(block: Block, project: Path) -> None:
    first = next(line for line in block.text.splitlines() if not line.startswith("#"))
    fragment = next(yaml.safe_load_all(block.text))
    if in_watches(fragment):
        head = "- version: v1\n  kind: A\n  role: memcached\n"
        text = block.text if isinstance(fragment, list) else head + textwrap.indent(block.text, "  ")
        assert loaded(project, text).warnings == ()
    elif isinstance(fragment, list):
        tasks = project / "roles/memcached/tasks/main.yml"
        tasks.write_text(block.text)
        (project / "watches.yaml").write_text("- {version: v1, kind: A, role: memcached}\n")
        places = paths.search_path(cwd=project, roles_path="", collections_path="", environ={})
        problems = validation.validate(
            Path("watches.yaml"), environ={}, cwd=project, search_path=places, features=FEATURE_FIELDS
        ).problems
        assert (problems.errors, problems.warnings) == ([], [])
    elif isinstance(fragment, dict) and fragment.get("kind") == "Memcached":
        crd = yaml.safe_load((ROOT / "config/crd/bases/cache.example.com_memcacheds.yaml").read_text())
        written = str(fragment["apiVersion"]).rpartition("/")[2]
        (version,) = (each for each in crd["spec"]["versions"] if each["name"] == written)
        schema = version["schema"]["openAPIV3Schema"]["properties"]["spec"]
        assert fragment["apiVersion"] == f"{crd['spec']['group']}/{version['name']}"
        assert fragment["spec"].keys() <= schema["properties"].keys()
    else:
        assert any(line.startswith(tuple(OTHER_YAML)) for line in block.text.splitlines()), first


def test_no_reader_sees_a_placeholder_that_the_release_replaces() -> None:
    published = [*(ROOT / "config").rglob("*.yaml"), *(ROOT / "runner/sdk").rglob("*.yaml"), ROOT / "mkdocs.yml"]
    files = [*(page for page in PAGES if page.name != "RELEASING.md"), *published]
    assert [str(file) for file in files if re.search("OWNER[./]|[@/]OWNER", file.read_text())] == []


def indented_in(text: str, there: str) -> bool:
    """Whether a file holds the text, all of it further to the right by the same."""
    return any(textwrap.indent(text, " " * width) in there for width in (0, 2, 4, 6, 8, 10, 12))


def test_a_link_whose_text_is_a_file_name_shows_the_heading_that_it_leads_to_on_the_site() -> None:
    page = SimpleNamespace(file=SimpleNamespace(abs_src_path=str(ROOT / "docs/status.md")))
    text = "[runs.md](runs.md), [runs.md](runs.md#request-a-run), [why](runs.md), [runs.md](runs.md#none)"
    assert book.on_page_markdown(text, page=page) == (
        "[Runs: triggers, timeouts and retries](runs.md), [Request a run](runs.md#request-a-run), "
        "[why](runs.md), [runs.md](runs.md#none)"
    )
    for name, path in zip(NAMES, PAGES, strict=True):
        if name.startswith("docs/"):
            page.file.abs_src_path = str(path)
            assert re.findall(r"\[[\w./-]+\.md\]\([^)]*\)", book.on_page_markdown(path.read_text(), page=page)) == []


ARCHITECTURE = ROOT / "docs/architecture.md"
ROW = re.compile(r"^\| \d+ \| \[([^]]+)\]\(\.\./([^)]+)\) \| ([^|]+) \|", re.MULTILINE)


def steps() -> list[tuple[str, str, list[str]]]:
    return [
        (text, file, re.findall(r"`([^`]+)`", names)) for text, file, names in ROW.findall(ARCHITECTURE.read_text())
    ]


def symbols(file: Path) -> set[str]:
    found: set[str] = set()
    for node in ast.parse(file.read_text()).body:
        if isinstance(node, ast.ClassDef):
            found |= {
                f"{node.name}.{each.name}"
                for each in node.body
                if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef)
            }
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            found.add(node.name)
    return found


def test_each_file_and_function_on_the_way_of_an_event_exists() -> None:
    found = steps()
    assert len(found) == len(re.findall(r"^\| \d+ \|", ARCHITECTURE.read_text(), re.MULTILINE))
    for text, file, names in found:
        assert text == file
        assert names, f"{file}: names no function"
        assert set(names) <= symbols(ROOT / file), file


def test_each_package_is_described() -> None:
    groups = {"base", "core", "engines", "features", "sdk"}
    tops = {path.parent.name for path in (ROOT / "runner").glob("*/__init__.py")} - groups
    below = {f"{name}/{path.parent.name}" for name in groups for path in (ROOT / "runner" / name).glob("*/__init__.py")}
    table = ARCHITECTURE.read_text().partition("## Packages")[2].partition("## ")[0]
    described = {
        name for row in re.findall(r"^\| (`[^|]+) \|", table, re.MULTILINE) for name in re.findall(r"`([\w/]+)`", row)
    }
    assert described == tops | below


THREATS = ROOT / "docs/threats.md"
MASKING = ROOT / "docs/masking.md"
FILE = re.compile(r"`([\w/]*test_\w+\.py|tests/[\w/]+)`")
NAME = re.compile(r"`(test_\w+)`")


def files(text: str) -> list[Path]:
    """Return the files and folders of tests that a text names."""
    return [ROOT / name for name in FILE.findall(text)]


def functions(file: Path) -> set[str]:
    return {
        node.name
        for node in ast.walk(ast.parse(file.read_text()))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    }


def missing(text: str) -> list[str]:
    """Return the tests that a text names and that do not exist."""
    named = files(text)
    absent = [str(file.relative_to(ROOT)) for file in named if not file.exists()]
    known = {name for file in named if file.is_file() for name in functions(file)}
    return [*absent, *(name for name in NAME.findall(text) if name not in known)]


@pytest.mark.parametrize(
    "block",
    [part for page in (THREATS, MASKING) for part in re.split(r"\n\n|\n(?=\|)", page.read_text()) if "test_" in part],
)
def test_each_test_that_is_named_exists(block: str) -> None:
    assert missing(block) == []
