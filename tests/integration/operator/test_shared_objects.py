"""`prune`: an object that several resources use stays until none of them uses it, or while this is unknown."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.kit.tasks import config_map
from tests.kit.wait import wait_until

if TYPE_CHECKING:
    from tests.kit.objects import Api, Things
    from tests.kit.operator import Project

PARTS = """
- name: Include the theme
  ansible.builtin.include_tasks: theme.yml
  when: not (maintenance | default(false))
"""
DARK = {"theme": "dark"}


@pytest.fixture
def themes(api: Api, namespace: str) -> Any:
    def found() -> set[str]:
        items = api.call("GET", f"/api/v1/namespaces/{namespace}/configmaps")["items"]
        names = {item["metadata"]["name"] for item in items if "deletionTimestamp" not in item["metadata"]}
        return {name for name in names if name.startswith("theme-")}

    return found


@pytest.mark.full
def test_a_resource_that_skips_the_task_which_used_the_object_keeps_it_also_after_a_restart(
    project: Project, things: Things, themes: Any
) -> None:
    project.role("shop", PARTS)
    keep = config_map("theme-{{ theme }}", {"name": "{{ theme }}"}, when="theme is defined")
    project.write("roles/shop/tasks/theme.yml", keep)
    project.watch("shop", prune="delete")
    operator = project.start()
    for name in ("owner", "user"):
        things.create(name, DARK)
        things.await_success(name)
    things.merge("user", {"spec": {"maintenance": True}})
    things.await_success("user")
    assert operator.stop() == 0
    things.merge("owner", {"spec": {"theme": None}})
    operator = project.start()
    things.await_success("owner")
    message = things.await_reason("owner", "Prunable", "InUse")["message"]
    assert f"in use by Thing {things.namespace}/user" in message
    assert len(operator.runs("owner")) > 1
    assert themes() == {"theme-dark"}
    things.merge("user", {"spec": {"maintenance": False, "theme": "light"}})
    wait_until(lambda: themes() == {"theme-light"}, "the object that nothing uses any more to be deleted")
