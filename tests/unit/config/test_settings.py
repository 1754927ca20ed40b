from __future__ import annotations

import shlex
from argparse import Namespace
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from runner.base.config import sources
from runner.base.config.options import Option
from runner.base.config.settings import OPTIONS
from runner.base.config.sources import LoadedSettings
from runner.values.errors import ConfigError
from runner.values.objects import GVK

MEMCACHED = GVK("cache.example.com", "v1alpha1", "Memcached")


OF_THE_GO_OPERATOR = """
    watches-file inject-owner-ref ansible-verbosity ansible-roles-path ansible-collections-path ansible-args
    reconcile-period max-concurrent-reconciles metrics-bind-address metrics-secure metrics-require-rbac
    health-probe-bind-address leader-elect leader-election-id leader-election-namespace leader-elect-lease-duration
    leader-elect-renew-deadline graceful-shutdown-timeout ansible-log-events proxy-port kubeconfig zap-log-level
    zap-encoder zap-devel enable-http2 metrics-addr enable-leader-election leader-elect-resource-lock
    zap-stacktrace-level zap-time-encoding namespace context
"""
"""Flags of the Go operator, and the two that select a cluster and its namespaces."""


def test_few_flags_are_our_own() -> None:
    flags = {each.flag for each in OPTIONS}
    before = set(OF_THE_GO_OPERATOR.split())
    assert flags >= before
    assert len(flags - before) <= 18


def loaded(environ: dict[str, str] | None = None, /, **flags: str | list[str]) -> LoadedSettings:
    given = {name: value if isinstance(value, list) else [value] for name, value in flags.items()}
    return sources.load(Namespace(**given), environ or {})


def refused(environ: dict[str, str] | None = None, /, **flags: str | list[str]) -> list[str]:
    with pytest.raises(ConfigError) as raised:
        loaded(environ, **flags)
    return str(raised.value).splitlines()


def test_without_flags_and_variables_the_defaults_of_the_contract_apply() -> None:
    found, warnings = loaded()
    assert warnings == ()
    assert found.watches_file == Path("watches.yaml")
    assert found.namespaces == ()
    assert found.reconcile_period == 36_000
    assert found.cpus >= 1
    assert found.workers_for(MEMCACHED) == max(2, found.cpus)
    assert found.most_runs([MEMCACHED]) == 2 * found.cpus
    assert found.graceful_shutdown_timeout == 30
    assert found.inject_owner_ref is True
    assert found.runner_dir == Path("/tmp/ansible-operator/runner")
    assert found.ansible_verbosity == 2
    assert (found.ansible_roles_path, found.ansible_collections_path, found.ansible_args) == ("", "", "")
    assert found.ansible_log_events == "tasks"
    assert found.run_memory_limit >= 0
    assert (found.kubeconfig, found.context) == (None, None)
    assert (found.proxy_port, found.user_metrics_port) == (8888, None)
    assert (found.health_probe_bind_address, found.metrics_bind_address) == (":6789", ":8443")
    assert (found.metrics_secure, found.metrics_require_rbac, found.leader_elect) == (False, False, False)
    assert (found.leader_elect_lease_duration, found.leader_elect_renew_deadline) == (15, 10)
    assert (found.log_level, found.log_format) == ("info", "auto")


@pytest.mark.parametrize("address", ["127.0.0.1:0", "127.8.9.1:8000", "[::1]:8000", "localhost:8000", "0"])
def test_the_page_is_shown_on_loopback(address: str) -> None:
    assert loaded().settings.ui_bind_address is None
    assert loaded(ui_bind_address=address).settings.ui_bind_address == address


@pytest.mark.parametrize("address", [":8000", "0.0.0.0:8000", "[::]:8000", "10.0.0.1:80", "example.com:80", "127.1:80"])
def test_the_page_is_shown_nowhere_else(address: str) -> None:
    (problem,) = refused(ui_bind_address=address)
    assert problem.startswith(f"--ui-bind-address: invalid loopback address {address!r}: use 127.0.0.1:PORT")
    found, warnings = loaded({"ANSIBLE_OPERATOR_UI_BIND_ADDRESS": address})
    assert found.ui_bind_address is None
    assert len(warnings) == 1


