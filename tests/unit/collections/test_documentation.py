from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import pytest
import yaml

from runner import collections

COLLECTION = "ansible_collections.operator_sdk.util.plugins"
PLUGINS = Path(collections.PATH) / "ansible_collections/operator_sdk/util/plugins/modules"
MODULES = sorted(path.stem for path in PLUGINS.glob("*.py") if path.stem != "__init__")
SAID = ("type", "required", "default", "choices", "aliases", "elements")


def documented(name: str) -> dict[str, Any]:
    """The options as `ansible-doc` shows them: a module's own, and those of its fragments."""
    module = importlib.import_module(f"{COLLECTION}.modules.{name}")
    document = yaml.safe_load(module.DOCUMENTATION)
    options = dict(document["options"])
    for fragment in document.get("extends_documentation_fragment", []):
        shared = importlib.import_module(f"{COLLECTION}.doc_fragments.{fragment.rpartition('.')[2]}")
        options |= yaml.safe_load(shared.ModuleDocFragment.DOCUMENTATION)["options"]
    return options


def specified(name: str, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """The argument spec that the module hands to Ansible."""
    module = importlib.import_module(f"{COLLECTION}.modules.{name}")
    seen: dict[str, Any] = {}

    class Stop(Exception):  # noqa: N818 - ends the module where the spec is known; nothing went wrong
        pass

    def ansible_module(argument_spec: dict[str, Any], **_: Any) -> None:
        seen.update(argument_spec)
        raise Stop

    monkeypatch.setattr(module, "AnsibleModule", ansible_module)
    with pytest.raises(Stop):
        module.main()
    return seen


def said(option: dict[str, Any]) -> dict[str, Any]:
    facts = {key: option[key] for key in SAID if option.get(key) not in (None, False)}
    below = option.get("options") or option.get("suboptions")
    return facts | ({"options": {name: said(inner) for name, inner in below.items()}} if below else {})


@pytest.mark.parametrize("name", MODULES)
def test_the_documentation_lists_the_options_of_the_module(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    specification = specified(name, monkeypatch)
    assert {key: said(option) for key, option in documented(name).items()} == {
        key: said(option) for key, option in specification.items()
    }


@pytest.mark.parametrize("name", MODULES)
def test_the_examples_name_the_module_and_known_options_only(name: str) -> None:
    module = importlib.import_module(f"{COLLECTION}.modules.{name}")
    tasks = yaml.safe_load(module.EXAMPLES)
    assert tasks
    for task in tasks:
        assert task[f"operator_sdk.util.{name}"].keys() <= documented(name).keys()
