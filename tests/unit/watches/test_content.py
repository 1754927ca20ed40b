from __future__ import annotations

from pathlib import Path

import pytest

from runner.app.fields import FEATURE_FIELDS
from runner.core.watches import watch as watches
from runner.core.watches.watch import Playbook, Role
from runner.values.errors import ConfigError
from tests.unit.watches.sample import HEAD, KIND, MEMCACHED, Errors, Load, One


class TestContent:
    def test_the_playbook_wins_over_the_role_with_a_warning(self, load: Load, project: Path) -> None:
        loaded = load(f"{KIND}  role: nowhere\n  playbook: playbooks/site.yml\n")
        assert loaded.watches[0].content == Playbook(project / "playbooks/site.yml")
        assert loaded.warnings == (
            f"watches.yaml:4: {MEMCACHED}: role: role and playbook are both set: role is ignored; remove one of them",
        )

    def test_a_playbook_may_have_an_absolute_path(self, load: Load, project: Path) -> None:
        path = project / "playbooks/site.yml"
        assert load(f"{KIND}  playbook: {path}\n").watches[0].content == Playbook(path)

    def test_a_missing_role_names_every_place_that_was_tried(self, project: Path) -> None:
        (project / "watches.yaml").write_text(f"{KIND}  role: nowhere\n")
        with pytest.raises(ConfigError) as raised:
            watches.load(
                Path("watches.yaml"),
                environ={},
                cwd=project,
                roles_path="/a:b",
                collections_path="",
                features=FEATURE_FIELDS,
            )
        assert str(raised.value) == (
            f"watches.yaml:4: {MEMCACHED}: role: 'nowhere' not found; searched /a/nowhere, /a/roles/nowhere, "
            f"{project}/b/nowhere, {project}/b/roles/nowhere, {project}/roles/nowhere, {project}/nowhere"
        )

    @pytest.mark.parametrize(
        ("name", "folders", "found"),
        [
            # Contract: ANSIBLE_ROLES_PATH (plain and with `roles/` below), `./roles`, then the working directory.
            ("a", ["path/a", "path/roles/a", "roles/a", "a"], "path/a"),
            ("a", ["path/roles/a", "roles/a", "a"], "path/roles/a"),
            ("a", ["roles/a", "a"], "roles/a"),
            ("a", ["a"], "a"),
            ("roles/a", ["roles/a"], "roles/a"),
            ("./roles/a", ["roles/a"], "roles/a"),
            ("roles/a", ["roles/a", "path/roles/a"], "path/roles/a"),
            ("roles/a", ["roles/a", "roles/roles/a"], "roles/roles/a"),
            # Contract: a role of a collection comes first.
            ("a.b.c", ["path/a.b.c", "collections/ansible_collections/a/b/roles/c"], None),
        ],
    )
    def test_contract_a_role_is_found_in_the_order_of_the_go_operator(
        self, project: Path, name: str, folders: list[str], found: str | None
    ) -> None:
        for folder in folders:
            (project / folder).mkdir(parents=True)
        (project / "watches.yaml").write_text(f"{KIND}  role: {name}\n  finalizer: {{name: e.com/f, role: {name}}}\n")
        loaded = watches.load(
            Path("watches.yaml"),
            environ={},
            cwd=project,
            roles_path="path",
            collections_path="collections",
            features=FEATURE_FIELDS,
        )
        (watch,) = loaded.watches
        assert watch.content == Role(name, project / (found or folders[-1]))
        assert watch.finalizer is not None
        assert watch.finalizer.content == watch.content

    def test_a_path_in_the_image_is_found_in_the_project_outside_the_image(self, load: Load, project: Path) -> None:
        """The contract's paths below /opt/ansible, on a machine without that folder."""
        (role,) = load(f"{KIND}  role: /opt/ansible/roles/memcached\n").watches
        assert role.content == Role("/opt/ansible/roles/memcached", project / "roles/memcached")
        (playbook,) = load(f"{KIND}  playbook: /opt/ansible/playbooks/site.yml\n").watches
        assert playbook.content == Playbook(project / "playbooks/site.yml")

    def test_a_path_in_the_image_that_the_project_lacks_names_both_places(self, errors: Errors, project: Path) -> None:
        (line,) = errors(f"{KIND}  role: /opt/ansible/roles/no\n")
        assert line.endswith(f"'/opt/ansible/roles/no' not found; searched /opt/ansible/roles/no, {project}/roles/no")

    def test_a_missing_playbook_names_its_path(self, errors: Errors, project: Path) -> None:
        assert errors(f"{KIND}  playbook: nowhere.yml\n") == [
            f"watches.yaml:4: {MEMCACHED}: playbook: 'nowhere.yml' not found; searched {project}/nowhere.yml"
        ]

    def test_neither_role_nor_playbook_is_an_error(self, errors: Errors) -> None:
        assert errors(KIND) == [f"watches.yaml:1: {MEMCACHED}: no role and no playbook: set one of them"]