@pytest.mark.parametrize(("cpus", "workers", "runs"), [(1, 2, 2), (2, 2, 4), (5, 5, 10)])
def test_the_quota_of_half_a_cpu_gives_two_workers_so_that_one_is_reserved_for_changes(
    cpus: int, workers: int, runs: int
) -> None:
    found = replace(loaded().settings, cpus=cpus)
    assert found.workers_for(MEMCACHED) == workers
    assert found.most_runs([MEMCACHED]) == runs
    assert loaded(max_concurrent_reconciles="1").settings.workers_for(MEMCACHED) == 1


class TestPrecedence:
    def test_a_flag_wins_over_the_environment_and_that_over_the_default(self) -> None:
        environ = {"ANSIBLE_OPERATOR_RECONCILE_PERIOD": "1h"}
        assert loaded(environ, reconcile_period="1m").settings.reconcile_period == 60
        assert loaded(environ).settings.reconcile_period == 3600

    @pytest.mark.parametrize(
        "option", [each for each in OPTIONS if each.other_variable], ids=lambda option: option.flag
    )
    def test_a_variable_of_another_name_comes_after_the_flags_own(self, option: Option) -> None:
        def value(**environ: str) -> Any:
            found = getattr(loaded(environ).settings, option.field)
            return ",".join(found) if isinstance(found, tuple) else found

        assert value(**{option.other_variable: "a", option.variable: "b"}) == "b"
        assert value(**{option.other_variable: "a"}) == "a"
        assert value(**{option.other_variable: "a", option.variable: ""}) == "a"

    def test_a_repeated_flag_has_its_last_value(self) -> None:
        assert loaded(ansible_verbosity=["1", "4"]).settings.ansible_verbosity == 4

    def test_ansible_verbosity_in_the_environment_keeps_ansibles_own_meaning(self) -> None:
        assert loaded({"ANSIBLE_VERBOSITY": "5"}).settings.ansible_verbosity == 2

    @pytest.mark.parametrize(
        ("environ", "raised"),
        [
            ({}, False),
            ({"ANSIBLE_VERBOSITY": "0"}, False),
            ({"ANSIBLE_VERBOSITY": "1"}, True),
            ({"ANSIBLE_VERBOSITY_MEMCACHED_CACHE_EXAMPLE_COM": "2"}, False),
            ({"ANSIBLE_VERBOSITY_MEMCACHED_CACHE_EXAMPLE_COM": "3"}, True),
            ({"ANSIBLE_VERBOSITY_OTHER_CACHE_EXAMPLE_COM": "3"}, False),
            ({"ANSIBLE_OPERATOR_ANSIBLE_VERBOSITY": "4"}, False),
        ],
    )
    def test_contract_the_environment_raises_the_verbosity(self, environ: dict[str, str], *, raised: bool) -> None:
        assert loaded(environ).settings.is_raised(MEMCACHED) is raised

    def test_an_invalid_environment_variable_is_a_warning_and_the_default_applies(self) -> None:
        found, warnings = loaded({"ANSIBLE_OPERATOR_RECONCILE_PERIOD": "soon", "ANSIBLE_DEBUG_LOGS": "perhaps"})
        assert (found.reconcile_period, found.ansible_debug_logs) == (36_000, False)
        assert [line.split(" is ignored: ")[0] for line in warnings] == [
            "environment variable ANSIBLE_OPERATOR_RECONCILE_PERIOD",
            "environment variable ANSIBLE_DEBUG_LOGS",
        ]

    def test_all_invalid_flags_are_reported_at_once(self) -> None:
        lines = refused(reconcile_period="soon", ansible_verbosity="8", max_concurrent_reconciles="0", proxy_port="x")
        assert [line.partition(": ")[0] for line in lines] == [
            "--reconcile-period",
            "--max-concurrent-reconciles",
            "--ansible-verbosity",
            "--proxy-port",
        ]


