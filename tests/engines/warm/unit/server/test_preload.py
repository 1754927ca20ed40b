"""What is loaded ahead says nothing that a run should have said."""

from __future__ import annotations

import sys
from pathlib import Path

from runner.engines.warm.server import preload
from tests.kit.forks import load_plugins, seen

REPORTS = "from ansible.utils.display import Display\nDisplay().warning('old')\n"


def test_each_of_several_modules_that_report_the_same_stays_unloaded(tmp_path: Path) -> None:
    for name in ("first_reporter", "second_reporter"):
        (tmp_path / f"{name}.py").write_text(REPORTS, encoding="utf-8")
    (tmp_path / "silent_one.py").write_text("", encoding="utf-8")

    def act() -> object:
        load_plugins()
        sys.path.insert(0, str(tmp_path))
        preload.load_modules(["first_reporter", "second_reporter", "silent_one"])
        return sorted(name for name in sys.modules if name.endswith(("_reporter", "silent_one")))

    assert seen(act) == ["silent_one"]
