from __future__ import annotations

import traceback

import pytest

from runner.engines.warm.patches import shortcuts


def test_tracebacks_omit_frames_of_the_warm_engine_and_show_all_others(monkeypatch: pytest.MonkeyPatch) -> None:
    walk = traceback._walk_tb_with_full_positions  # type: ignore[attr-defined]
    monkeypatch.setattr(traceback, "_walk_tb_with_full_positions", walk)  # brought back at the end
    code = compile("def through(function):\n    function()\n", "/x/runner/engines/warm/patches/guard.py", "exec")
    found: dict[str, object] = {}
    exec(code, found)  # noqa: S102 - a function that stands in a file of ours

    def failing() -> None:
        raise ValueError("no")

    def said() -> str:
        with pytest.raises(ValueError, match="no") as caught:
            found["through"](failing)  # type: ignore[operator]
        return "".join(traceback.format_exception(caught.value))

    before = said()
    shortcuts.hide_frames()
    after = said()

    assert "warm/patches/guard.py" in before
    assert "warm/patches/guard.py" not in after
    assert "in failing" in after
    assert after.endswith("ValueError: no\n")