class TestValues:
    @pytest.mark.parametrize(
        ("flags", "environ", "namespaces"),
        [
            (["a"], "b", ("a",)),
            (["a", "b,a"], "", ("a", "b")),
            ([], " a , ,b", ("a", "b")),
            ([], "", ()),
            ([""], "b", ()),
        ],
    )
    def test_namespaces_come_from_repeated_flags_or_comma_lists(
        self, flags: list[str], environ: str, namespaces: tuple[str, ...]
    ) -> None:
        given: dict[str, list[str]] = {"namespace": flags} if flags else {}
        assert loaded({"WATCH_NAMESPACE": environ}, **given).settings.namespaces == namespaces

    @pytest.mark.parametrize(("text", "seconds"), [("0", 0), ("0s", 0), ("off", 0), ("-1s", 0), ("1h30m", 5400)])
    def test_a_period_of_zero_or_off_means_no_periodic_runs(self, text: str, seconds: float) -> None:
        assert loaded(reconcile_period=text).settings.reconcile_period == seconds

    @pytest.mark.parametrize("text", [":8080", "127.0.0.1:0", "[::1]:8080", "localhost:80", "0"])
    def test_an_address_is_host_and_port_or_nothing(self, text: str) -> None:
        assert loaded(metrics_bind_address=text).settings.metrics_bind_address == text

    @pytest.mark.parametrize("text", ["Tasks", "NOTHING", "everything"])
    def test_log_events_are_case_insensitive(self, text: str) -> None:
        assert loaded(ansible_log_events=text).settings.ansible_log_events == text.lower()

    @pytest.mark.parametrize(("text", "value"), [("T", True), ("1", True), ("False", False), ("0", False)])
    def test_booleans_are_those_of_go(self, text: str, value: bool) -> None:  # noqa: FBT001 - a case, not a flag
        assert loaded({"ANSIBLE_DEBUG_LOGS": text}).settings.ansible_debug_logs is value

    @pytest.mark.parametrize(
        ("text", "words"),
        [
            ("'--vault-password-file /opt/ansible/pwd.yml'", ["--vault-password-file", "/opt/ansible/pwd.yml"]),
            ("--vault-password-file /opt/ansible/pwd.yml", ["--vault-password-file", "/opt/ansible/pwd.yml"]),
            ("'-e 'a=b c''", ["-e", "a=b c"]),
            ("--tags 'a b'", ["--tags", "a b"]),
            ("'--check'", ["--check"]),
            ("''", []),
            ("", []),
        ],
    )
    def test_contract_ansible_args_lose_the_single_quotes_around_the_whole_value(
        self, text: str, words: list[str]
    ) -> None:
        assert shlex.split(loaded(ansible_args=text).settings.ansible_args) == words
        assert shlex.split(loaded({"ANSIBLE_OPERATOR_ANSIBLE_ARGS": text}).settings.ansible_args) == words

    @pytest.mark.parametrize(
        ("text", "size"),
        [("0", 0), ("1000", 1000), ("300k", 300_000), ("512Mi", 512 << 20), ("2Gi", 2 << 30), ("1T", 10**12)],
    )
    def test_amounts_of_memory_are_written_as_kubernetes_does(self, text: str, size: int) -> None:
        assert loaded(run_memory_limit=text).settings.run_memory_limit == size

    def test_disabled_shortcuts_are_a_list(self) -> None:
        assert loaded(warm_without="modules, tasks,").settings.warm_without == {"modules", "tasks"}
        assert loaded().settings.warm_without == frozenset()

    def test_the_run_folders_root_is_absolute(self) -> None:
        assert loaded(runner_dir="runs").settings.runner_dir == Path.cwd() / "runs"

    @pytest.mark.parametrize(
        ("flag", "text", "problem"),
        [
            *[
                ("health_probe_bind_address", text, "")
                for text in ("", "8080", "localhost", "a b:1", ":99999", "::1:80")
            ],
            *[
                ("run_memory_limit", text, f"invalid size {text!r}: use a number ")
                for text in ("", "-1", "1.5Gi", "2GB", "lots", "512mi")
            ],
            ("ansible_log_events", "some", "invalid value 'some': use tasks, everything or nothing"),
            ("graceful_shutdown_timeout", "-1s", "invalid duration '-1s': use 0s or more"),
            ("zap_log_level", "loud", "invalid log level 'loud'"),
            ("leader_election_id", "Memcached operator", "invalid Lease name 'Memcached operator'"),
        ],
    )
    def test_an_invalid_value_is_refused_by_the_name_that_was_used(self, flag: str, text: str, problem: str) -> None:
        (line,) = refused(**{flag: text})
        assert line.startswith(f"--{flag.replace('_', '-')}: {problem}")