class TestFinalizer:
    def test_vars_alone_run_the_watchs_own_role(self, one: One) -> None:
        watch = one("  finalizer: {name: example.com/f, vars: {state: absent}}\n")
        assert watch.finalizer is not None
        assert watch.finalizer.content == watch.content
        assert watch.finalizer.vars == {"state": "absent"}

    def test_a_playbook_of_its_own_wins_over_its_role_with_a_warning(self, load: Load, project: Path) -> None:
        finalizer = "{name: example.com/f, role: cleanup, playbook: playbooks/site.yml}"
        loaded = load(f"{HEAD}  finalizer: {finalizer}\n")
        found = loaded.watches[0].finalizer
        assert found is not None
        assert found.content == Playbook(project / "playbooks/site.yml")
        assert f"{MEMCACHED}: finalizer.role: role and playbook are both set" in loaded.warnings[0]


class TestSelector:
    def test_labels_and_expressions_become_one_string(self, one: One) -> None:
        rest = """\
  selector:
    matchLabels: {app.kubernetes.io/name: cache, ready: true}
    matchExpressions:
      - {key: tier, operator: In, values: [front, back]}
      - {key: zone, operator: NotIn, values: [a]}
      - {key: owner, operator: Exists}
      - {key: paused, operator: DoesNotExist, values: []}
"""
        assert one(rest).selector == (
            "!paused,app.kubernetes.io/name=cache,owner,ready=true,tier in (back,front),zone notin (a)"
        )

    def test_an_empty_selector_selects_everything(self, one: One) -> None:
        assert not one("  selector: {}\n").selector


class TestFieldSelector:
    def test_conditions_and_a_name_become_one_string(self, one: One) -> None:
        assert one("  fieldSelector: spec.mode!=off\n  name: main\n").field_selector == (
            "metadata.name=main,spec.mode!=off"
        )
        assert one("  name: 7\n").field_selector == "metadata.name=7"

    def test_without_both_every_object_is_selected(self, one: One) -> None:
        assert not one().field_selector

    def test_a_name_may_come_from_the_environment(self, one: One) -> None:
        assert one("  name: ${TENANT}\n", TENANT="blue").field_selector == "metadata.name=blue"


class TestSnakeCaseExcept:
    def test_paths_are_kept_as_they_are_written(self, one: One) -> None:
        (path, other) = one("  snakeCaseExcept: [spec.labels, 'spec.pools[*].env']\n").snake_case_except
        assert (path.text, other.text) == ("spec.labels", "spec.pools[*].env")

    def test_snake_case_exceptions_without_conversion_are_a_warning(self, load: Load) -> None:
        rest = "  role: memcached\n  snakeCaseParameters: false\n  snakeCaseExcept: [spec.labels]\n"
        loaded = load(KIND + rest)
        assert not loaded.watches[0].snake_case_parameters
        (warning,) = loaded.warnings
        assert "snakeCaseExcept: no effect, because snakeCaseParameters is false" in warning
