"""Resources that a tenant could write to harm others, and that the API server accepts.

`resources` generates them from a seed. The manifests are JSON text, since no encoder of Python writes 5,000 levels.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson
from ansible import constants
from ansible.vars.reserved import get_reserved_names
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st

from runner.core.engine.params import is_reserved, snake_case
from runner.core.kube.decode import MAX_DEPTH
from runner.core.reconcile.attempt import MAX_RUNNER_ARTIFACTS, RECONCILE_PERIOD, RUN_TIMEOUT, VERBOSITY
from runner.values.objects import PAUSED, PREFIX, RUN_REQUESTED

FORGED = "forged by a tenant"
"""In a text that looks like a line of the operator's log."""

_MAGIC = (
    *("hostvars", "groups", "group_names", "inventory_hostname", "inventory_dir", "omit", "play_hosts", "vars"),
    *("playbook_dir", "role_path", "role_name", "environment", "ansible_facts", "ansible_local", "ansible_env"),
)
_ALIKE = 10
_DEPTHS = (MAX_DEPTH - 20, MAX_DEPTH + 54, 300, 1_100, 5_000)
_BIG = tuple(
    (kind, size) for size in (1_000_000, 1 << 19, 1 << 16) for kind in ("keys", "value", "reserved", "key", "below")
)
_BIG_EVERY = 10
"""Of so many resources one is big. The API server takes seconds to create one with 60,000 keys."""
_SAME_WHEN_NORMALIZED = (
    "\u00e9",
    "e\u0301",
    "\ufb01",
    "fi",
    "\u212a",
    "K",
    "\uff21",
    "A",
    "\u0130",
    "i\u0307",
    "\u1e9e",
)
_MARKS = {"__ansible_unsafe": "x", "__ansible_vault": "x", "__ansible_type": "_AnsibleTaggedStr", "_ansible_no_log": 1}


@dataclass(frozen=True, slots=True)
class Hostile:
    """One resource."""

    name: str
    manifest: bytes
    is_too_deep: bool
    """Whether no run can receive it."""
    reserved: tuple[str, ...]
    """Variables of its spec that no role gets."""


def special_names() -> list[str]:
    """Return every name that Ansible treats specially, in snake_case and in camelCase."""
    names = {name for each in constants.MAGIC_VARIABLE_MAPPING.values() for name in each}
    names |= {*constants.COMMON_CONNECTION_VARS, *get_reserved_names(), *_MAGIC}
    camel = (re.sub(r"_([a-z0-9])", lambda found: found[1].upper(), name) for name in names)
    return sorted({*names, *camel})


def resources(count: int, number: int, canary: Path) -> list[Hostile]:
    """Generate resources; each special name is in at least one. No file may ever appear in the folder `canary`."""
    drawn: list[_Drawn] = []
    while len(drawn) < count:
        drawn += _draw(f"{number}/{len(drawn)}", canary)
    names = special_names()
    return [_resource(one, index, names[index::count], _size(index, number)) for index, one in enumerate(drawn[:count])]


def _size(index: int, number: int) -> tuple[str, int]:
    """Return what makes a resource big, and how many bytes; of consecutive seeds or big resources, each in turn."""
    turn, rest = divmod(index, _BIG_EVERY)
    return _BIG[(turn + number - 1) % len(_BIG)] if rest == _BIG_EVERY - 1 else ("", 0)


