"""Modules, filters, samples, flags, variables, permissions: each construct in a project of its own."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from runner.sdk.migrate import manifests
from runner.sdk.migrate.project import Project
from tests.unit.migrate.projects import Analyse, Write

Rules = Callable[..., list[tuple[str, str]]]
MAIN = "roles/shop/tasks/main.yml"
DEPLOYMENT = """\
kind: Deployment
spec:
  template:
    spec:
      containers:
        - name: manager
          args:
            - --leader-elect
            - --leader-election-id=shop
            - --ansible-args='--vault-password-file /opt/ansible/pwd.yml'
            - --colour=blue
            - --max-concurrent-reconciles
            - many
          env:
            - name: ANSIBLE_VERBOSITY_SHOP_SHOP_EXAMPLE_COM
              value: "12"
            - name: OPERATOR_NAME
              value: shop
        - name: sidecar
          args: [--unknown]
"""
ROLE = """\
kind: ClusterRole
rules:
  - apiGroups: [shop.example.com]
    resources: [shops, shops/status]
    verbs: [get, list, watch{more}]
  - apiGroups: [""]
    resources: [events]
    verbs: [create, patch]
"""
CRD = """\
kind: CustomResourceDefinition
spec:
  group: shop.example.com
  names: {kind: Shop, plural: shops}
  versions: [{name: v1, schema: {openAPIV3Schema: {properties: {spec: {properties: {%s: {type: string}}}}}}}]
"""


@pytest.mark.parametrize(
    ("task", "rule", "fix"),
    [
        ("k8s_facts: {kind: Pod}", "removed-module", "use kubernetes.core.k8s_info"),
        ("community.kubernetes.k8s_facts: {kind: Pod}", "removed-module", "use kubernetes.core.k8s_info"),
        ("k8s_auth: {host: a}", "removed-module", "use community.okd.openshift_auth"),
        ("include: other.yml", "removed-module", "use ansible.builtin.include_tasks"),
        ("action: openshift_raw kind=Pod", "removed-module", "use kubernetes.core.k8s"),
        ("community.kubernetes.k8s: {state: absent}", "old-collection", "use kubernetes.core.k8s"),
        ("docker_container: {name: a}", "missing-collection", "add community.docker to requirements.yml"),
        ("awx.awx.job: {name: a}", "missing-collection", "add awx.awx to requirements.yml"),
        ("debug: {msg: '{{ a | json_query(b) }}'}", "missing-collection", "add community.general to requirements.yml"),
        ("debug: {msg: '{{ a | json_query(b) }}'}", "python-package", "add `RUN pip3 install jmespath`"),
        ("debug: {msg: '{{ lookup(\"dig\", a) }}'}", "missing-collection", "add community.general to requirements.yml"),
        ("debug: {}\n  when: result | succeeded", "removed-filter", "write `is succeeded` instead of `| succeeded`"),
        ("debug: {msg: '{{ meta.name }}'}", "removed-variable", "use ansible_operator_meta.name"),
        ("uri: {url: 'http://localhost:8888/api'}", "proxy-token", "use modules of kubernetes.core or kubectl"),
    ],
)
def test_a_task_that_needs_a_change_is_found_with_its_fix(analyse: Analyse, task: str, rule: str, fix: str) -> None:
    report = analyse({MAIN: f"---\n- {task}\n"})
    (found,) = [each for each in report.findings if each.rule == rule and each.file == MAIN]
    assert (found.line, found.need) == (task.count("\n") + 2, "now")
    assert found.fix.startswith(fix)


def test_a_dockerfile_can_install_collections_and_packages_by_name(rules: Rules) -> None:
    tasks = "- debug: {msg: '{{ a | json_query(b) }}'}\n- community.docker.docker_container: {name: a}\n- k8s: {}\n"
    base = "FROM quay.io/operator-framework/ansible-operator:v1.42.0\n"
    assert rules({MAIN: tasks, "Dockerfile": base}) == [
        ("missing-collection", f"{MAIN}:1"),
        ("python-package", f"{MAIN}:1"),
        ("missing-collection", f"{MAIN}:2"),
    ]
    install = (
        "RUN pip3 install jmespath && ansible-galaxy collection install community.general:==10.0.0 \\\n"
        "      community.docker -p /usr/share/ansible/collections && rm -rf a.b\n"
    )
    assert rules({"Dockerfile": base + install}) == []


def test_tasks_that_work_are_not_found(rules: Rules) -> None:
    tasks = """\
- kubernetes.core.k8s_info: {kind: Pod}
  register: pods
- k8s: {definition: "{{ lookup('template', 'shop.yml.j2') }}"}
- operator_sdk.util.k8s_status: {}
- ansible.builtin.shell: cat a | changed | ipaddr
- ansible.builtin.debug: {msg: "{{ item.meta.name | default('x') }}"}
  when: pods is changed
