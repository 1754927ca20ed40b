"""One tame module leaves nothing to the next in the same process, or its process ends."""

from __future__ import annotations

import atexit
import logging
import os
import signal
import sys
import tempfile
import threading
import time
import warnings
import weakref
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from runner.engines.warm.modules import module_namespace, tame
from runner.engines.warm.modules.module_namespace import ModuleNamespace
from runner.engines.warm.modules.tame import Between
from tests.kit.forks import in_a_fork

BetweenModules = Callable[[Callable[[], object], Callable[[], object]], str]
POOL = "ansible_collections.kubernetes.core.plugins.module_utils.k8s.client"
basic: Any = import_module("ansible.module_utils.basic")
reported: Any = import_module("ansible.module_utils.common.warnings")
client: Any = import_module("kubernetes.client")
kube_config: Any = import_module("kubernetes.config.kube_config")


@pytest.fixture(autouse=True)
def process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ignore open files and certificates of kubeconfigs that other tests left in this process."""
    monkeypatch.setattr(tame, "_MOST_DESCRIPTORS", len(list(Path("/proc/self/fd").iterdir())) + 32)
    monkeypatch.setattr(kube_config, "_temp_files", {})


@pytest.fixture
def between(namespace: ModuleNamespace) -> BetweenModules:
    """Run something between two modules of a process, and then look at it."""

    def run(act: Callable[[], object], look: Callable[[], object]) -> str:
        def in_process() -> object:
            module_namespace._forget_handlers()
            kept = Between(namespace)
            kept.begin()
            act()
            return kept.end(0), look()

        return in_a_fork(in_process)

    return run


@pytest.fixture
def namespace() -> ModuleNamespace:
    filters = tuple(warnings.filters)
    return ModuleNamespace({}, {}, {}, (), frozenset(), filters, (), {})


def leave_warning() -> None:
    """Do what `warn` and `deprecate` do where there is no controller."""
    for left in (reported._global_warnings, reported._global_deprecations):
        if isinstance(left, list):  # before ansible-core 2.19
            left.append("of the first")
        else:
            left["of the first"] = None


def leave_module() -> None:
    sys.modules["ansible.module_utils.left"] = ModuleType("left")
    del sys.modules["ansible.module_utils.basic"]
    sys.path.insert(0, "/left")


def leave_configuration() -> None:
    configuration = client.Configuration()
    configuration.host = "http://left"
    client.Configuration.set_default(configuration)


def leave_settings() -> None:
    warnings.simplefilter("always", UserWarning)
    logging.getLogger().addHandler(logging.NullHandler())
    tempfile.tempdir = "/left"
    sys.setrecursionlimit(sys.getrecursionlimit() + 7)
    sys.getrecursionlimit = lambda: 7
    signal.signal(signal.SIGUSR1, lambda *_: None)


def settings() -> object:
    return (
        ("always", None, UserWarning, None, 0) in warnings.filters,
        logging.getLogger().handlers,
        tempfile.tempdir,
        sys.getrecursionlimit() == LIMIT,
        signal.getsignal(signal.SIGUSR1).name,  # type: ignore[union-attr]  # one of the signal's own
    )


LIMIT = sys.getrecursionlimit()


@pytest.mark.parametrize(
    ("act", "look", "expected"),
    [
        (leave_warning, lambda: [*reported._global_warnings, *reported._global_deprecations], []),
        (lambda: setattr(basic, "_ANSIBLE_ARGS", b"secret"), lambda: basic._ANSIBLE_ARGS, None),
        (lambda: setattr(basic, "left", 1), lambda: hasattr(basic, "left"), False),
        (
            leave_module,
            lambda: (
                "ansible.module_utils.left" in sys.modules,
                "/left" in sys.path,
                sys.modules[basic.__name__] is basic,
            ),
            (False, False, True),
        ),
        (leave_configuration, lambda: client.Configuration.get_default_copy().host == "http://left", False),
        (leave_settings, settings, (False, [], None, True, "SIG_DFL")),
    ],
    ids=["warnings", "arguments", "variable", "modules", "configuration", "settings"],
)
def test_what_a_module_leaves_is_removed(
    act: Callable[[], object], look: Callable[[], object], expected: object, between: BetweenModules
) -> None:
    assert between(act, look) == repr((True, expected))


def test_exit_handlers_are_called_and_connections_stay_open(between: BetweenModules) -> None:
    called: list[str] = []

    class Pool:
        """Has what urllib3 registers for its connections."""

    def close() -> None:
        called.append("closed")

    close.__module__ = "urllib3.connectionpool"
    pool = Pool()

    def act() -> None:
        weakref.finalize(pool, close)
        atexit.register(called.append, "ended")

    assert between(act, lambda: called) == repr((True, ["ended"]))


def start_thread() -> None:
    threading.Thread(target=time.sleep, args=(60,), daemon=True).start()


def start_process() -> None:
    if os.fork() == 0:
        os._exit(0)


def leave_folder() -> None:
    kept.append(tempfile.TemporaryDirectory())


kept: list[Any] = []


@pytest.mark.parametrize(
    "act",
    [
        start_thread,
        start_process,
        leave_folder,
        lambda: signal.setitimer(signal.ITIMER_REAL, 60),
        lambda: kube_config._temp_files.update(data="file"),
        lambda: kept.extend(os.open("/", os.O_RDONLY) for _ in range(64)),
        lambda: vars(object_of_ansible()).update(left=1),
    ],
    ids=["thread", "process", "folder", "timer", "certificate", "descriptors", "object"],
)
def test_what_cannot_be_removed_ends_the_process(act: Callable[[], object], between: BetweenModules) -> None:
    assert between(act, lambda: None) == repr((False, None))


def object_of_ansible() -> Any:
    """Return an object that a module of Ansible has for its whole life."""
    return basic.kept_object


@pytest.fixture(autouse=True)
def _object(monkeypatch: pytest.MonkeyPatch) -> None:
    made: Any = type("Kept", (), {"__module__": "ansible.module_utils.basic"})()
    monkeypatch.setattr(basic, "kept_object", made, raising=False)


def test_a_module_that_fails_is_the_last_one_of_its_process(namespace: ModuleNamespace) -> None:
    assert Between(namespace).end(1) is False


def test_clients_are_kept_until_another_process_has_read_the_kinds_again(
    namespace: ModuleNamespace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    module: Any = ModuleType(POOL)
    module._pool = {}
    monkeypatch.setitem(sys.modules, POOL, module)
    monkeypatch.setattr(tempfile, "tempdir", None)
    monkeypatch.setenv("TMPDIR", str(tmp_path))

    def act() -> object:
        module_namespace._forget_handlers()
        between = Between(namespace)
        seen = []
        for text in ("first", "", "of another process"):
            if text:
                (tmp_path / "k8srcp-1.json").write_text(text, encoding="utf-8")
            between.begin()
            seen.append(dict(module._pool))
            module._pool["digest"] = "client"
            assert between.end(0)
        return seen

    assert in_a_fork(act) == repr([{}, {"digest": "client"}, {}])


@pytest.mark.parametrize(
    ("arguments", "shares"),
    [
        ({"kind": "Pod", "name": "a"}, True),
        ({"kind": "Pod", "kubeconfig": None, "host": None}, True),
        ({"kubeconfig": "/other"}, False),
        ({"host": "https://other"}, False),
        ({"impersonate_user": "other"}, False),
        ({"verify_ssl": False}, False),
    ],
)
def test_only_calls_with_the_own_kubeconfig_share_a_process(arguments: dict[str, Any], shares: bool) -> None:  # noqa: FBT001 - a case
    assert tame.shares(arguments) is shares


def test_all_arguments_that_select_credentials_are_known() -> None:
    core: Any = import_module("ansible_collections.kubernetes.core.plugins.module_utils.args_common")
    names = {*core.AUTH_ARG_SPEC, *(alias for each in core.AUTH_ARG_SPEC.values() for alias in each.get("aliases", ()))}

    assert names <= tame._ACCESS
