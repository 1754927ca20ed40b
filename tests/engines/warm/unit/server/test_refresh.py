from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from runner.engines.warm.server.model import Model
from runner.engines.warm.server.refresh import Refresh


def refresh(environment: Mapping[str, str]) -> Refresh:
    model = Model(environment, "/scratch", (), {}, b"", frozenset(), (), {}, (frozenset(), ()))
    return Refresh(model, (), (), frozenset())


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("ANSIBLE_CONFIG", raising=False)
    monkeypatch.setattr("runner.engines.warm.server.refresh.constants.CONFIG_FILE", None)


def test_a_run_with_the_environment_of_the_server_is_like_it_whatever_its_own_variables_are() -> None:
    own = {"WATCH_NAMESPACE": "", "KUBECONFIG": "/scratch/KUBECONFIG", "TMPDIR": "/scratch/TMPDIR"}

    assert refresh(own).mismatch({**own, "KUBECONFIG": "/run/a", "TMPDIR": "/run/b"}) == ""


@pytest.mark.parametrize("other", [{"A": "2", "B": ""}, {"B": ""}, {"A": "1"}, {"A": "1", "B": "", "C": ""}])
def test_a_run_with_other_variables_is_not_like_it_and_the_reason_names_them_not_their_values(
    other: Mapping[str, str],
) -> None:
    own = {"A": "1", "B": ""}

    reason = refresh(own).mismatch(other)

    (name,) = {name for name in "ABC" if other.get(name) != own.get(name)}
    assert reason == f"runs have other values of {name} than the fork server"


def test_a_run_that_finds_another_configuration_is_not_like_it(tmp_path: Path) -> None:
    (tmp_path / "ansible.cfg").write_text("[defaults]\n", encoding="utf-8")

    assert refresh({}).mismatch({}) == f"runs find {tmp_path}/ansible.cfg, the fork server none"
