"""Validation of the names in a project, and names that are derived from a kind. Pure.

Owns the rules for domains, groups, versions, kinds and project names. Every rejection suggests a valid name. Imports
nothing of this package except `errors` and `labels`.

Sources: https://kubernetes.io/docs/concepts/overview/working-with-objects/names/,
https://kubernetes.io/docs/tasks/extend-kubernetes/custom-resources/custom-resource-definition-versioning/#version-priority
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from runner.core.watches import selectors
from runner.values.errors import ConfigError

_KIND = re.compile(r"[A-Z][A-Za-z0-9]{0,62}")
_VERSION = re.compile(r"v[1-9][0-9]*((alpha|beta)[1-9][0-9]*)?")
_DNS_LABEL = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?")
_LONGEST_PROJECT = 40
"""Characters. The project's name is the prefix of the names of Deployments and their pods, which have at most 63."""


@dataclass(frozen=True, slots=True)
class Resource:
    """One version of a kind in a project."""

    group: str
    """Without the domain, as in the flag."""
    domain: str
    version: str
    kind: str
    plural: str
    namespaced: bool = True

    @property
    def api_group(self) -> str:
        """API group with the domain."""
        return f"{self.group}.{self.domain}" if self.group else self.domain

    @property
    def singular(self) -> str:
        """The kind in lower case: name of its role and its files, and its singular name."""
        return self.kind.lower()

    @property
    def crd(self) -> str:
        """Name of its CustomResourceDefinition."""
        return f"{self.plural}.{self.api_group}"

    def is_kind_of(self, other: Resource) -> bool:
        """Return True if both are versions of one kind."""
        return (self.api_group, self.kind) == (other.api_group, other.kind)


@dataclass(frozen=True, slots=True)
class NameRule:
    """Rule for a name."""

    allows: Callable[[str], object]
    problem: str
    similar: Callable[[str], str]
    """Returns a name that the rule possibly allows."""

    def __call__(self, name: str) -> str:
        """Return the problem of a name, with a similar valid one; empty if it is valid."""
        if self.allows(name):
            return ""
        close = self.similar(name)
        return f"{self.problem} (did you mean {close}?)" if close and self.allows(close) else self.problem


def plural_of(kind: str) -> str:
    """Return the usual English plural of a kind, in lower case: `Proxy` is `proxies`."""
    word = kind.lower()
    if re.search(r"(s|x|z|ch|sh)$", word):
        return f"{word}es"
    if re.search(r"[^aeiou]y$", word):
        return f"{word[:-1]}ies"
    return f"{word}s"


def problems_of(resource: Resource) -> list[str]:
    """Return the problems of a resource's names, a sentence each."""
    checks: tuple[tuple[str, str, Callable[[str], str]], ...] = (
        ("--domain", resource.domain, domain_problem),
        ("--group", resource.group, group_problem),
        ("--version", resource.version, version_problem),
        ("--kind", resource.kind, kind_problem),
        ("--plural", resource.plural, plural_problem),
    )
    problems = [f"{flag} {value}: {problem}" for flag, value, check in checks if (problem := check(value))]
    if not problems and not selectors.is_subdomain(resource.api_group):
        problems.append(f"--group {resource.group}: {resource.api_group} (with the domain) exceeds 253 characters")
    return problems


def refuse(problems: list[str]) -> None:
    """Raise a ConfigError with a line for each problem, if there is one."""
    if problems:
        raise ConfigError("\n".join(problems))


def _kind(text: str) -> str:
    return "".join(word[0].upper() + word[1:] for word in re.findall(r"[A-Za-z0-9]+", text))


def _version(text: str) -> str:
    digits = re.match(r"[vV]?([1-9][0-9]*)((?:alpha|beta)[0-9]*)?", text)
    close = f"v{digits[1]}{digits[2] or ''}" if digits else "v1alpha1"
    return close if _VERSION.fullmatch(close) else f"{close}1"


def _label(text: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-").lstrip("0123456789-")


def _subdomain(text: str) -> str:
    return ".".join(slug for part in text.lower().split(".") if (slug := re.sub(r"[^a-z0-9]+", "-", part).strip("-")))


domain_problem = NameRule(selectors.is_subdomain, "invalid DNS name", _subdomain)
group_problem = NameRule(
    lambda group: not group or selectors.is_subdomain(group),
    "invalid API group: use lower case letters, digits, '-' and '.'",
    _subdomain,
)
"""Of a group without its domain."""
version_problem = NameRule(
    _VERSION.fullmatch, "invalid API version: use a version such as v1, v1beta2 or v1alpha1", _version
)
kind_problem = NameRule(
    _KIND.fullmatch, "invalid kind: use at most 63 letters and digits, and begin with an upper case letter", _kind
)
plural_problem = NameRule(_DNS_LABEL.fullmatch, "invalid resource name: use lower case letters and digits", _label)
"""Of a plural, or of a short name."""
project_problem = NameRule(
    lambda name: _DNS_LABEL.fullmatch(name) and len(name) <= _LONGEST_PROJECT,
    f"invalid project name: use at most {_LONGEST_PROJECT} lower case letters, digits and '-', a letter first",
    lambda name: _label(name)[:_LONGEST_PROJECT].strip("-"),
)
