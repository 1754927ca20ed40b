"""`init` and `create api`, as a user types them."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from runner.app.features import FEATURE_FIELDS
from runner.base.config.paths import search_path
from runner.base.yamlfile.edits import Loader
from runner.compatibility import validation
from runner.sdk.scaffold import project
from tests.kit.commands import Type
from tests.kit.generated import generate


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    made = tmp_path / "cache-operator"
    made.mkdir()
    monkeypatch.chdir(made)
    return made


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    project = tmp_path_factory.mktemp("made") / "cache-operator"
    generate(project, [["init", "--domain", "example.com"]])
    return project


@pytest.fixture
def begun(folder: Path, made: Path, typed: Type) -> Type:
    shutil.copytree(made, folder, dirs_exist_ok=True)
    return typed


@pytest.fixture
def memcached(begun: Type) -> Type:
    assert begun("create api --group cache --kind Memcached")[0] == 0
    return begun


def parsed(path: Path) -> Any:
    return yaml.safe_load(path.read_text())


def snapshot(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_the_makefile_of_a_project_has_the_targets_of_the_contract(folder: Path, begun: Type) -> None:
    assert project.parse((folder / "PROJECT").read_text()).name == "cache-operator"
    makefile = (folder / "Makefile").read_text() + (folder / "config/deploy.mk").read_text()
    targets = (
        "help run docker-build docker-push docker-buildx install uninstall deploy undeploy bundle bundle-build "
        "bundle-push catalog-build catalog-push"
    )
    assert all(f"\n{target}:" in makefile for target in targets.split())


_TEXTS = {"group", "kind", "plural", "singular", "name", "role", "author", "hosts"}
_LISTS = {"apiGroups", "resources", "resourceNames", "shortNames"}


def _texts(value: Any) -> Iterator[Any]:
    """Yield the values that must be text."""
    for key, item in value.items() if isinstance(value, dict) else ():
        values = item if key in _LISTS else [item] * (key in _TEXTS)
        yield from (entry for entry in values if not isinstance(entry, dict | list))
    for item in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from _texts(item)


@pytest.mark.lengthy
def test_names_that_yaml_reads_as_another_type_have_quotes_in_all_files(folder: Path, typed: Type) -> None:
    assert typed("init --domain 5 --project-name on")[0] == 0
    assert typed("create api --group 1 --kind On --plural y --short-name null --finalizer")[0] == 0
    assert typed("create api --group 1 --kind No --plural no --watch=false")[0] == 0
    assert typed("create api --group 1 --kind Y --generate-playbook --plural off --inventory")[0] == 0
    assert typed("generate crds")[0] == 0
    for path in (path for path in folder.rglob("*") if path.suffix in {".yml", ".yaml"} or path.name == "PROJECT"):
        for document in yaml.load_all(path.read_text(), Loader):
            assert [text for text in _texts(document) if not isinstance(text, str)] == [], path
    assert [watch["role"] for watch in parsed(folder / "watches.yaml")[:1]] == ["on"]
    assert typed("validate") == (0, "watches.yaml: 2 watches, 0 errors, 0 warnings\n", "")


@pytest.mark.lengthy
def test_no_placeholder_is_left_in_any_file(folder: Path, begun: Type) -> None:
    begun("create api --group cache --kind Memcached --finalizer --generate-role --generate-playbook --short-name mc")
    begun("create api --group cache --kind Host --finalizer --generate-role --generate-playbook --inventory")
    assert not [path for path, text in snapshot(folder).items() if b"@{" in text or "@{" in path]


@pytest.mark.lengthy
def test_init_can_add_the_first_kind_at_once(folder: Path, typed: Type) -> None:
    code, out, _ = typed(
        "init --plugins=ansible --domain example.com --project-name mc --group cache --version v1 --kind Memcached "
        "--generate-role"
    )
    assert code == 0
    assert "created  roles/memcached/tasks/main.yml\n" in out
    assert parsed(folder / "watches.yaml") == [
        {"group": "cache.example.com", "version": "v1", "kind": "Memcached", "role": "memcached", "ready": "dependents"}
    ]


@pytest.mark.lengthy
def test_a_kind_is_entered_everywhere(folder: Path, begun: Type) -> None:
    assert begun("create api --group cache --kind Memcached --finalizer")[0] == 0
    crd = parsed(folder / "config/crd/bases/cache.example.com_memcacheds.yaml")
    assert (crd["metadata"]["name"], crd["spec"]["scope"]) == ("memcacheds.cache.example.com", "Namespaced")
    assert [(each["name"], each["storage"]) for each in crd["spec"]["versions"]] == [("v1alpha1", True)]
    assert parsed(folder / "config/crd/kustomization.yaml")["resources"] == ["bases/cache.example.com_memcacheds.yaml"]
    assert parsed(folder / "config/samples/kustomization.yaml")["resources"] == ["cache_v1alpha1_memcached.yaml"]
    people = [name for name in parsed(folder / "config/rbac/kustomization.yaml")["resources"] if "memcached" in name]
    assert people == [f"memcached_{who}_role.yaml" for who in ("admin", "editor", "viewer")]
    rules = parsed(folder / "config/rbac/role.yaml")["rules"]
    assert [rule["resources"] for rule in rules[2:]] == [
        ["memcacheds"],
        ["memcacheds/status"],
        ["memcacheds/finalizers"],
    ]
    assert parsed(folder / "watches.yaml") == [
        {
            "group": "cache.example.com",
            "version": "v1alpha1",
            "kind": "Memcached",
            "role": "memcached",
            "ready": "dependents",
            "finalizer": {"name": "cache.example.com/finalizer", "role": "memcached_finalizer"},
        }
    ]


@pytest.mark.lengthy
@pytest.mark.parametrize(
    ("flags", "runs"),
    [
        ("", {"role": "memcached"}),
        ("--generate-role", {"role": "memcached"}),
        ("--generate-role --finalizer", {"role": "memcached"}),
        ("--generate-playbook", {"playbook": "playbooks/memcached.yml"}),
        ("--generate-role=true --generate-playbook=true", {"playbook": "playbooks/memcached.yml"}),
        ("--generate-playbook=false", {"role": "memcached"}),
        ("--inventory --finalizer", {"role": "memcached"}),
        ("--inventory --generate-playbook --generate-role", {"playbook": "playbooks/memcached.yml"}),
    ],
)
def test_a_generated_project_is_valid(folder: Path, begun: Type, flags: str, runs: dict[str, str]) -> None:
    assert begun(f"create api --group cache --kind Memcached {flags}")[0] == 0
    [watch] = parsed(folder / "watches.yaml")
    assert watch.items() >= runs.items()
    places = search_path(cwd=folder, roles_path="", collections_path="", environ={})
    report = validation.validate(
        Path("watches.yaml"), environ={}, cwd=folder, search_path=places, features=FEATURE_FIELDS
    )
    assert (report.problems.errors, report.problems.warnings) == ([], [])


@pytest.mark.lengthy
def test_a_role_that_is_there_is_used(folder: Path, begun: Type) -> None:
    (folder / "roles/memcached/tasks").mkdir(parents=True)
    (folder / "roles/memcached/tasks/main.yml").write_text("[]\n")
    code, out, _ = begun("create api --group cache --kind Memcached")
    assert (code, parsed(folder / "watches.yaml")[0]["role"]) == (0, "memcached")
    assert "Note: watches.yaml uses the existing role roles/memcached" in out
    assert (folder / "roles/memcached/tasks/main.yml").read_text() == "[]\n"


@pytest.mark.lengthy
def test_edits_by_hand_are_kept(folder: Path, memcached: Type) -> None:
    watches = folder / "watches.yaml"
    watches.write_text(f"{watches.read_text()}  # by hand\n  vars:\n    a: 1  # one\n# the end\n")
    role = folder / "config/rbac/role.yaml"
    role.write_text(
        role.read_text() + "  # the role's own\n  - apiGroups: ['']\n    resources: [pods]\n    verbs: [get]\n"
    )
    before = {path: path.read_text().splitlines() for path in (watches, role)}
    assert memcached("create api --group cache --kind Backup")[0] == 0
    for path, lines in before.items():
        after = iter(path.read_text().splitlines())
        assert all(line in after for line in lines), path
    assert [entry["kind"] for entry in parsed(watches)] == ["Memcached", "Backup"]
    assert [rule["resources"] for rule in parsed(role)["rules"]][5:7] == [["pods"], ["backups"]]


@pytest.mark.lengthy
def test_a_new_version_extends_the_crd_and_leaves_one_version_stored(folder: Path, memcached: Type) -> None:
    watches = (folder / "watches.yaml").read_text()
    code, out, _ = memcached("create api --group cache --version v1 --kind Memcached")
    assert code == 0
    versions = parsed(folder / "config/crd/bases/cache.example.com_memcacheds.yaml")["spec"]["versions"]
    assert [(each["name"], each["served"], each["storage"]) for each in versions] == [
        ("v1alpha1", True, True),
        ("v1", True, False),
    ]
    assert (folder / "watches.yaml").read_text() == watches
    assert "Note: watches.yaml still watches v1alpha1; the API server converts objects" in out
    assert parsed(folder / "config/samples/kustomization.yaml")["resources"] == [
        "cache_v1alpha1_memcached.yaml",
        "cache_v1_memcached.yaml",
    ]


COLUMNS = """
      additionalPrinterColumns:
        # What people ask for first.
        - {name: Size, type: integer, jsonPath: .spec.size}
