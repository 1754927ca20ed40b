"""Many objects: who waits, what each costs, and what stays. `python -m bench.scale`.

1. The corpus' small role: a new object alone, 20 and 150 at once, and one behind 40 that were present at start.
2. Many objects that were run and rest: memory of each, also with five dependents each, and CPU; Ansible is left out
   (`bench.without_ansible`).
3. The same objects after a restart, with `skipUnchanged`: what it costs to find that none need be run.
4. Many Deployments that become ready at once: a user's change meanwhile, and the runs and reads that they cause.
5. A changed role for many objects, with the steps of a rollout against at once.
6. New objects of the small role, alone and at once, with an API server that is a round trip of 0, 20 and 50 ms away.

`BENCH_OBJECTS`, `BENCH_SMALL_BURSTS` (numbers, with commas), `BENCH_BEHIND`, `BENCH_ROLLOUTS` and `BENCH_REPEATS` make
it smaller; `BENCH_PARTS` names parts (`small`, `behind`, `rest`, `skip`, `rollouts`, `steps`, `distant`, with commas).
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable

from bench import objects, scale_bursts, scale_rest, scale_rollouts
from bench.bed import Bed, on_cluster, show_all
from bench.results import Result, size
from bench.scale_bed import NAMESPACES

_PARTS: dict[str, Callable[[Bed], AsyncIterator[Result]]] = {
    "small": scale_bursts.small,
    "behind": scale_bursts.behind,
    "rest": scale_rest.rest,
    "skip": scale_rest.skip,
    "rollouts": scale_rollouts.rollouts,
    "steps": scale_rollouts.steps,
    "distant": scale_bursts.distant,
}


async def _measure(bed: Bed) -> None:
    await objects.install(bed.client, NAMESPACES)
    named = size("PARTS", ",".join(_PARTS)).split(",")
    for name, part in _PARTS.items():
        if name in named:
            await show_all(name, part(bed))


if __name__ == "__main__":
    on_cluster(_measure)