class TestZap:
    @pytest.mark.parametrize(
        ("flags", "level", "form"),
        [
            ({"zap_log_level": "error"}, "error", "auto"),
            ({"zap_log_level": "3"}, "debug", "auto"),
            ({"zap_log_level": "panic"}, "error", "auto"),
            ({"zap_encoder": "console"}, "info", "console"),
            ({"zap_devel": "true"}, "debug", "console"),
            ({"zap_devel": "true", "zap_log_level": "info", "log_format": "json"}, "info", "json"),
            ({"log_level": "warn", "zap_stacktrace_level": "error", "zap_time_encoding": "iso8601"}, "warning", "auto"),
        ],
    )
    def test_flags_of_zap_are_aliases_of_the_flags_for_logs(self, flags: dict[str, str], level: str, form: str) -> None:
        found, warnings = loaded(**flags)
        assert (found.log_level, found.log_format, warnings) == (level, form, ())

    def test_an_own_flag_wins_over_its_zap_alias_with_a_warning(self) -> None:
        found, warnings = loaded(log_level="error", zap_log_level="debug")
        assert found.log_level == "error"
        assert warnings == ("--zap-log-level is ignored: --log-level takes precedence",)


class TestDeprecated:
    def test_a_deprecated_flag_works_and_its_warning_names_the_successor(self) -> None:
        found, warnings = loaded(metrics_addr=":9999")
        assert found.metrics_bind_address == ":9999"
        assert warnings == ("--metrics-addr is deprecated: use --metrics-bind-address",)

    @pytest.mark.parametrize("flag", ["leader_elect_resource_lock", "enable_http2"])
    def test_a_deprecated_flag_without_successor_is_a_warning_alone(self, flag: str) -> None:
        assert loaded(**{flag: "true"}).settings == loaded().settings
        (warning,) = loaded(**{flag: "true"}).warnings
        assert warning.startswith(f"--{flag.replace('_', '-')} is deprecated: remove this flag")

    def test_the_operators_name_is_a_deprecated_name_of_the_lease(self) -> None:
        found, warnings = loaded({"OPERATOR_NAME": "memcached"})
        assert found.leader_election_id == "memcached"
        assert warnings == ("environment variable OPERATOR_NAME is deprecated: use --leader-election-id",)
        assert loaded({"OPERATOR_NAME": "memcached"}, leader_election_id="x").warnings == ()


class TestReplicas:
    def test_leader_election_requires_a_lease_name(self) -> None:
        for flags in ({"leader_elect": "true"}, {"enable_leader_election": "true"}):
            (line,) = refused(**flags)
            assert "requires --leader-election-id" in line
        assert loaded(leader_elect="true", leader_election_id="memcached").settings.leader_elect

    @pytest.mark.parametrize(("lease", "renew"), [("10s", "10s"), ("5s", "10s"), ("15s", "0s")])
    def test_the_renew_deadline_must_be_shorter_than_the_lease_duration(self, lease: str, renew: str) -> None:
        (line,) = refused(
            leader_elect="true",
            leader_election_id="a",
            leader_elect_lease_duration=lease,
            leader_elect_renew_deadline=renew,
        )
        assert line.startswith("--leader-elect-renew-deadline must be ")

    def test_flags_that_tune_leader_election_are_accepted_without_it(self) -> None:
        found = loaded(leader_election_id="a", leader_election_namespace="b", leader_elect_lease_duration="5s").settings
        assert (found.leader_election_id, found.leader_elect_lease_duration, found.leader_elect) == ("a", 5, False)


