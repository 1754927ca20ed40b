"""A role that looks around sees the same with both engines."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.integration.engine.parity.comparison import Parity

pytestmark = [pytest.mark.asyncio(loop_scope="session")]


async def test_a_role_sees_the_same_wherever_its_code_runs(parity: Parity) -> None:
    cold = await parity("surroundings.yml", environment={"OF_OPERATOR": "hello"}, ansible_args="-e 'a=\"b c\"'")

    looks = {name for name in cold.files if name.startswith("work/")}
    assert {"work/playbook.json", "work/worker.json", "work/condition.json", "work/include.json"} <= looks
    assert cold.files["work/playbook.json"]["content"]["process"]["environment"]["OF_OPERATOR"] == "hello"
    assert cold.task("in a module")["seen"]["cwd"] == str(parity.place.project)
