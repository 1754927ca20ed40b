"""Tests of users who can only write custom resources, with runs in pods.

Not here: `test_sixty_objects_of_one_namespace_do_not_delay_an_object_of_another`, whose role waits for a file of this
machine, and which is about the work queue. CI runs them with other engines, and `test_isolation_of_pods.py` in pods.
"""

from __future__ import annotations

import pytest

from tests.features.masking.integration.test_secrets import (
    operator,
    test_values_of_secrets_are_masked_everywhere_and_other_output_is_readable,
)
from tests.integration.image.pods import PodProject, ProjectInPods
from tests.integration.operator.test_hostile import (
    test_hostile_resources_harm_neither_the_operator_nor_their_neighbours,
)
from tests.integration.operator.test_tenant_input import (
    test_neither_text_nor_secrets_of_a_tenant_harm_the_log_the_result_or_other_objects,
)
from tests.integration.operator.test_tenants import (
    test_neither_deep_objects_nor_foreign_references_nor_forged_owners_reach_the_objects_of_others,
)
from tests.integration.operator.test_variables import (
    COMMANDS,
    no_spec_selects_a_connection_an_interpreter_or_a_command,
)
from tests.kit.images import needs_images_on_a_node
from tests.kit.objects import Api, Things

__all__ = [
    "operator",
    "test_hostile_resources_harm_neither_the_operator_nor_their_neighbours",
    "test_neither_deep_objects_nor_foreign_references_nor_forged_owners_reach_the_objects_of_others",
    "test_neither_text_nor_secrets_of_a_tenant_harm_the_log_the_result_or_other_objects",
    "test_values_of_secrets_are_masked_everywhere_and_other_output_is_readable",
]
pytestmark = [
    pytest.mark.nightly,
    pytest.mark.xdist_group("pods"),
    needs_images_on_a_node(),
]


@pytest.fixture(params=[4, 60])
def count(request: pytest.FixtureRequest) -> int:
    """Number of hostile resources. Each special name is in one of them, however few they are."""
    number: int = request.param
    return number


@pytest.fixture
def project(pods: PodProject) -> ProjectInPods:
    """A project whose pods can write to the folder in which no file may appear."""
    canary = pods.project.folder / "canary"
    canary.mkdir()
    canary.chmod(0o777)  # the image has another user
    pods.project.template |= {
        "volumes": [{"name": "canary", "hostPath": {"path": str(canary), "type": "Directory"}}],
        "volumeMounts": [{"name": "canary", "mountPath": str(canary)}],
    }
    return pods.project


@pytest.fixture
def things(pods: PodProject) -> Things:
    return pods.things


@pytest.fixture
def namespace(pods: PodProject) -> str:
    return pods.namespace


@pytest.fixture
def api(pods: PodProject) -> Api:
    """The API server of the node, which serves Memcached too."""
    pods.install_sample()
    return pods.api


def test_a_spec_cannot_select_a_connection_an_interpreter_or_a_command(project: ProjectInPods, things: Things) -> None:
    project.role("thing", COMMANDS)
    project.watch("thing", allowAnsibleVariables=["ansible_user"])
    no_spec_selects_a_connection_an_interpreter_or_a_command(project, things, project.start())
