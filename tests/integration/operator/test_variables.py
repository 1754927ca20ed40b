"""What a role sees of its resource and its surroundings."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from runner.core.status.report import IGNORED_VARIABLES_ADVICE

if TYPE_CHECKING:
    from tests.kit.objects import Things
    from tests.kit.operator import Operator, Project

DUMP = """
    - name: Show what there is
      ansible.builtin.copy:
        content: "{{ shown | to_json }}"
        dest: "{{ lookup('env', 'NOTES') }}-{{ ansible_operator_meta.name }}"
        mode: "0600"
      vars:
        shown:
          meta: "{{ ansible_operator_meta }}"
          whole_name: "{{ _test_example_com_thing.metadata.name }}"
          as_written: "{{ _test_example_com_thing_spec }}"
          by_key: "{{ replica_count | default('unset') }}"
          why: "{{ ansible_operator_run }}"
          nested: "{{ nested | default({}) }}"
          nothing: "{{ nothing is defined and nothing is none }}"
          empty: "{{ empty | default('unset') }}"
          lists: "{{ lists | default([]) }}"
          greeting: "{{ greeting | default('') }}"
          same_key: "{{ same_key | default('') }}"
          from_watch: "{{ from_watch }}"
          environment: "{{ lookup('env', 'COLOUR') }}"
          playbook_dir: "{{ playbook_dir }}"
          python: "{{ ansible_playbook_python }}"
          kubeconfig: "{{ lookup('env', 'K8S_AUTH_KUBECONFIG') }}"
          same_kubeconfig: "{{ lookup('env', 'K8S_AUTH_KUBECONFIG') == lookup('env', 'KUBECONFIG') }}"
"""


COMMANDS = "    - ansible.builtin.command: echo run\n    - ansible.builtin.ping:\n"


def _shown(project: Project, name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((project.folder / f"notes-{name}").read_text())
    return found


def no_spec_selects_a_connection_an_interpreter_or_a_command(
    project: Project, things: Things, operator: Operator
) -> None:
    """The role has a command, and the watch allows `ansible_user`."""
    proof = project.folder / "proof"
    command = f"/bin/sh -c 'touch {proof}' #"
    attacks = {
        "connection": {
            "ansibleConnection": "ssh",
            "ansibleHost": "x",
            "ansibleSshCommonArgs": f"-o ProxyCommand={command}",
        },
        "shell": {"ansibleShellExecutable": command},
        "become": {"ansibleBecome": True, "ansibleBecomeExe": command, "ansibleBecomeMethod": "sudo"},
        "interpreter": {"ansiblePythonInterpreter": command, "ansible_python_interpreter": command},
        "magic": {
            "hostvars": 1,
            "inventoryHostname": "x",
            "omit": "x",
            "vars": {},
            "playbookDir": "/x",
            "rolePath": "/",
        },
    }
    for name, spec in attacks.items():
        things.create(name, spec)
    for name in attacks:
        things.await_success(name)
        assert things.conditions(name)["IgnoredVariables"]["status"] == "True"
    assert "ansible_ssh_common_args" in things.conditions("connection")["IgnoredVariables"]["message"]
    assert not proof.exists()
    assert operator.await_line(IGNORED_VARIABLES_ADVICE, name="shell")["level"] == "warning"

    things.create("allowed", {"ansibleUser": "somebody"})
    things.await_success("allowed")
    assert "IgnoredVariables" not in things.conditions("allowed")

    things.merge("shell", {"spec": {"ansibleShellExecutable": None}})
    things.await_condition("shell", "IgnoredVariables", "False")


def test_a_role_sees_its_spec_its_object_and_its_surroundings_and_no_spec_selects_a_connection_or_a_command(
    project: Project, things: Things
) -> None:
    project.role("thing", DUMP + COMMANDS)
    project.watch("thing", vars={"from_watch": "watch", "replicaCount": 9}, allowAnsibleVariables=["ansible_user"])
    operator = project.start(environment={"NOTES": str(project.folder / "notes"), "COLOUR": "blue"})
    spec = {
        "replicaCount": 3,
        "nested": {"egressIPs": [{"ipAddress": "::1"}], "with-dash": {"": 1}},
        "nothing": None,
        "empty": "",
        "lists": [[1, [2]], [], {}],
        "greeting": "žluťoučký 猫 🐈 {{ 1 + 1 }} {% raw %} {# no #}",
        "sameKey": "first",
        "same-key": "second",
        "long": "x" * 200_000,
    }
    things.create("odd", spec)
    things.create("bare")
    things.await_success("odd")
    things.await_success("bare")
    odd = _shown(project, "odd")
    assert odd["meta"] == {"name": "odd", "namespace": things.namespace}
    assert odd["whole_name"] == "odd"
    assert odd["as_written"] == spec
    assert str(odd["by_key"]) == "3"  # before ansible-core 2.19 a template in a longer value is text
    assert odd["nested"] == {"egress_ips": [{"ip_address": "::1"}], "with_dash": {"": 1}}
    assert odd["nothing"] is True
    assert odd["empty"] == ""
    assert odd["lists"] == [[1, [2]], [], {}]
    assert odd["greeting"] == spec["greeting"]
    assert odd["same_key"] in {"first", "second"}
    assert odd["from_watch"] == "watch"
    assert odd["environment"] == "blue"
    assert odd["playbook_dir"].endswith("/odd/project")
    assert odd["python"]
    assert odd["same_kubeconfig"] is True
    bare = _shown(project, "bare")
    assert bare["as_written"] == {}
    assert bare["by_key"] == "unset"
    assert odd["why"] == {"reason": "created", "details": [], "failures": 0}
    things.merge("odd", {"spec": {"nested": {"egressIPs": []}, "extra": "é"}})
    things.await_success("odd")
    assert _shown(project, "odd")["why"]["details"] == ["spec.extra", "spec.nested.egressIPs"]
    assert operator.await_line("Two keys of the spec map to the same variable", name="odd")
    hint = [line for line in operator.lines(name="odd") if "markUnsafe" in line["msg"]]
    assert [line["path"] for line in hint] == ["spec.greeting"]
    no_spec_selects_a_connection_an_interpreter_or_a_command(project, things, operator)
