"""Dockerfiles of operators: instructions with lines, findings, and the translated file. Pure."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import PurePosixPath

from runner.compatibility.finding import OLD_CORE, Finding
from runner.sdk.migrate import packages
from runner.sdk.scaffold.project import BASE_IMAGE

TARGET_IMAGE = f"{BASE_IMAGE}-core{OLD_CORE}"
"""Base image with the Go operator's ansible-core."""
_OURS = BASE_IMAGE.rpartition("/")[2].partition(":")[0]
_GO_IMAGE = re.compile(r"(?:^|[/-])ansible(?:-rhel\d+)?-operator(?:-rhel\d+)?(?:-2\.11-preview)?(?:[:@]|$)")
_OPENSHIFT = re.compile(r"(?:^|/)ose-")
"""Images whose tags are versions of OpenShift, not of the SDK."""
_WITH_DOCUMENTS = {"RUN", "COPY", "ADD"}
_HEREDOC = re.compile(r"<<-?\s*([\"']?)([A-Za-z_]\w*)\1")
_GO_VERSION = re.compile(r":v?(\d+)\.(\d+)(?:\.(\d+))?")
_CORES = (
    ((0, 0, 0), "2.9"),
    ((1, 31, 0), "2.15"),
    ((1, 36, 0), "2.17"),
    ((1, 37, 1), "2.18"),
)
"""First version of the Go operator's image with each Ansible (its Pipfile)."""
_PROGRAM = re.compile(r"(?<![\w/.-])(pip|python)(3\.\d+|2\.7)(?![\w.])")
_PROVIDED = "3.12"
"""Version of Python in names of programs that the image provides."""
_SITE_PACKAGES = re.compile(r"/usr(?:/local)?/lib(?:64)?/python3\.(?!12/)\d+/site-packages")
_CONFIGS = {
    "/etc/ansible/ansible.cfg",
    *(f"{home}/.ansible.cfg" for home in ("/opt/ansible", "$HOME", "${HOME}", "~")),
}
_RPM_FILES = re.compile(r"/etc/yum\.repos\.d|/etc/pki/rpm-gpg|/etc/dnf/")


@dataclass(frozen=True, slots=True)
class Instruction:
    """An instruction of a Dockerfile."""

    name: str
    """In upper case."""
    value: str
    """With line breaks, without comments."""
    first: int
    """Line, counted from 1."""
    last: int


@dataclass(frozen=True, slots=True)
class Dockerfile:
    """A Dockerfile. `base`: the instruction with the operator's base image; None if it is not an operator's."""

    file: str
    text: str
    instructions: tuple[Instruction, ...]
    base: Instruction | None
    image: str
    """Base image."""
    stage: int
    """Line of the FROM with the base image; 0 without one."""

    @property
    def is_migrated(self) -> bool:
        """True if the base image is of this distribution."""
        return self.image.rpartition("/")[2].startswith(_OURS)

    @property
    def core(self) -> str:
        """ansible-core of the base image; empty if it is unknown."""
        if self.is_migrated:
            match = re.search(r"-core(\d+\.\d+)$", self.image)
            return match[1] if match else ""
        version = None if _OPENSHIFT.search(self.image) else _GO_VERSION.search(self.image)
        numbers = tuple(int(part or 0) for part in version.groups()) if version else ()
        if "2.11-preview" in self.image:
            return "2.11"
        return [core for first, core in _CORES if first <= numbers][-1] if numbers else ""


def parse(file: str, text: str) -> Dockerfile:
    """Return a parsed Dockerfile."""
    instructions = tuple(_instructions(text))
    arguments: dict[str, tuple[Instruction, str]] = {}
    base, image, stage = None, "", 0
    for instruction in instructions:
        if instruction.name == "ARG":
            name, _, value = instruction.value.partition("=")
            arguments[name.strip()] = (instruction, value.strip().strip("\"'"))
        elif instruction.name == "FROM":
            words = [word for word in instruction.value.split() if not word.startswith("--")]
            reference = re.fullmatch(r"\$\{?(\w+)\}?", words[0]) if words else None
            holder, named = (
                arguments.get(reference[1], (instruction, ""))
                if reference
                else (instruction, words[0] if words else "")
            )
            if _GO_IMAGE.search(named) or named.rpartition("/")[2].startswith(_OURS):
                base, image, stage = holder, named, instruction.first
    return Dockerfile(file, text, instructions, base, image, stage)


def _instructions(text: str) -> Iterator[Instruction]:
    name, parts, first, ends = "", list[str](), 0, list[str]()
    lines = text.splitlines()
    for number, line in enumerate(lines, start=1):
        is_document = bool(ends)
        if not is_document and (line.lstrip().startswith("#") or (not line.strip() and not parts)):
            continue
        if not parts:
            name, _, line = line.strip().partition(" ")  # noqa: PLW2901 - the rest of the line is the first part
            first = number
        parts.append(line)
        if is_document:
            ends = ends[line.strip() == ends[0] :]
        elif name.upper() in _WITH_DOCUMENTS:
            ends = [match[2] for match in _HEREDOC.finditer(line)]
        if number == len(lines) or not (ends or (not is_document and line.rstrip().endswith("\\"))):
            yield Instruction(name.upper(), "\n".join(parts).strip(), first, number)
            parts, ends = [], []


def findings(parsed: Dockerfile) -> Iterator[Finding]:
    """Yield the lines of an operator's Dockerfile that need a change for the new base image."""
    if parsed.base is not None and not parsed.is_migrated:
        message = f"the base image is the Go operator's, {parsed.image}"
        fix = f"use {TARGET_IMAGE}, from your registry"
        yield Finding(parsed.file, parsed.base.first, "base-image", message, fix, is_automatic=True)
    for instruction in parsed.instructions:
        yield from _of_instruction(parsed.file, instruction)