- name: include
  ansible.builtin.include_role: {name: other, tasks_from: some}
"""
    assert rules({MAIN: tasks, "roles/other/tasks/some.yml": "- ansible.builtin.debug: {}\n"}) == []


@pytest.mark.parametrize(
    ("block", "is_found"),
    [
        ("{% filter indent(4) %}\n{% include 'dashboard.json.j2' %}\n{% endfilter %}", True),
        ("{%- filter indent(4, true) -%}\n  [1, 2]\n{% endfilter %}", True),
        ('{% filter upper %}{"a": 1}{% endfilter %}', True),
        ("{% filter indent(4) %}\n{{ labels | to_nice_yaml }}\n{% endfilter %}", False),
        ("{% filter indent(4) %}\n{% include 'ports.yml.j2' %}\n{% endfilter %}", False),
    ],
)
def test_json_in_a_filter_block_is_to_check_in_projects_for_ansible_2_9(
    rules: Rules, block: str, *, is_found: bool
) -> None:
    template = "roles/shop/templates/dashboard.yml.j2"
    base = "FROM quay.io/operator-framework/ansible-operator:v1.%d.0\n"
    expected = [("filtered-json", f"{template}:2")] if is_found else []
    assert rules({template: f"kind: Dashboard\n{block}\n", "Dockerfile": base % 24}) == expected
    assert rules({"Dockerfile": base % 42}) == []


def test_collections_of_requirements_that_need_a_change(rules: Rules) -> None:
    text = "collections:\n  - {name: community.kubernetes, version: 2.0.1}\n  - operator_sdk.util\n"
    tasks = "- k8s: {state: absent}\n"
    assert rules({"requirements.yml": text, MAIN: tasks}) == [
        ("old-collection", "requirements.yml:2"),
        ("included-collection", "requirements.yml:3"),
    ]


def test_a_template_in_a_sample_is_found_unless_the_watch_evaluates_it(rules: Rules) -> None:
    sample = "apiVersion: shop.example.com/v1\nkind: Shop\nspec:\n  sizes:\n    - small\n    - '{{ big }}'\n"
    other = sample.replace("kind: Shop", "kind: Other")
    files = {"config/samples/shop.yaml": sample, "config/samples/other.yaml": other}
    assert rules(files) == [("template-in-sample", "config/samples/shop.yaml:6")]
    watches = "- {group: shop.example.com, version: v1, kind: Shop, role: shop, markUnsafe: false}\n"
    assert rules({**files, "watches.yaml": watches}) == []


@pytest.mark.parametrize(("mark", "line"), [("|-\n", 6), ("'", 5)])
def test_a_kind_without_a_sample_has_the_examples_of_the_bundle(rules: Rules, mark: str, line: int) -> None:
    examples = '      [{"apiVersion": "shop.example.com/v1", "kind": "Shop", "spec": {"size": "{{ big }}"}}]'
    bundle = (
        "apiVersion: operators.coreos.com/v1alpha1\nkind: ClusterServiceVersion\nmetadata:\n"
        f"  annotations:\n    alm-examples: {mark}{examples}{mark[:1].strip('|')}\n"
    )
    files = {"deploy/olm/shop.clusterserviceversion.yaml": bundle}
    assert rules(files) == [("template-in-sample", f"deploy/olm/shop.clusterserviceversion.yaml:{line}")]
    sample = "apiVersion: shop.example.com/v1\nkind: Shop\n"
    assert rules({**files, "config/samples/shop.yaml": sample}) == []


def test_fields_that_ansible_interprets_are_found_in_samples_and_crds(analyse: Analyse) -> None:
    sample = "apiVersion: shop.example.com/v1\nkind: Shop\nspec:\n  ansibleUser: root\n"
    report = analyse({"config/samples/shop.yaml": sample, "config/crd/bases/shops.yaml": CRD % "ansibleUser"})
    found = [each for each in report.findings if each.rule == "ansible-variable"]
    assert [each.place for each in found] == ["config/crd/bases/shops.yaml", "config/samples/shop.yaml:4"]
    assert found[1].fix.startswith("add `allowAnsibleVariables: [ansible_user]` to the watch of Shop")


def test_flags_and_variables_of_the_operators_container_are_checked(analyse: Analyse) -> None:
    report = analyse({"config/manager/manager.yaml": DEPLOYMENT})
    found = {
        each.line: (each.rule, each.need) for each in report.findings if each.file == "config/manager/manager.yaml"
    }
    assert found == {11: ("flag", "now"), 12: ("flag", "now"), 17: ("variable", "check")}


def test_the_environment_of_the_operators_container_has_the_literal_values(analyse: Analyse) -> None:
    analyse({"config/manager/manager.yaml": DEPLOYMENT.replace("value: shop", "value: $(NAME)")})
    assert manifests.variables(Project({})) == {"ANSIBLE_VERBOSITY_SHOP_SHOP_EXAMPLE_COM": "12"}


def test_a_flag_of_the_dockerfile_and_of_a_json_patch_is_checked(rules: Rules) -> None:
    files = {
        "Dockerfile": 'FROM quay.io/operator-framework/ansible-operator:v1.42.3\nENTRYPOINT ["/tini", "--", '
        '"ansible-operator", "run", \\\n  "--reconcile-period=0s", "--old"]\n',
        "config/default/patch.yaml": "- {op: add, path: /spec/template/spec/containers/0/args/0, value: --older=1}\n",
    }
    assert rules(files) == [("flag", "Dockerfile:2"), ("flag", "config/default/patch.yaml:1")]


@pytest.mark.parametrize(
    "copied",
    [
        "ansible.cfg /etc/ansible/ansible.cfg",
        "--chown=1001 watches.yaml ansible.cfg /etc/ansible/",
        "ansible.cfg ${HOME}/.ansible.cfg",
    ],
)
def test_trials_have_the_environment_of_the_image(project: Path, write: Write, copied: str) -> None:
    write("ansible.cfg", "[defaults]\nhash_behaviour = merge\n")
    write(
        "Dockerfile",
        "FROM quay.io/operator-framework/ansible-operator:v1.42.3\nARG BUILD\n"
        f"ENV BUILD=${{BUILD}} COLOUR=red ANSIBLE_LIBRARY=/opt/ansible/library\nCOPY {copied}\n",
    )
    assert manifests.variables(Project({})) == {
        "COLOUR": "red",
        "ANSIBLE_LIBRARY": f"{project}/library",
        "ANSIBLE_CONFIG": f"{project}/ansible.cfg",
    }
    write("Dockerfile", "FROM quay.io/operator-framework/ansible-operator:v1.42.3\nCOPY ansible.cfg /opt/ansible/\n")
    assert manifests.variables(Project({})) == {}


def test_variables_of_the_dockerfile_are_checked(rules: Rules) -> None:
    text = "FROM quay.io/operator-framework/ansible-operator:v1.42.3\nENV ANSIBLE_VERBOSITY=4 \\\n  A='b c'\n"
    assert rules({"Dockerfile": text}) == []
    assert rules({"Dockerfile": text.replace("=4", "=high")}) == [("variable", "Dockerfile:2")]


@pytest.mark.parametrize(("listed", "is_found"), [("- patch.yaml", True), ("#- patch.yaml", False)])
def test_a_patch_counts_only_if_its_kustomization_lists_it(rules: Rules, listed: str, *, is_found: bool) -> None:
    files = {
        "config/default/kustomization.yaml": f"patches:\n{listed}\n",
        "config/default/patch.yaml": DEPLOYMENT,
    }
    assert bool(rules(files)) is is_found


@pytest.mark.parametrize(
    ("more", "expected"),
    [
        ("", ["no role of the manifests grants patch of shops/status"]),
        (", patch", []),
    ],
)
def test_permissions_that_no_role_grants_are_found(analyse: Analyse, more: str, expected: list[str]) -> None:
    files = {"config/rbac/role.yaml": ROLE.replace("{more}", more), "config/crd/bases/shops.yaml": CRD % "size"}
    assert [each.message for each in analyse(files).findings if each.rule == "permission"] == expected


def test_without_the_rights_for_events_only_a_check_is_advised(analyse: Analyse) -> None:
    files = {"config/rbac/role.yaml": ROLE.replace("events", "pods").replace("{more}", "")}
    (found,) = [each for each in analyse(files).findings if each.rule == "permission"]
    assert (found.need, found.message) == ("check", "no role of the manifests grants create, patch of events")


@pytest.mark.parametrize(
    ("files", "rule"),
    [
        ({"watches.yaml": "- {group: shop.example.com, version: v1, kind: Shop, role: gone}\n"}, "error"),
        ({"watches.yaml": "- {group: g.example.com, version: v1, kind: S, role: shop, colour: 1}\n"}, "warning"),
    ],
)
def test_problems_that_validate_reports_are_findings(analyse: Analyse, files: Mapping[str, str], rule: str) -> None:
    assert rule in {each.rule for each in analyse(files).findings}


@pytest.mark.parametrize(
    "manifest", ["kind: [Role]\n", "kind: {}\n", "kind: Role\nrules: 1\n", "kind: Role\nrules: [1]\n"]
)
def test_a_file_that_is_no_manifest_has_no_rules(rules: Rules, manifest: str) -> None:
    assert "permission" not in dict(rules({"config/values.yaml": manifest}))
