"""The preloaded Kubernetes client does what it did, in less time."""

from __future__ import annotations

import json
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from runner.core.proxy.handlers.authenticate import kubeconfig
from runner.engines.warm.modules import libraries

# Its types say nothing of the library that it imports.
kube_config: Any = import_module("kubernetes.config.kube_config")
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda children: st.lists(children) | st.dictionaries(st.text(), children),
    max_leaves=8,
)


@pytest.fixture
def _prepared(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kube_config, "yaml", yaml)
    libraries.prepare_kubernetes()


@pytest.fixture
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("kubernetes") / "file"


def loaded(module: Any, file: Path) -> Any:
    """Return what a library loads from a file, or its error."""
    try:
        with file.open(encoding="utf-8") as stream:
            return module.safe_load(stream)
    except yaml.YAMLError as error:
        return str(error)


@pytest.mark.usefixtures("_prepared")
def test_the_kubeconfig_of_a_run_is_read_without_the_parser_of_yaml(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = kubeconfig("http://127.0.0.1:1", "token")
    file.write_text(text, encoding="utf-8")
    monkeypatch.setattr(yaml, "safe_load", lambda _: pytest.fail("parsed as YAML"))

    assert loaded(kube_config.yaml, file) == json.loads(text)


@pytest.mark.usefixtures("_prepared")
@pytest.mark.parametrize(
    "text",
    [
        "",
        "a: [1, 2]\nb: text\n",
        '{"a": "b", a: 1}',
        '{"a": 1.5, "b": 1e3, "c": NaN, "d": 010}',
        '{"a": "\\ud83d\\ude00", "b": "\\/"}',
        '{"a": "é\u2028"}',
        '{"a": {"b": 1}, "a": {"c": 2}}',
        '{"a": "b"}\n---\n{"c": "d"}',
        '{"a": "b"',
        '{"' + "k" * 1100 + '": "v"}',
        '{"<<": {"a": "b"}, "=": "c"}',
        '{\n\t"a": "b"}',
        '{"a": "' + "v" * (1 << 16) + '"}',
    ],
)
def test_any_other_kubeconfig_is_read_as_before(text: str, file: Path) -> None:
    file.write_text(text, encoding="utf-8")
    assert loaded(kube_config.yaml, file) == loaded(yaml, file)


@pytest.mark.lengthy
@pytest.mark.usefixtures("_prepared")
@given(value=st.dictionaries(st.text(), VALUES), indent=st.sampled_from([None, 2]))
def test_json_has_the_value_that_it_has_as_yaml(value: dict[str, Any], indent: int | None) -> None:
    text = json.dumps(value, indent=indent)
    try:
        found = libraries._parsed(text)
    except ValueError:
        return
    assert found == yaml.safe_load(text)


def test_another_version_of_the_client_keeps_its_own_function(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kube_config, "yaml", own := object())

    libraries.prepare_kubernetes()

    assert kube_config.yaml is own