class TestMetrics:
    def test_a_certificate_may_be_given_by_its_folder(self) -> None:
        found = loaded(metrics_secure="true", metrics_cert_path="/certs").settings
        assert found.metrics_cert_path == Path("/certs")
        assert loaded().settings.metrics_cert_path is None

    @pytest.mark.parametrize(("flag", "value"), [("metrics_cert_path", "/certs"), ("metrics_require_rbac", "true")])
    def test_a_certificate_and_rbac_for_metrics_need_secure_metrics(self, flag: str, value: str) -> None:
        problem = f"--{flag.replace('_', '-')} requires --metrics-secure"
        assert any(problem in line for line in refused(**{flag: value}))


class TestOneKind:
    def test_the_environment_wins_over_the_flag_for_one_kind(self) -> None:
        environ = {
            "ANSIBLE_VERBOSITY_MEMCACHED_CACHE_EXAMPLE_COM": "4",
            "MAX_CONCURRENT_RECONCILES_MEMCACHED_CACHE_EXAMPLE_COM": "7",
        }
        found = loaded(environ, ansible_verbosity="1", max_concurrent_reconciles="2").settings
        assert (found.verbosity_for(MEMCACHED), found.workers_for(MEMCACHED)) == (4, 7)
        other = GVK("cache.example.com", "v1", "Redis")
        assert (found.verbosity_for(other), found.workers_for(other)) == (1, 2)
        assert found.warnings_for([MEMCACHED, other]) == ()

    def test_the_deprecated_variable_for_workers_works_and_its_warning_names_the_successor(self) -> None:
        environ = {"WORKER_MEMCACHED_CACHE_EXAMPLE_COM": "3"}
        found = loaded(environ).settings
        assert found.workers_for(MEMCACHED) == 3
        (warning,) = found.warnings_for([MEMCACHED])
        assert warning.startswith("environment variable WORKER_MEMCACHED_CACHE_EXAMPLE_COM is deprecated: use MAX_CONC")
        both = loaded(environ | {"MAX_CONCURRENT_RECONCILES_MEMCACHED_CACHE_EXAMPLE_COM": "5"}).settings
        assert (both.workers_for(MEMCACHED), both.warnings_for([MEMCACHED])) == (5, ())

    @pytest.mark.parametrize(
        ("name", "value"),
        [
            ("ANSIBLE_VERBOSITY", "8"),
            ("ANSIBLE_VERBOSITY", "-1"),
            ("MAX_CONCURRENT_RECONCILES", "0"),
            ("MAX_CONCURRENT_RECONCILES", "many"),
            ("WORKER", "1.5"),
        ],
    )
    def test_an_invalid_value_is_a_warning_and_the_flag_applies(self, name: str, value: str) -> None:
        environ = {f"{name}_MEMCACHED_CACHE_EXAMPLE_COM": value}
        found = loaded(environ, ansible_verbosity="1", max_concurrent_reconciles="2").settings
        assert (found.verbosity_for(MEMCACHED), found.workers_for(MEMCACHED)) == (1, 2)
        assert repr(value) in found.warnings_for([MEMCACHED])[-1]

    def test_explicit_numbers_of_workers_raise_the_limit_of_all_kinds(self) -> None:
        other = GVK("cache.example.com", "v1", "Redis")
        kinds = [MEMCACHED, other]
        one = loaded({"MAX_CONCURRENT_RECONCILES_MEMCACHED_CACHE_EXAMPLE_COM": "5000"}).settings
        assert one.most_runs(kinds) == 5000
        assert loaded(max_concurrent_reconciles="5000").settings.most_runs(kinds) == 10_000
        assert loaded(max_concurrent_reconciles="5000", max_concurrent_runs="3").settings.most_runs(kinds) == 3

    @pytest.mark.parametrize(
        ("suffix", "gvk"),
        [
            *((suffix, GVK("", "v1", "ConfigMap")) for suffix in ("CONFIGMAP_", "CONFIGMAP")),
            *((suffix, GVK("my-group.com", "v1", "K")) for suffix in ("K_MY-GROUP_COM", "K_MY_GROUP_COM")),
        ],
    )
    def test_names_have_no_group_for_the_core_group_and_underscores_for_dashes(self, suffix: str, gvk: GVK) -> None:
        assert loaded({f"ANSIBLE_VERBOSITY_{suffix}": "3"}).settings.verbosity_for(gvk) == 3
