"""The callback in a run reports arguments before ansible-runner's callback emits the result with them."""

from __future__ import annotations

import importlib.util
import sys
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from runner.core.engine.redaction import UNREPORTED
from runner.features.masking.feature import FEATURE

PROXY = ("127.0.0.1", 1, "token")


def _run(monkeypatch: pytest.MonkeyPatch, *, has_runner: bool = True) -> tuple[Any, Any, list[str]]:
    """Load the callback; return it, ansible-runner's, and what happens in order."""
    spec = importlib.util.spec_from_file_location("own", FEATURE.callbacks[0] / "ansible_operator_no_log.py")
    assert spec is not None
    assert spec.loader is not None
    own: Any = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(own)
    seen: list[str] = []

    class Emitter:
        def _emit(self, result: Any) -> None:
            seen.append(f"emitted {result}")

        v2_runner_on_ok = v2_runner_on_failed = v2_runner_on_unreachable = _emit
        v2_runner_item_on_ok = v2_runner_item_on_failed = _emit

    module: Any = ModuleType("awx")
    module.event_context, module.CallbackModule = object(), Emitter
    if has_runner:
        monkeypatch.setitem(sys.modules, "ansible.plugins.callback.awx", module)
    monkeypatch.setattr(own, "_proxy", lambda _: PROXY)
    monkeypatch.setattr(
        own.CallbackBase, "__init__", lambda self: setattr(self, "_display", SimpleNamespace(warning=seen.append))
    )
    monkeypatch.setattr(own.CallbackModule, "_look", lambda _, result: seen.append(f"reported {result}"))
    return own.CallbackModule(), Emitter(), seen


def test_arguments_are_reported_before_the_result_is_emitted(monkeypatch: pytest.MonkeyPatch) -> None:
    _, emitter, seen = _run(monkeypatch)
    emitter.v2_runner_item_on_ok("item")
    emitter.v2_runner_on_ok("result")
    assert seen == ["reported item", "emitted item", "reported result", "emitted result"]


def test_a_result_whose_arguments_cannot_be_reported_follows_the_warning_that_withholds_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    callback, emitter, seen = _run(monkeypatch)
    monkeypatch.setattr(type(callback), "_look", lambda _, result: result.unknown)
    emitter.v2_runner_on_failed("first")
    emitter.v2_runner_on_ok("second")
    assert UNREPORTED in seen[0]
    assert seen[1:] == ["emitted first", "emitted second"]


def test_output_is_withheld_without_the_callback_of_ansible_runner(monkeypatch: pytest.MonkeyPatch) -> None:
    *_, seen = _run(monkeypatch, has_runner=False)
    assert UNREPORTED in seen[0]
