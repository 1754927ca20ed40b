from __future__ import annotations

from pathlib import Path

import pytest

from runner.app.features import FEATURE_FIELDS
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


class TestSnakeCaseExcept:
    def test_snake_case_exceptions_without_conversion_are_a_warning(self, load: Load) -> None:
        rest = "  role: memcached\n  snakeCaseParameters: false\n  snakeCaseExcept: [spec.labels]\n"
        loaded = load(KIND + rest)
        assert not loaded.watches[0].snake_case_parameters
        (warning,) = loaded.warnings
        assert "snakeCaseExcept: no effect, because snakeCaseParameters is false" in warning
