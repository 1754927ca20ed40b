"""The one table of settings: flag, environment, default, help.

Owns: every flag of `ansible-operator run`, where else its value may come from, and which are deprecated. How values are
written is `option_values`', which source wins `settings`' business.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from runner.config.engine_names import ENGINES
from runner.config.option_values import (
    address,
    anything,
    boolean,
    count,
    lease_name,
    log_level,
    loopback,
    names,
    namespaces,
    one_of,
    period,
    port,
    quantity,
    span,
    verbosity,
)

PREFIX = "ANSIBLE_OPERATOR_"
RUNNER_DIR = "/tmp/ansible-operator/runner"  # noqa: S108 - the place that existing tools look at; its folders are 0700


@dataclass(frozen=True, slots=True)
class Option:
    """One setting. Its field in `Settings` is the flag with underscores, unless `sets` names another flag."""

    flag: str
    default: str
    """As one would write it; empty: nothing."""
    parse: Callable[[str], Any]
    """Raises ValueError with what would be right."""
    help: str
    metavar: str = ""
    """What stands for the value in help; booleans need none."""
    also: str = ""
    """A variable of its own name, asked after `ANSIBLE_OPERATOR_<FLAG>`."""
    also_deprecated: bool = False
    """Whether that variable should no longer be used."""
    repeatable: bool = False
    """May be given several times; the parsed tuples are joined."""
    sets: str = ""
    """The flag that this one is another name of."""
    deprecated: str = ""
    """What to use instead; given, it is a warning."""

    @property
    def name(self) -> str:
        """The field in `Settings`."""
        return self.flag.replace("-", "_")

    @property
    def variable(self) -> str:
        """The variable that sets it."""
        return PREFIX + self.name.upper()

    @property
    def is_boolean(self) -> bool:
        """Whether the flag may stand alone."""
        return self.parse is boolean


_RUN = (
    Option("watches-file", "./watches.yaml", anything, "which kinds are watched, and what runs for them", "FILE"),
    Option(
        "namespace",
        "",
        namespaces,
        "watch this namespace only; give it several times, or a comma list, for several; default: all namespaces",
        "NAME",
        also="WATCH_NAMESPACE",
        repeatable=True,
    ),
    Option(
        "reload",
        "false",
        boolean,
        "take up edits of the watches file, roles, playbooks and collections while running; for development",
    ),
    Option("reconcile-period", "10h", period, "time between periodic runs of an object; 0s or off: none", "DURATION"),
    Option("run-timeout", "off", period, "how long a run may take; then it is ended, and has failed", "DURATION"),
    Option(
        "max-concurrent-reconciles",
        "",
        count,
        "how many objects of a kind are worked on at once; default: the CPUs this process may use; "
        "MAX_CONCURRENT_RECONCILES_<KIND>_<GROUP> in the environment wins for one kind",
        "N",
    ),
    Option(
        "max-concurrent-runs",
        "",
        count,
        "how many objects of all kinds together are worked on at once, though each kind may always have one; default: "
        "twice the CPUs this process may use, or all workers that were asked for by number, whichever is more",
        "N",
    ),
    Option(
        "graceful-shutdown-timeout",
        "30s",
        span,
        "how long runs may go on when the operator is told to end",
        "DURATION",
    ),
    Option(
        "inject-owner-ref",
        "true",
        boolean,
        "what a run creates becomes owned by its object, and is watched",
    ),
    Option(
        "health-conditions",
        "true",
        boolean,
        "write Ready, Reconciling, Stalled and status.observedGeneration for tools that wait; healthConditions: of a "
        "watch wins",
    ),
    Option(
        "runner-dir",
        RUNNER_DIR,
        anything,
        "where run folders are kept",
        "DIR",
    ),
    Option(
        "runner-dir-limit",
        "1Gi",
        quantity,
        "how much the run folders of all objects may hold together, such as 200Mi; what has not run for the longest "
        "time goes first; 0: as much as they like",
        "SIZE",
    ),
)
_ANSIBLE = (
    Option(
        "ansible-verbosity",
        "2",
        verbosity,
        "0 to 7, as -v of ansible-playbook; ANSIBLE_VERBOSITY_<KIND>_<GROUP> in the environment wins for one kind",
        "N",
    ),
    Option(
        "ansible-roles-path",
        "",
        anything,
        "folders to find roles in, before ./roles",
        "DIRS",
        also="ANSIBLE_ROLES_PATH",
    ),
    Option(
        "ansible-collections-path",
        "",
        anything,
        "folders to find collections in, before ~/.ansible/collections and /usr/share/ansible/collections",
        "DIRS",
        also="ANSIBLE_COLLECTIONS_PATH",
    ),
    Option("ansible-args", "", anything, "more arguments for ansible-playbook, such as '--diff --tags fast'", "ARGS"),
    Option(
        "engine",
        "auto",
        one_of(*ENGINES),
        "how runs are started: warm (forked from a process that has Ansible loaded), exec (a new interpreter each), or "
        "auto: warm where the installed ansible-core was tested with it; engine: of a watch wins",
        "NAME",
    ),
    Option(
        "warm-without",
        "",
        names,
        "shortcuts of the warm engine that are not taken, a comma list; see docs/engine.md",
        "NAMES",
    ),
    Option(
        "run-memory-limit",
        "",
        quantity,
        "how much memory all processes of a run may use together, such as 512Mi or 2Gi; 0: as much as they like; "
        "default: three quarters of what the operator's container may use",
        "SIZE",
    ),
    Option(
        "ansible-log-events",
        "tasks",
        one_of("tasks", "everything", "nothing"),
        "what of a run is logged: tasks, everything or nothing",
        "WHAT",
    ),
)
_CLUSTER = (
    Option("kubeconfig", "", anything, "which cluster; default: $KUBECONFIG, the pod's own, ~/.kube/config", "FILE"),
    Option("context", "", anything, "context of the kubeconfig; default: its current one", "NAME"),
    Option(
        "record-rbac",
        "",
        anything,
        "write the Roles that the operator and its runs are seen to need into this file, and add to what it holds",
        "FILE",
    ),
    Option("proxy-port", "8888", port, "port of the proxy for runs, on loopback; 0: a free one", "PORT"),
)
_ENDPOINTS = (
    Option("health-probe-bind-address", ":6789", address, "where /healthz and /readyz answer; 0: nowhere", "ADDRESS"),
    Option("metrics-bind-address", ":8443", address, "where /metrics answers; 0: nowhere", "ADDRESS"),
    Option(
        "ui-bind-address",
        "",
        loopback,
        "where a page shows, to whoever is on this machine, what the operator does; 0: nowhere; default: nowhere in a "
        "cluster, else a free port on loopback that the log tells",
        "ADDRESS",
    ),
    Option(
        "user-metrics-port",
        "",
        port,
        "port on loopback for the metrics that roles post; 0: a free one; default: 5050, or a free one if it is taken",
        "PORT",
    ),
    Option(
        "metrics-secure",
        "false",
        boolean,
        "serve metrics over TLS, with a certificate made at start, or the one in --metrics-cert-path",
    ),
    Option(
        "metrics-cert-path", "", anything, "folder of a certificate and its key, read again when they change", "DIR"
    ),
    Option("metrics-cert-name", "tls.crt", anything, "the certificate's file in that folder", "FILE"),
    Option("metrics-cert-key", "tls.key", anything, "the key's file in that folder", "FILE"),
    Option(
        "metrics-require-rbac",
        "false",
        boolean,
        "let only those read metrics whose token the API server knows, and who may get /metrics; needs "
        "--metrics-secure",
    ),
)
_REPLICAS = (
    Option("leader-elect", "false", boolean, "of several replicas, let only one work at a time"),
    Option(
        "shards",
        "1",
        count,
        "of several replicas, let each work on its share of this many parts of the objects; more than 1 needs no "
        "--leader-elect",
        "N",
    ),
    Option(
        "leader-election-id",
        "",
        lease_name,
        "name of the Lease, and beginning of the names of those of shards",
        "NAME",
        also="OPERATOR_NAME",
        also_deprecated=True,
    ),
    Option("leader-election-namespace", "", anything, "namespace of the Leases; default: the pod's own", "NAME"),
    Option(
        "leader-elect-lease-duration", "15s", span, "how long a leader that went silent keeps its place", "DURATION"
    ),
    Option(
        "leader-elect-renew-deadline", "10s", span, "how long the leader tries to renew before it gives up", "DURATION"
    ),
)
_LOG = (
    Option("log-level", "info", log_level, "debug, info, warning or error", "LEVEL"),
    Option(
        "log-format",
        "auto",
        one_of("auto", "json", "console"),
        "json, console (for people), or auto: console on a terminal, else json",
        "FORMAT",
    ),
    Option("zap-log-level", "", log_level, "the same as --log-level", "LEVEL", sets="log-level"),
    Option("zap-encoder", "", one_of("json", "console"), "the same as --log-format", "FORMAT", sets="log-format"),
    Option("zap-devel", "false", boolean, "the same as --log-level=debug --log-format=console, unless these are given"),
    Option("zap-stacktrace-level", "", anything, "accepted, has no effect", "LEVEL"),
    Option("zap-time-encoding", "", anything, "accepted, has no effect: times are ISO 8601", "ENCODING"),
)
_DEPRECATED = (
    Option(
        "metrics-addr",
        "",
        address,
        "use --metrics-bind-address",
        "ADDRESS",
        sets="metrics-bind-address",
        deprecated="use --metrics-bind-address",
    ),
    Option(
        "enable-leader-election",
        "",
        boolean,
        "use --leader-elect",
        sets="leader-elect",
        deprecated="use --leader-elect",
    ),
    Option(
        "leader-elect-resource-lock",
        "",
        anything,
        "leave it out: only Leases are used",
        "KIND",
        deprecated="leave it out, only Leases are used",
    ),
    Option(
        "enable-http2",
        "false",
        boolean,
        "leave it out: HTTP/1.1 is served",
        deprecated="leave it out, HTTP/1.1 is served",
    ),
)

GROUPS: dict[str, tuple[Option, ...]] = {
    "What runs": _RUN,
    "Ansible": _ANSIBLE,
    "Cluster": _CLUSTER,
    "Endpoints": _ENDPOINTS,
    "Several replicas": _REPLICAS,
    "Log": _LOG,
    "Deprecated, still accepted": _DEPRECATED,
}
OPTIONS: tuple[Option, ...] = tuple(option for group in GROUPS.values() for option in group)
"""All of them, in the order of `--help`."""
