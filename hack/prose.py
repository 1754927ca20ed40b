"""Check the English of docs, help texts, docstrings and messages against the rules in hack/prose.toml.

usage: python -m hack.prose [--update] [PATH…]
hack/prose-allowed.toml contains how many findings each part may have: none if it is not listed. --update lowers each
allowance to the current count. PATH prints all findings in files whose path begins with it, also the allowed ones.
"""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
RULES = ROOT / "hack/prose.toml"
ALLOWED = ROOT / "hack/prose-allowed.toml"
LONGEST = 25
_FENCE = re.compile(r"^( *)```.*?^ *```$|<!--.*?-->", re.DOTALL | re.MULTILINE)
_LINK = re.compile(r"\[([^]]*)\]\([^)]*\)")
_CODE = re.compile(r"``[^`]+``|`[^`\n]+`|https?:\S+")
_BLOCK = re.compile(r"\n *\n|\n(?= *(?:[-*|#>]|\d+\.) ?)|(?<=[^\\])\|")
_SENTENCE = re.compile(r"(?<=[.!?:;])[*)]*\s+(?=[A-Z`*])")
_LOG = {"debug", "info", "warning", "error", "exception"}
_HELP = {"help", "description", "epilog"}
_HELP_FILES = {"runner/base/config/settings.py", "runner/cli/text.py"}


class Rule(NamedTuple):
    """A forbidden expression and its replacement."""

    pattern: re.Pattern[str]
    write: str


class Text(NamedTuple):
    """Prose, or a finding in it: its file, first line and the part of the project whose allowance it counts against."""

    file: str
    line: int
    part: str
    text: str


def rules(path: Path = RULES) -> list[Rule]:
    """Return the rules of a file."""
    return [
        Rule(re.compile(pattern, 0 if pattern.startswith("^") else re.IGNORECASE), rule["write"])
        for rule in tomllib.loads(path.read_text())["rule"]
        for pattern in rule["forbid"]
    ]


def sentences(text: str) -> Iterator[tuple[int, str]]:
    """Yield each sentence of Markdown or plain text and its line, without code, comments and link targets."""
    kept = _FENCE.sub(lambda found: "\n" * found[0].count("\n"), text)
    kept = _CODE.sub("`X`", kept)
    kept = _LINK.sub(lambda found: found[1] + "\n" * (found[0].count("\n") - found[1].count("\n")), kept)
    at = 0
    for block in [*_BLOCK.finditer(kept), None]:
        end = block.start() if block else len(kept)
        start = at
        for piece in [*_SENTENCE.finditer(kept, at, end), None]:
            stop = piece.start() if piece else end
            raw = kept[start:stop]
            line = kept.count("\n", 0, start + len(raw) - len(raw.lstrip())) + 1
            plain = re.sub(r"\s+", " ", raw).strip(" \t|>#*-")
            if plain:
                yield line, plain
            start = piece.end() if piece else end
        at = block.end() if block else end


def check(text: Text, known: list[Rule]) -> Iterator[Text]:
    """Yield the findings in a text. Long sentences in docs and help texts count against an allowance of their own."""
    for line, sentence in sentences(text.text):
        at = text.line + line - 1
        for rule in known:
            if found := rule.pattern.search(sentence):
                yield Text(text.file, at, text.part, f"{found[0].strip()!r}: write {rule.write}")
        words = len(re.findall(r"[\w`'/.-]*\w[\w`'/.-]*", sentence))
        if words > LONGEST:
            part = "long sentences" if text.part in {"docs", "help texts"} else text.part
            yield Text(text.file, at, part, f"{words} words, at most {LONGEST}: {sentence[:40]} …")


def pages() -> Iterator[Text]:
    """Yield the pages of docs and the texts that projects get."""
    found = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *ROOT.glob("docs/**/*.md"), *ROOT.glob("examples/*/*.md")]
    for page in sorted(found):
        name = str(page.relative_to(ROOT))
        yield Text(name, 1, "decisions" if name.startswith("docs/decisions/0") else "docs", page.read_text())
    yield Text("CHANGELOG.md", 1, "changelog", (ROOT / "CHANGELOG.md").read_text())


def code() -> Iterator[Text]:
    """Yield help texts, docstrings, and literals in calls of a logger and in exceptions."""
    for file in sorted((ROOT / "runner").rglob("*.py")):
        name = str(file.relative_to(ROOT))
        room = "/".join(name.split("/")[:2])
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
                if docstring := ast.get_docstring(node, clean=False):
                    yield Text(name, node.body[0].lineno, room, docstring)
                continue
            for literal, is_help in _literals(node, name):
                yield Text(name, literal.lineno, "help texts" if is_help else room, _written(literal))


def _literals(node: ast.AST, name: str) -> Iterator[tuple[ast.expr, bool]]:
    if name in _HELP_FILES and isinstance(node, ast.Assign | ast.AnnAssign) and node.value:
        yield from ((each, True) for each in [node.value] if isinstance(each, ast.Constant | ast.JoinedStr))
    if not isinstance(node, ast.Call):
        return
    called = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
    positional = [each for each in node.args if isinstance(each, ast.Constant | ast.JoinedStr)]
    if called == "Option":
        yield from ((each, True) for each in positional)
    elif (called in _LOG or called.endswith("Error")) and positional:
        yield positional[0], False
    yield from ((each.value, True) for each in node.keywords if each.arg in _HELP)


def _written(literal: ast.expr) -> str:
    """Return the text of a literal with its variables as code; empty for an expression that is no literal."""
    if isinstance(literal, ast.JoinedStr):
        return "".join(str(each.value) if isinstance(each, ast.Constant) else "`x`" for each in literal.values)
    return literal.value if isinstance(literal, ast.Constant) and isinstance(literal.value, str) else ""


def main(arguments: list[str]) -> int:
    """Print the findings that are not allowed. Return 1 if there are any."""
    known = rules()
    found: dict[str, list[Text]] = defaultdict(list)
    for finding in (each for text in [*pages(), *code()] for each in check(text, known)):
        found[finding.part].append(finding)
    allowed: dict[str, int] = tomllib.loads(ALLOWED.read_text())
    if "--update" in arguments:
        counts = {part: min(len(found[part]), count) for part, count in sorted(allowed.items())}
        # Empty lines keep changes of two parts from conflicting in a merge.
        ALLOWED.write_text("\n".join(f'"{part}" = {count}\n' for part, count in counts.items() if count))
        return 0
    if arguments:
        shown = sorted(each for part in found.values() for each in part if each.file.startswith(tuple(arguments)))
        print("".join(f"{each.file}:{each.line}: {each.text}\n" for each in shown), end="")
        return 1 if shown else 0
    wrong = sorted(part for part, each in found.items() if len(each) > allowed.get(part, 0))
    for part in wrong:
        print("".join(f"{each.file}:{each.line}: {each.text}\n" for each in found[part]), end="")
        print(f"{part}: {len(found[part])} findings, {allowed.get(part, 0)} allowed")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
