from __future__ import annotations

from pathlib import Path

import pytest

from runner.sdk.devcluster import folders
from runner.values.errors import ConfigError


def test_the_xdg_variables_are_followed() -> None:
    environ = {"HOME": "/home/me", "XDG_CACHE_HOME": "/cache", "XDG_STATE_HOME": "/state"}
    assert folders.binaries(environ) == Path("/cache/ansible-operator/controlplane")
    assert folders.clusters(environ) == Path("/state/ansible-operator/clusters")


@pytest.mark.parametrize("given", ["", "relative/folder"])
def test_without_a_usable_variable_the_home_folder_is_used(given: str) -> None:
    environ = {"HOME": "/home/me", "XDG_CACHE_HOME": given}
    assert folders.binaries(environ) == Path("/home/me/.cache/ansible-operator/controlplane")
    assert folders.clusters(environ) == Path("/home/me/.local/state/ansible-operator/clusters")


@pytest.mark.parametrize("name", ["", "..", "a/b", "Upper", "-a", "a-", "a" * 41])
def test_a_name_that_does_not_fit_a_file_name_is_refused(name: str) -> None:
    with pytest.raises(ConfigError, match="lower case"):
        folders.cluster({}, name)
