"""What roles are made of shows the same with both engines."""

from __future__ import annotations

from importlib.metadata import version
from typing import TYPE_CHECKING

import pytest

from runner.core.engine.job import Outcome
from tests.integration.engine.runs import ANSIBLE_MASK

if TYPE_CHECKING:
    from tests.integration.engine.parity.comparison import Parity

pytestmark = [pytest.mark.asyncio(loop_scope="session")]


async def test_tasks_that_never_leave_the_controller(parity: Parity) -> None:
    cold = await parity("controller.yml", Outcome.FAILED, settled=True)

    assert cold.result.failures[-1].message == "the end"
    assert str(cold.task("deprecated")["msg"]).startswith("['localhost']")


@pytest.mark.nightly
async def test_modules_of_a_project_of_every_kind(parity: Parity) -> None:
    cold = await parity("library.yml", settled=True)

    assert cold.task("binary module")["text"] == "some words"
    assert cold.task("other interpreter")["params"]["text"] == "other"
    assert cold.task("shadowed utils")["splitter"] == "of the role, in place of Ansible's own"
    assert cold.task("so do utils")["who"] == "the project's"


@pytest.mark.nightly
async def test_modules_that_roles_use_and_the_files_they_leave(parity: Parity) -> None:
    cold = await parity("modules.yml", settled=True)

    assert cold.task("uri posting")["content"].startswith("POST /post")
    if not version("ansible-core").startswith("2.18."):  # which refuses these arguments
        assert cold.task("args")["stdout"] == "args"


async def test_plugins_of_every_type(parity: Parity) -> None:
    cold = await parity("plugins.yml", Outcome.FAILED)

    assert cold.task("connection")["stderr"].strip() == "by own_local"
    assert "dead state" in cold.stdout()


async def test_collections_with_their_redirects_groups_and_roles(parity: Parity) -> None:
    cold = await parity("collections.yml", Outcome.FAILED)

    assert cold.task("moved and deprecated")["far"] == "shared"
    assert "it is gone" in cold.result.failures[-1].message


@pytest.mark.nightly
async def test_settings_vault_and_callbacks_of_an_ansible_cfg(parity: Parity) -> None:
    folder = parity.place.project / "cfg"

    cold = await parity(
        "cfg/configured.yml",
        environment={
            "ANSIBLE_CONFIG": str(folder / "ansible.cfg"),
            # ansible-runner sets these two itself, so that those of an ansible.cfg are not seen.
            "ANSIBLE_CALLBACK_PLUGINS": str(parity.place.project / "callback_plugins"),
            "ANSIBLE_STDOUT_CALLBACK": "own_stdout",
            "PARITY_WORK": str(parity.place.work()),
        },
    )

    masked = f"{ANSIBLE_MASK} {ANSIBLE_MASK}" if ANSIBLE_MASK else ""
    assert cold.task("decrypted")["msg"] == (masked or "hidden behind vault inline secret")
    assert cold.task("decrypted in a module")["stdout"] == (ANSIBLE_MASK or "hidden behind vault")
    assert "own: decrypted is well" in cold.stdout()
    assert '["by-cfg", "start", "configured.yml"]' in cold.files["work/notes"]["content"]


async def test_contract_an_ansible_cfg_in_the_working_directory_or_beside_the_playbook_has_no_effect(
    parity: Parity, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As with the Go operator: a run works in its own folder, so Ansible does not find that file."""
    monkeypatch.chdir(parity.place.project / "cfg")
    without = await parity("cfg/decrypted.yml", Outcome.FAILED)

    assert "no vault secrets found" in without.result.message


@pytest.mark.nightly
async def test_vault_passwords_by_arguments(parity: Parity) -> None:
    password = parity.place.project / "cfg" / "password"

    cold = await parity("cfg/decrypted.yml", ansible_args=f"--vault-password-file {password}")

    assert cold.task("decrypted")["msg"] == (ANSIBLE_MASK or "hidden behind vault")


@pytest.mark.nightly
async def test_several_hosts_strategies_batches_and_delegation(parity: Parity) -> None:
    cold = await parity("hosts.yml", Outcome.FAILED, any_order=True)

    assert str(cold.task("facts of all")["msg"]) == "['h1', 'h2', 'h3', 'h4'] h3"
    assert len(cold.of("playbook_on_stats")) == 1


@pytest.mark.parametrize(
    "arguments",
    [
        pytest.param("--tags one --check --diff -e extra=two", id="check"),
        pytest.param(
            "--skip-tags two,rare --start-at-task template -e @vars/other.yml", id="start", marks=pytest.mark.nightly
        ),
    ],
)
async def test_tags_modes_and_other_arguments(parity: Parity, arguments: str) -> None:
    arguments = arguments.replace("@", f"@{parity.place.project}/")

    cold = await parity("modes.yml", ansible_args=arguments, verbosity=1)

    assert cold.of("playbook_on_stats")


@pytest.mark.nightly
async def test_a_role_with_facts(parity: Parity) -> None:
    cold = await parity(parity.role("gathered"), environment={"ANSIBLE_GATHERING": "implicit"})

    assert "distribution" in cold.task("gathered")["msg"]


@pytest.mark.xfail(
    version("ansible-core").startswith(("2.18.", "2.19.", "2.20.")),
    reason="collections are told of when they are loaded, see docs/limits.md",
)
@pytest.mark.nightly
async def test_verbose_output(parity: Parity) -> None:
    cold = await parity("verbose.yml", verbosity=4)

    assert "EXEC" in cold.stdout()


@pytest.mark.parametrize(
    ("playbook", "said"),
    [
        ("broken_module.yml", "couldn't resolve module"),
        pytest.param("broken_yaml.yml", "quoted scalar", marks=pytest.mark.nightly),
        pytest.param("missing.yml", "missing", marks=pytest.mark.nightly),
    ],
)
async def test_playbooks_that_ansible_refuses_to_start(parity: Parity, playbook: str, said: str) -> None:
    cold = await parity(playbook, Outcome.FAILED)

    assert said in cold.result.message.replace("\n", " ")