def _of_instruction(file: str, instruction: Instruction) -> Iterator[Finding]:
    value, line = instruction.value, instruction.first
    if instruction.name == "RUN" and packages.is_foreign(f"{value} "):
        yield _packages(file, instruction)
    if instruction.name == "RUN" and (program := _program(value)):
        fix = f"use {program[1]}3, as the image has one version of Python"
        yield Finding(file, line, "python-program", f"the image has no {program[0]}", fix, is_automatic=True)
    if instruction.name in {"RUN", "COPY", "ADD", "ENV"} and (path := _SITE_PACKAGES.search(value)):
        message = f"{path[0]} is not the folder of Python packages in the image"
        fix = "find the folder with `python3 -c 'import sysconfig; print(sysconfig.get_path(\"purelib\"))'`"
        yield Finding(file, line, "site-packages", message, fix)
    if instruction.name in {"COPY", "ADD"} and (path := _RPM_FILES.search(value)):
        message = f"{path[0]} configures RPM repositories, which the Debian image does not use"
        yield Finding(file, line, "rpm-repository", message, "delete the line, and use packages of Debian")


def _packages(file: str, instruction: Instruction) -> Finding:
    translated = _translated(instruction)
    if translated is None:
        message = "commands for RPM packages, which the Debian image does not have"
        fix = "write it with apt-get and names of Debian packages, or delete it (docs: packaging.md)"
        return Finding(file, instruction.first, "rpm-packages", message, fix)
    message = "the image is based on Debian: it has apt-get, not dnf, microdnf or yum"
    fix = "write: RUN " + " ".join(translated.text.replace("\\\n", " ").split())
    if translated.uncertain:
        fix += f"; check the names of packages: {', '.join(translated.uncertain)}"
    return Finding(file, instruction.first, "rpm-packages", message, fix, is_automatic=True)


def _translated(instruction: Instruction) -> packages.Translation | None:
    """Return the commands for Debian; None if they must be written by hand, as those in a here-document."""
    return None if _HEREDOC.search(instruction.value) else packages.translate(instruction.value)


def _program(value: str) -> tuple[str, str] | None:
    """Return a program with the version of Python in its name, and its name without; None if there is none."""
    for match in _PROGRAM.finditer(value):
        if match[2] != _PROVIDED:
            return match[0], match[1]
    return None


def command_words(parsed: Dockerfile) -> list[tuple[int, str]]:
    """Return the words of the last ENTRYPOINT and CMD, with their lines."""
    commands: dict[str, list[tuple[int, str]]] = {}
    for instruction in parsed.instructions:
        if instruction.name in {"ENTRYPOINT", "CMD"}:
            commands[instruction.name] = [(instruction.first, word) for word in _words(instruction.value)]
    return [word for words in commands.values() for word in words]


def environment(parsed: Dockerfile) -> Iterator[tuple[int, str]]:
    """Yield the variables of ENV as `NAME=value`, with their lines."""
    for instruction in parsed.instructions:
        if instruction.name == "ENV":
            yield from assignments(instruction)


def assignments(instruction: Instruction) -> Iterator[tuple[int, str]]:
    """Yield the words `NAME=value` of an instruction, with its line."""
    try:
        words = shlex.split(instruction.value.replace("\\\n", " "))
    except ValueError:
        return  # the build reports it
    yield from ((instruction.first, word) for word in words if "=" in word)


def copies(parsed: Dockerfile) -> Iterator[tuple[Instruction, tuple[str, ...], str]]:
    """Yield the instructions that copy files of the project, with sources and target; variables are not expanded."""
    for instruction in parsed.instructions:
        if (
            instruction.name in {"COPY", "ADD"}
            and "--from=" not in instruction.value
            and not _HEREDOC.search(instruction.value)
        ):
            value = re.sub(r"^(\s*--\S+)+", "", instruction.value.replace("\\\n", " ")).strip()
            *sources, target = _words(value) or [""]
            if sources:
                yield instruction, tuple(sources), target


def ansible_config(parsed: Dockerfile) -> str:
    """Return the file of the project that is the image's ansible.cfg; empty if there is none."""
    for _, sources, path in copies(parsed):
        target = path.rstrip("/")
        for source in sources:
            if target in _CONFIGS or (target == "/etc/ansible" and PurePosixPath(source).name == "ansible.cfg"):
                return source
    return ""


def _words(value: str) -> list[str]:
    plain = value.replace("\\\n", " ")
    try:
        parsed = json.loads(plain)
    except ValueError:
        return plain.split()
    return [str(word) for word in parsed] if isinstance(parsed, list) else []


def migrated(parsed: Dockerfile, image: str) -> str:
    """Return the text with the base image `image`, and with translated commands."""
    lines = parsed.text.splitlines(keepends=True)
    for instruction in reversed(parsed.instructions):
        before = "".join(lines[instruction.first - 1 : instruction.last])
        after = before.replace(parsed.image, image) if instruction is parsed.base and not parsed.is_migrated else before
        if instruction.name == "RUN":
            after = _migrated_run(instruction, after)
        lines[instruction.first - 1 : instruction.last] = after.splitlines(keepends=True)
    return "".join(lines)


def _migrated_run(instruction: Instruction, text: str) -> str:
    if packages.is_foreign(f"{instruction.value} "):
        translated = _translated(instruction)
        if translated is not None:
            comments = [line for line in text.splitlines(keepends=True) if line.lstrip().startswith("#")]
            text = "".join(comments) + (f"RUN {translated.text}\n" if translated.text else "")
    return _PROGRAM.sub(lambda match: match[0] if match[2] == _PROVIDED else f"{match[1]}3", text)
