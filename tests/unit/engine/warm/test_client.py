"""How the operator treats a fork server that has not loaded everything yet."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest

from runner.engine.warm import client
from runner.engine.warm.client import Server, ServerDiedError
from runner.engine.warm.messages import Load


def test_whoever_stops_does_not_wait_for_a_server_that_still_loads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun = tmp_path / "begun"
    start = tmp_path / "start.py"
    start.write_text(
        "import os, pathlib, time\n"
        f"pathlib.Path({str(begun)!r} + '-').write_text(str(os.getpid()))\n"
        f"os.rename({str(begun)!r} + '-', {str(begun)!r})\n"
        "time.sleep(3600)\n",
        encoding="utf-8",
    )
    monkeypatch.setattr(client, "_START", start)
    monkeypatch.setattr(client, "_ANSWER_WITHIN", 3600.0)  # nobody waits for that either

    async def scenario() -> None:
        environment = {"PATH": os.environ["PATH"], "HOME": str(tmp_path)}
        starting = asyncio.create_task(Server.start(environment, tmp_path / "folder", Load()))
        while not await asyncio.to_thread(begun.exists):
            await asyncio.sleep(0.01)
        starting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await starting

    asyncio.run(scenario())

    with pytest.raises(ProcessLookupError):
        os.kill(int(begun.read_text(encoding="ascii")), 0)
    assert list((tmp_path / "folder").iterdir()) == []


def test_a_server_that_ends_before_it_answers_is_quoted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    start = tmp_path / "start.py"
    start.write_text("import sys\nsys.exit('first\\nno room for me')\n", encoding="utf-8")
    monkeypatch.setattr(client, "_START", start)

    async def scenario() -> None:
        environment = {"PATH": os.environ["PATH"], "HOME": str(tmp_path)}
        with pytest.raises(ServerDiedError, match=r"^the fork server ended: no room for me$"):
            await Server.start(environment, tmp_path / "folder", Load())

    asyncio.run(scenario())
    assert list((tmp_path / "folder").iterdir()) == []
