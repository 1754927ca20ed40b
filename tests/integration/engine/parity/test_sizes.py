"""Much output, many tasks, many items, and every byte show the same with both engines."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.integration.engine.parity.comparison import Parity

pytestmark = [pytest.mark.asyncio(loop_scope="session")]


@pytest.mark.nightly
async def test_large_and_odd_output_and_many_items(parity: Parity) -> None:
    cold = await parity("sizes.yml", verbosity=1)

    assert cold.task("length")["msg"] > 5_000_000
    assert len(cold.of("runner_item_on_ok")) == 150 + 150 + 40


@pytest.mark.nightly
async def test_two_hundred_tasks_of_which_half_are_skipped(parity: Parity) -> None:
    cold = await parity("many.yml")

    assert cold.result.recap is not None
    assert (cold.result.recap.ok, cold.result.recap.skipped) == (100, 100)