def _draw(number: str, canary: Path) -> list[_Drawn]:
    """Draw a few resources. Hypothesis varies earlier examples, so that many of one seed are alike."""
    drawn: list[_Drawn] = []

    @seed(number)
    @settings(
        max_examples=_ALIKE,
        database=None,
        deadline=None,
        derandomize=False,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(_resources(canary))
    def generate(one: _Drawn) -> None:
        drawn.append(one)

    generate()
    return drawn


def _payloads(canary: Path) -> list[Any]:
    """Return values that create a file if Ansible, Jinja, YAML or a shell evaluates them."""
    touch = f"touch {canary}/file"
    return [
        f"/bin/sh -c '{touch}' #",
        f"-o ProxyCommand='{touch}'",
        f"{{{{ lookup('pipe', '{touch}') }}}}",
        f"{{% set x = cycler.__init__.__globals__.os.system('{touch}') %}}",
        f"{{{{ q('ansible.builtin.pipe', '{touch}') }}}}",
        f"!!python/object/apply:os.system ['{touch}']",
        f'!unsafe \'{{{{ lookup("pipe", "{touch}") }}}}\'',
        f"$({touch})`{touch}`;{touch}\n{touch}",
        f"../../../../..{canary}/file",
        "ssh",
        {"__ansible_unsafe": f"{{{{ lookup('pipe', '{touch}') }}}}"},
    ]


def _leaves(canary: Path) -> st.SearchStrategy[Any]:
    text = st.text(st.characters(exclude_categories=["Cs"]), max_size=40)
    control = st.text(st.characters(categories=["Cc", "Cf", "Zl", "Zp"]), min_size=1, max_size=20)
    numbers = st.sampled_from([2**53 + 1, -(2**53) - 1, 2**63 - 1, -(2**63), 2**64, 10**30, 1e308, -0.0, 5e-324])
    forged = f'\n{{"level":"error","msg":"{FORGED}","logger":"runner.app"}}\n\x1b]0;x\x07\x1b[2J'
    empty: list[Any] = [None, "", [], {}, False, 0, " ", "\x00", "null", "~", forged, _MARKS]
    return st.one_of(st.sampled_from([*_payloads(canary), *empty]), numbers, text, control)


@dataclass(frozen=True, slots=True)
class _Drawn:
    """What is left to chance in one resource."""

    spec: dict[str, Any]
    values: list[Any]
    """Values of special names."""
    nesting: tuple[str, str, int]
    annotations: dict[str, str]
    has_long_name: bool


def _resources(canary: Path) -> st.SearchStrategy[_Drawn]:
    keys = st.one_of(
        st.sampled_from([*_SAME_WHEN_NORMALIZED, *_MARKS, "", "{{ x }}", "a.b", "a/b", "\n", "URLs", "aB", "a_b"]),
        st.text(st.characters(exclude_categories=["Cs"]), max_size=12),
    )
    leaves = _leaves(canary)
    values = st.recursive(
        leaves,
        lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(keys, inner, max_size=3)),
        max_leaves=8,
    )
    pairs = st.sampled_from([('{"a":', "}"), ("[", "]"), ('[{"":', "}]")])
    return st.builds(
        _Drawn,
        spec=st.dictionaries(keys, values, max_size=5),
        values=st.lists(leaves, min_size=4, max_size=4),
        nesting=st.tuples(pairs, st.sampled_from([*[0] * 10, *_DEPTHS])).map(lambda pair: (*pair[0], pair[1])),
        annotations=_annotations(),
        has_long_name=st.sampled_from([*[False] * 9, True]),
    )


def _resource(one: _Drawn, index: int, names: Sequence[str], big: tuple[str, int]) -> Hostile:
    spec = {"text": one.values[0], **one.spec}
    spec |= {name: one.values[number % len(one.values)] for number, name in enumerate(names)}
    parts = [orjson.dumps(name).decode() + ":" + _json(value) for name, value in spec.items()]
    kind, size = big
    opening, closing, levels = one.nesting
    if size:
        parts.append(_big(kind, size))
    elif levels:
        times = levels // len(closing)
        parts.append('"tooDeep":' + opening * times + "1" + closing * times)
    name = f"h-{index}"
    if one.has_long_name:
        name += "-" + "x" * (252 - len(name))
    head = '{"apiVersion":"test.example.com/v1","kind":"Thing","metadata":'
    manifest = (
        head + _json({"name": name, "annotations": one.annotations}) + ',"spec":{' + ",".join(parts) + "}}"
    ).encode()
    reserved = {snake_case(name) for name in spec if is_reserved(snake_case(name), frozenset())}
    return Hostile(name, manifest, not size and levels > MAX_DEPTH, tuple(sorted(reserved)))


def _annotations() -> st.SearchStrategy[dict[str, str]]:
    names = [RECONCILE_PERIOD, RUN_TIMEOUT, VERBOSITY, MAX_RUNNER_ARTIFACTS, PAUSED, RUN_REQUESTED]
    names += [PREFIX + name for name in ("adopt", "inject-owner", "last-run", "unknown")]
    names += ["operator-sdk/primary-resource", "operator-sdk/primary-resource-type"]
    odd = [
        "off",
        "1ns",
        "0",
        "-1",
        "9" * 400,
        "7",
        "true",
        "TRUE",
        "",
        " ",
        "1h",
        "\x00",
        "1e9h",
        "\u0661",
        "../..",
        "{{ 1 }}",
    ]
    values = st.one_of(st.sampled_from(odd), st.text(st.characters(exclude_categories=["Cs"]), max_size=20))
    return st.dictionaries(st.sampled_from(names), values, max_size=2)


def _big(kind: str, size: int) -> str:
    """Return large fields of a spec."""
    if kind == "value":
        return '"tooBig":"' + "x{{" * (size // 3) + '"'
    if kind == "key":
        return '"tooBig":{"' + "aB" * (size // 2) + '":1}'
    if kind == "below":
        return '"tooBig":{"' + "k" * (size // 2) + '":{' + _keys("k", size // 2) + "}}"
    return _keys("ansibleK", size) if kind == "reserved" else '"tooBig":{' + _keys("k", size) + "}"


def _keys(prefix: str, size: int) -> str:
    return ",".join(f'"{prefix}{number}":null' for number in range(size // 16))


def _json(value: Any) -> str:
    """Return JSON; integers of any size."""
    if isinstance(value, dict):
        return "{" + ",".join(f"{_json(name)}:{_json(item)}" for name, item in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(_json, value)) + "]"
    return str(value) if type(value) is int else orjson.dumps(value).decode()
