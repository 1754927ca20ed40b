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
    other,
    test_hostile_resources_harm_neither_the_operator_nor_their_neighbours,
)
from tests.integration.operator.test_tenant_input import (
    test_a_secret_with_thousands_of_values_that_share_a_prefix_does_not_delay_other_objects,
    test_text_of_a_resource_is_neither_an_event_nor_a_line_of_the_operator,
)
from tests.integration.operator.test_tenants import (
    tenant,
    test_an_annotation_that_names_an_owner_in_another_namespace_counts_only_on_objects_that_its_runs_wrote,
    test_objects_that_nest_too_deeply_are_reported_and_all_others_run,
    test_references_to_other_namespaces_are_not_watched_unless_the_watch_allows_them,
)
from tests.integration.operator.test_variables import (
    test_a_spec_cannot_select_a_connection_an_interpreter_or_a_command,
)
from tests.kit.images import needs_images_on_a_node
from tests.kit.objects import Api, Things

__all__ = [
    "operator",
    "other",
    "tenant",
    "test_a_secret_with_thousands_of_values_that_share_a_prefix_does_not_delay_other_objects",
    "test_a_spec_cannot_select_a_connection_an_interpreter_or_a_command",
    "test_an_annotation_that_names_an_owner_in_another_namespace_counts_only_on_objects_that_its_runs_wrote",
    "test_hostile_resources_harm_neither_the_operator_nor_their_neighbours",
    "test_objects_that_nest_too_deeply_are_reported_and_all_others_run",
    "test_references_to_other_namespaces_are_not_watched_unless_the_watch_allows_them",
    "test_text_of_a_resource_is_neither_an_event_nor_a_line_of_the_operator",
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
