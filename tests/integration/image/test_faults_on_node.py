"""Faults of a real node: objects converge, no run is lost or repeated, and another replica takes over."""

from __future__ import annotations

import random
import sys
from collections.abc import Iterator

import pytest

from runner.sdk import devcluster as clusters
from runner.sdk.devcluster import node
from tests.faults import journal
from tests.faults.on_node import FAULTS, OPERATOR, Deployed, cause, deployed
from tests.kit.images import BASE, base_archive, needs_images_on_a_node
from tests.kit.wait import wait_until

pytestmark = [
    pytest.mark.full,
    pytest.mark.xdist_group("image"),
    needs_images_on_a_node(),
]


@pytest.fixture(scope="module")
def world(node_cluster: clusters.DevCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployed]:
    node_cluster.load(base_archive(sys.stderr))
    with deployed(node_cluster, tmp_path_factory.mktemp("world"), random.Random(1), BASE) as made:
        yield made


@pytest.mark.nightly
@pytest.mark.parametrize("fault", FAULTS)
def test_after_a_fault_of_the_node_every_object_converges_and_no_run_is_lost_or_repeated(
    world: Deployed, fault: str
) -> None:
    cause(world, fault)


@pytest.mark.nightly
@pytest.mark.timeout(1800)
def test_faults_of_the_node_in_any_order(world: Deployed) -> None:
    for fault in world.chance.choices(sorted(FAULTS), k=10):
        cause(world, fault)


@pytest.mark.nightly
def test_when_the_node_is_drained_the_replica_that_its_budget_keeps_leads(world: Deployed) -> None:
    world.deploy("--leader-elect", f"--leader-election-id={OPERATOR}", replicas=2)
    world.kubectl("create", "poddisruptionbudget", "operator", "--selector=app=operator", "--min-available=1")
    wait_until(lambda: world.phases() == ["Running", "Running"] and world.leader(), world.state)
    drain = ("drain", node.NODE, "--pod-selector=app=operator", "--delete-emptydir-data", "--ignore-daemonsets")
    for _ in range(3):
        world.touch()
    with world.kubectl.start(*drain):
        wait_until(lambda: world.phases() == ["Pending", "Running"] and world.leader(), world.state)
        for _ in range(5):
            world.touch()
        wait_until(lambda: not world.problems(), lambda: "\n".join([*world.problems(), world.state()]))
        assert world.condition("Ready") == "True"
    world.kubectl("uncordon", node.NODE)
    wait_until(lambda: world.phases() == ["Running", "Running"] and world.leader(), world.state)
    for _ in range(5):
        world.touch()
    wait_until(lambda: not world.problems(), lambda: "\n".join([*world.problems(), world.state()]))
    assert journal.overlaps(world.written()) == []