"""


@pytest.mark.lengthy
def test_a_new_version_of_a_crd_is_a_copy_of_the_stored_one(folder: Path, memcached: Type) -> None:
    path = folder / "config/crd/bases/cache.example.com_memcacheds.yaml"
    text = path.read_text()
    a, b = text.index("\n      additionalPrinterColumns:"), text.index("      subresources:")
    path.write_text(
        text[:a] + COLUMNS + text[b:].replace("status: {}", "status: {}\n        scale: {specReplicasPath: x}")
    )
    assert memcached("create api --group cache --version v1 --kind Memcached")[0] == 0
    assert memcached("create api --group cache --version v2 --kind Memcached")[0] == 0
    stored, *others = parsed(path)["spec"]["versions"]
    assert [column["name"] for column in stored["additionalPrinterColumns"]] == ["Size"]
    assert others == [{**stored, "name": name, "storage": False} for name in ("v1", "v2")]
    assert path.read_text().count("# What people ask for first.") == 1


@pytest.mark.lengthy
def test_a_stored_version_in_flow_style_is_copied_as_data(folder: Path, memcached: Type) -> None:
    path = folder / "config/crd/bases/cache.example.com_memcacheds.yaml"
    crd = parsed(path)
    [stored] = crd["spec"]["versions"]
    path.write_text(
        yaml.safe_dump({**crd, "spec": {**crd["spec"], "versions": []}}).replace(
            "versions: []", f"versions:\n  - {json.dumps(stored)}"
        )
    )
    assert memcached("create api --group cache --version v1 --kind Memcached")[0] == 0
    assert parsed(path)["spec"]["versions"] == [stored, {**stored, "name": "v1", "storage": False}]


@pytest.mark.lengthy
def test_a_version_of_a_crd_that_stores_none_is_refused(folder: Path, memcached: Type) -> None:
    path = folder / "config/crd/bases/cache.example.com_memcacheds.yaml"
    path.write_text(path.read_text().replace("storage: true", "storage: false"))
    code, _, output = memcached("create api --group cache --version v1 --kind Memcached")
    assert (code, "0 versions have `storage: true`; exactly one must have it" in output) == (2, True)


@pytest.mark.lengthy
def test_scope_plural_and_short_names_reach_the_crd(folder: Path, begun: Type) -> None:
    line = "create api --group infra --kind Tenant --namespaced=false --plural tenantry --short-name tn --short-name n"
    assert begun(line)[0] == 0
    spec = parsed(folder / "config/crd/bases/infra.example.com_tenantry.yaml")["spec"]
    assert (spec["scope"], spec["names"]["plural"], spec["names"]["shortNames"]) == ("Cluster", "tenantry", ["tn", "n"])
    assert "- 'n'\n" in next(Path("config/crd/bases").glob("*.yaml")).read_text()
    code, _, _ = begun("create api --group infra --version v1 --kind Tenant")
    assert code == 0
    [first, second] = project.parse((folder / "PROJECT").read_text()).resources
    assert (second.plural, second.namespaced, second.version) == (first.plural, first.namespaced, "v1")


@pytest.mark.lengthy
def test_a_kind_for_which_nothing_runs_is_read_and_not_watched(folder: Path, memcached: Type) -> None:
    watches, roles = (folder / "watches.yaml").read_text(), sorted(folder.glob("roles/*"))
    code, out, _ = memcached("create api --group cache --kind Plan --watch=false")
    assert (code, "Next:" in out) == (0, False)
    assert ((folder / "watches.yaml").read_text(), sorted(folder.glob("roles/*"))) == (watches, roles)
    [*_, rule] = parsed(folder / "config/rbac/role.yaml")["rules"]
    assert (rule["resources"], rule["verbs"]) == (["plans"], ["get", "list", "watch"])
    assert memcached("create api --group cache --version v1 --kind Plan")[0] == 0
    for version in parsed(folder / "config/crd/bases/cache.example.com_plans.yaml")["spec"]["versions"]:
        assert "status" not in version["schema"]["openAPIV3Schema"]["properties"]
    # Molecule waits for runs of `*_*_*.yaml`.
    assert [path.name for path in (folder / "config/samples").glob("*_*_*.yaml")] == ["cache_v1alpha1_memcached.yaml"]
    listed = parsed(folder / "config/samples/kustomization.yaml")["resources"]
    assert listed[1:] == ["cache_v1alpha1-plan.yaml", "cache_v1-plan.yaml"]
    assert all((folder / "config/samples" / name).is_file() for name in listed)


@pytest.mark.lengthy
def test_a_kind_with_an_inventory_has_typed_hosts_credentials_and_the_right_to_read_them(
    folder: Path, begun: Type
) -> None:
    code, out, _ = begun("create api --group infra --kind WebServer --inventory --finalizer")
    assert code == 0
    assert "Note: watches.yaml permits hosts of 192.0.2.0/24 only; replace this network in inventory.allow\n" in out
    assert parsed(folder / "watches.yaml")[0]["inventory"] == {
        "hosts": "spec.hosts",
        "group": "webservers",
        "credentials": "spec.credentials",
        "allow": ["192.0.2.0/24"],
    }
    [version] = parsed(folder / "config/crd/bases/infra.example.com_webservers.yaml")["spec"]["versions"]
    spec = version["schema"]["openAPIV3Schema"]["properties"]["spec"]
    assert (spec["required"], "default" in spec) == (["credentials", "hosts"], False)
    options = parsed(folder / "roles/webserver/meta/argument_specs.yml")["argument_specs"]["main"]["options"]
    assert options.keys() == {"ansible_operator_meta", "credentials", "hosts"}
    host = spec["properties"]["hosts"]["items"]
    assert host["properties"].keys() == options["hosts"]["options"].keys()
    # Molecule has no hosts, so it does not apply the sample.
    assert [path.name for path in (folder / "config/samples").glob("infra*")] == ["infra_v1alpha1-webserver.yaml"]
    sample = parsed(folder / "config/samples/infra_v1alpha1-webserver.yaml")["spec"]
    assert {key for each in sample["hosts"] for key in each} <= host["properties"].keys()

    code, _, _ = begun("create api --group infra --kind Proxy --inventory --generate-playbook")
    assert code == 0
    assert [play["hosts"] for play in parsed(folder / "playbooks/proxy.yml")] == ["proxies"]
    rules = parsed(folder / "config/rbac/role.yaml")["rules"]
    secrets = [rule for rule in rules if rule["resources"] == ["secrets"]]
    assert secrets == [{"apiGroups": [""], "resources": ["secrets"], "verbs": ["get", "list", "watch"]}]


@pytest.mark.lengthy
def test_the_same_kind_of_two_groups_has_files_of_its_own(folder: Path, begun: Type) -> None:
    assert begun("create api --group cache --kind Backup --finalizer")[0] == 0
    assert begun("create api --group my-db --kind Backup --finalizer")[0] == 0
    assert [entry["role"] for entry in parsed(folder / "watches.yaml")] == ["backup", "my_db_backup"]
    role = parsed(folder / "config/rbac/my_db_backup_editor_role.yaml")
    assert role["metadata"]["name"] == "my-db-backup-editor-role"


@pytest.mark.lengthy
@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("create api --group cache --kind myKind", "--kind myKind: invalid kind"),
        ("create api --group cache --kind myKind", "(did you mean MyKind?)"),
        ("create api --group Cache --kind Kind", "(did you mean cache?)"),
        ("create api --kind Kind", "--group is required"),
        ("create api --group cache", "--kind is required"),
        ("create api --group cache --kind Kind --short-name KD", "--short-name KD: invalid resource name"),
        ("create api --group cache --kind Memcached", "already exists in the project"),
        ("create api --group cache --version v2 --kind Memcached --plural mcs", "all versions of a kind share one"),
        ("create api --group cache --version v2 --kind Memcached --namespaced=false", "share one scope"),
        (
            "create api --group cache --version v2 --kind Memcached --finalizer",
            "--finalizer: Memcached already exists",
        ),
        ("create api --group cache --kind Watched", "watches.yaml already watches cache.example.com, Kind=Watched"),
        ("create api --group cache --kind Taken --generate-role", "roles/taken/tasks/main.yml: already exists"),
        (
            "create api --group cache --version v2 --kind Memcached --watch=false",
            "--watch=false: Memcached already exists",
        ),
        (
            "create api --group cache --kind Kind --watch=false --finalizer",
            "--finalizer and --watch=false exclude each other",
        ),
        (
            "create api --group cache --kind Kind --watch=false --inventory",
            "--inventory and --watch=false exclude each other",
        ),
        (
            "create api --group cache --kind Kind --namespaced=false --inventory",
            "--inventory and --namespaced=false exclude each other",
        ),
        (
            "create api --group cache --version v2 --kind Memcached --inventory",
            "--inventory: Memcached already exists",
        ),
        ("create api --group cache --kind Kind --finalizer=maybe", "invalid choice: 'maybe'"),
        ("init --domain example.com", "this folder is already a project"),
    ],
)
def test_invalid_arguments_are_an_error_and_write_nothing(folder: Path, memcached: Type, line: str, why: str) -> None:
    with (folder / "watches.yaml").open("a") as file:
        file.write("- {group: cache.example.com, version: v1, kind: Watched, role: memcached}\n")
    (folder / "roles/taken/tasks").mkdir(parents=True)
    (folder / "roles/taken/tasks/main.yml").write_text("- debug:\n")
    before = snapshot(folder)
    code, out, err = memcached(line)
    assert (code, out) == (2, "")
    assert why in err
    assert snapshot(folder) == before


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("init --plugins go", "--plugins go: only Ansible is supported"),
        ("init --domain Example.com", "(did you mean example.com?)"),
        ("init --project-name 'My Operator'", "(did you mean my-operator?)"),
        ("init --group cache", "--kind is required"),
        ("create api --group cache --kind Kind", "create a project with `ansible-operator init`"),
    ],
)
def test_a_project_that_cannot_begin_leaves_the_folder_empty(folder: Path, typed: Type, line: str, why: str) -> None:
    code, _, err = typed(line)
    assert code == 2
    assert why in err
    assert snapshot(folder) == {}


def test_files_in_the_way_of_init_are_named_and_kept(folder: Path, typed: Type) -> None:
    (folder / "Makefile").write_text("all:\n")
    (folder / "notes.txt").write_text("mine")
    code, _, err = typed("init --domain example.com")
    assert code == 2
    assert err.startswith("error: Makefile: already exists with different content\n")
    assert snapshot(folder) == {"Makefile": b"all:\n", "notes.txt": b"mine"}


def test_a_folder_with_other_files_becomes_a_project(folder: Path, typed: Type) -> None:
    (folder / "notes.txt").write_text("mine")
    assert typed("init --domain example.com")[0] == 0
    assert (folder / "notes.txt").read_text() == "mine"


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("a: [", "PROJECT: invalid YAML"),
        ("domain: d\n", "PROJECT: `domain` and `projectName` are required"),
        ("domain: d\nprojectName: p\nlayout: [go.kubebuilder.io/v4]\n", "PROJECT: not an Ansible project"),
        ("domain: d\nprojectName: p\nlayout: [ansible.x/v1]\nresources: [1]\n", "`resources` must be a list of kinds"),
    ],
)
def test_an_invalid_project_file_is_an_error(folder: Path, typed: Type, text: str, why: str) -> None:
    (folder / "PROJECT").write_text(text)
    code, _, err = typed("create api --group cache --kind Kind")
    assert code == 2
    assert why in err


@pytest.mark.parametrize("text", ["true", "5", "a: 1"])
def test_a_watches_file_that_is_no_list_is_an_error(folder: Path, begun: Type, text: str) -> None:
    (folder / "watches.yaml").write_text(text)
    code, _, err = begun("create api --group cache --kind Kind")
    assert code == 2
    assert "watches.yaml" in err


def test_other_entries_of_the_project_file_are_kept(folder: Path, begun: Type) -> None:
    path = folder / "PROJECT"
    path.write_text(path.read_text() + "multigroup: true\nresources:\n- {kind: Old, group: g, version: v1, extra: 1}\n")
    assert begun("create api --group cache --kind Kind")[0] == 0
    document = parsed(path)
    assert document["multigroup"] is True
    assert [entry.get("extra") for entry in document["resources"]] == [1, None]
