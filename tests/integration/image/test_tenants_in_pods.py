"""Further tests of users who can only write custom resources, with runs in pods.

Not here: `test_sixty_objects_of_one_namespace_do_not_delay_an_object_of_another`, whose role waits for a file of this
machine, and which is about the work queue.
"""

from __future__ import annotations

import pytest

from tests.features.masking.integration.test_secrets import (
    operator,
    test_values_of_secrets_are_masked_everywhere_and_other_output_is_readable,
)
from tests.integration.image.test_hostile_in_pods import api, namespace, project, things
from tests.integration.operator.test_tenant_input import (
    test_a_secret_with_thousands_of_values_that_share_a_prefix_does_not_delay_other_objects,
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

__all__ = [
    "api",
    "namespace",
    "operator",
    "project",
    "tenant",
    "test_a_secret_with_thousands_of_values_that_share_a_prefix_does_not_delay_other_objects",
    "test_a_spec_cannot_select_a_connection_an_interpreter_or_a_command",
    "test_an_annotation_that_names_an_owner_in_another_namespace_counts_only_on_objects_that_its_runs_wrote",
    "test_objects_that_nest_too_deeply_are_reported_and_all_others_run",
    "test_references_to_other_namespaces_are_not_watched_unless_the_watch_allows_them",
    "test_values_of_secrets_are_masked_everywhere_and_other_output_is_readable",
    "things",
]
pytestmark = [
    pytest.mark.nightly,
    pytest.mark.xdist_group("pods"),
    needs_images_on_a_node(),
]
