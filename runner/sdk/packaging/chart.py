"""Helm chart from a project's manifests. Pure.

Input: parsed documents. Output: the chart's files. Values that depend on the release (names, namespaces, image,
resources, RBAC scope) become templates; everything else is unchanged, including additions to `config/`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

import yaml

from runner.sdk.packaging import deployments, scopes
from runner.sdk.packaging.marks import Placeholders
from runner.sdk.scaffold import templates

Json = dict[str, Any]
Files = dict[PurePosixPath, str]

_ROOT = Path(__file__).parent / "templates" / "chart"
_MONITORING = "monitoring.coreos.com"
_BINDINGS = {"RoleBinding", "ClusterRoleBinding"}
_ROLES = {"Role", "ClusterRole"}
_METRICS_FLAG = "--metrics-bind-address="
_HELMS = ("helm.sh/chart", *(f"app.kubernetes.io/{name}" for name in ("name", "instance", "version", "managed-by")))
_INSTANCE = "app.kubernetes.io/instance"
_POD_BLOCKS = """\
{{- with $.Values.imagePullSecrets }}
imagePullSecrets:
  {{- toYaml . | nindent @+2 }}
{{- end }}
{{- with $.Values.nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent @+2 }}
{{- end }}
{{- with $.Values.tolerations }}
tolerations:
  {{- toYaml . | nindent @+2 }}
{{- end }}
{{- with $.Values.affinity }}
affinity:
  {{- toYaml . | nindent @+2 }}
{{- end }}
{{- with $.Values.priorityClassName }}
priorityClassName: {{ . }}
{{- end }}"""


@dataclass(frozen=True, slots=True)
class Release:
    """Name and versions of a chart, and the image that it installs."""

    name: str
    version: str
    """SemVer 2, without `v`."""
    app_version: str
    repository: str
    tag: str
    """Empty for `v` and the app version."""


def make(documents: Iterable[Json], release: Release) -> Files:
    """Return the files of a chart.

    Raises:
        ConfigError: the documents do not contain the operator's Deployment.
    """
    without_namespaces = [document for document in documents if document.get("kind") != "Namespace"]
    return dict(_Chart(without_namespaces, release).files())


class _Chart:
    def __init__(self, documents: list[Json], release: Release) -> None:
        self._documents = documents
        self._release = release
        self._manager = deployments.operators(documents)
        self._namespace = str(self._manager["metadata"].get("namespace") or "")
        self._prefix = _name(self._manager).removesuffix(deployments.MANAGER)
        self._account = str(deployments.pod(self._manager).get("serviceAccountName") or "default")
        self._names = {
            _name(document)
            for document in documents
            if document.get("kind") != "CustomResourceDefinition" and _name(document).startswith(self._prefix)
        }
        self._bound = {
            (binding["roleRef"]["kind"], binding["roleRef"]["name"])
            for binding in documents
            if binding.get("kind") in _BINDINGS
        }
        own = scopes.own(documents)
        self._parts = {_name(role): scopes.split(role, own) for role in documents if role.get("kind") == "ClusterRole"}
        """For each ClusterRole its namespaced rules and its cluster-wide rules."""

    def files(self) -> Iterator[tuple[PurePosixPath, str]]:
        yield from templates.tree("", self._values(), _ROOT)
        for document in self._documents:
            path, text = self._file(document)
            yield PurePosixPath("templates") / path, text

    def _values(self) -> Mapping[str, Any]:
        container = deployments.container(self._manager)
        resources = yaml.safe_dump(container.get("resources") or {}, sort_keys=False)
        watched: Json = next(
            (variable for variable in container.get("env") or () if variable["name"] == "WATCH_NAMESPACE"), {}
        )
        ports = (port.get("name") for port in self._service_ports())
        return {
            "name": self._release.name,
            "version": self._release.version,
            "app_version": self._release.app_version,
            "repository": self._release.repository,
            "tag": self._release.tag,
            "replicas": self._manager["spec"].get("replicas", 1),
            "watch_namespaces": [name for name in str(watched.get("value") or "").split(",") if name],
            "resources": "".join(f"  {line}\n" for line in resources.splitlines()),
            "kinds": "\n".join(f"  - {kind}" for kind in self._kinds()) or "  - no kind of its own",
            "deployment": self._name_of(_name(self._manager)),
            "metrics_port": str(next(ports, None) or "http"),
        }

    def _service_ports(self) -> list[Json]:
        services = (
            service for service in self._documents if service.get("kind") == "Service" and not _is_for_pods(service)
        )
        return next((service["spec"].get("ports") or [] for service in services), [])

    def _kinds(self) -> Iterator[str]:
        for document in self._documents:
            if document.get("kind") == "CustomResourceDefinition":
                yield f"{document['spec']['names']['kind']} ({_name(document)})"

    def _file(self, document: Json) -> tuple[str, str]:
        kind, name = str(document.get("kind")), _name(document)
        if kind == "CustomResourceDefinition":
            return f"crd-{name}.yaml", _crd(document)
        path = f"{kind.lower()}-{name.removeprefix(self._prefix).lstrip('-') or name}.yaml"
        if kind in _BINDINGS | _ROLES:
            return path, self._right(document)
        marks = Placeholders()
        made = self._labelled(self._renamed(document, marks), marks)
        if document is self._manager:
            self._fill_manager(made, marks)
        elif kind == "Service" and made["spec"].get("selector"):
            made["spec"]["selector"] |= {_INSTANCE: marks.value("{{ $.Release.Name }}")}
        elif kind == "NetworkPolicy" and self._selects_manager(document):
            made["spec"]["podSelector"]["matchLabels"] |= {_INSTANCE: marks.value("{{ $.Release.Name }}")}
        elif kind == "ServiceAccount" and name == self._account:
            made["metadata"][marks.block(_with("serviceAccount.annotations", "annotations"))] = None
        return path, _when(self._condition(document), marks.write(made))

    def _condition(self, document: Json) -> str:
        kind, group = str(document.get("kind")), str(document.get("apiVersion")).partition("/")[0]
        if kind == "ServiceAccount" and _name(document) == self._account:
            return "$.Values.serviceAccount.create"
        if group == _MONITORING:
            return "and $.Values.metrics.enabled $.Values.metrics.serviceMonitor.enabled"
        if kind == "Service" and not _is_for_pods(document):
            return "$.Values.metrics.enabled"
        if kind == "NetworkPolicy" and self._selects_manager(document):
            return "$.Values.networkPolicy.enabled"
        return ""

    def _selects_manager(self, policy: Json) -> bool:
        """Return True if a NetworkPolicy selects the operator's pod by its labels."""
        selected = policy["spec"].get("podSelector", {}).get("matchLabels") or {}
        labels = self._manager["spec"]["template"].get("metadata", {}).get("labels") or {}
        return bool(selected) and selected.items() <= labels.items()

    def _right(self, document: Json) -> str:
        """Return a role or binding. The operator's cluster-wide ones can be limited to single namespaces by a value."""
        kind, name = str(document["kind"]), _name(document)
        if kind in {"Role", "RoleBinding"}:
            return _when("$.Values.rbac.create", self._whole(document))
        if kind == "ClusterRole" and ("ClusterRole", name) not in self._bound:
            return _when("and $.Values.rbac.create $.Values.rbac.userRoles", self._whole(document))
        role = document.get("roleRef", {}).get("name", name)
        narrow, wide = self._parts.get(role, ([{}], []))
        if not narrow:
            return _when("$.Values.rbac.create", self._whole(document))
        rest = self._whole({**document, "rules": wide} if kind == "ClusterRole" else document) if wide else ""
        per_namespace = (
            f'{{{{- range splitList "," (include "{self._release.name}.watchNamespaces" $) }}}}\n---\n'
            f"{self._single(document, narrow, known=role in self._parts)}{{{{- end }}}}\n"
        )
        single = f'{{{{- if eq $.Values.rbac.scope "Namespaced" }}}}\n{rest}{per_namespace}'
        return _when("$.Values.rbac.create", f"{single}{{{{- else }}}}\n{self._whole(document)}{{{{- end }}}}\n")

    def _whole(self, document: Json) -> str:
        marks = Placeholders()
        return marks.write(self._labelled(self._renamed(document, marks), marks))

    def _single(self, document: Json, rules: list[Json], *, known: bool) -> str:
        """Return a ClusterRole or its binding for one namespace. `known` is True if the chart contains the role."""
        marks = Placeholders()
        made = self._labelled(self._renamed(document, marks), marks)
        made["kind"] = str(document["kind"]).removeprefix("Cluster")
        made["metadata"]["namespace"] = marks.value("{{ . }}")
        if "roleRef" not in made:
            made["rules"] = rules
        elif known:
            made["roleRef"]["kind"] = "Role"
        return marks.write(made)

    def _name_of(self, name: str) -> str:
        # The name of a Deployment that does not end with MANAGER is the prefix itself.
        rest = name.removeprefix(self._prefix).lstrip("-")
        return f'{{{{ include "{self._release.name}.fullname" $ }}}}{"-" if rest else ""}{rest}'

    def _renamed(self, value: Any, marks: Placeholders) -> Any:
        """Return a copy with the names and the namespace of the release."""
        if isinstance(value, dict):
            if value.get("kind") == "ServiceAccount" and self._account in {value.get("name"), _name(value)}:
                account = marks.value(f'{{{{ include "{self._release.name}.serviceAccountName" $ }}}}')
                named = (
                    {"metadata": {**value["metadata"], "name": account}} if "metadata" in value else {"name": account}
                )
                value = {**value, **named}
            return {key: self._renamed(item, marks) for key, item in value.items()}
        if isinstance(value, list):
            return [self._renamed(item, marks) for item in value]
        if not isinstance(value, str):
            return value
        if value in self._names:
            return marks.value(self._name_of(value))
        if self._namespace and value == self._namespace:
            return marks.value("{{ $.Release.Namespace }}")
        return value

    def _labelled(self, document: Json, marks: Placeholders) -> Json:
        metadata = document["metadata"]
        own = {key: value for key, value in (metadata.get("labels") or {}).items() if key not in _HELMS}
        block = marks.block(f'{{{{- include "{self._release.name}.labels" $ | nindent @ }}}}')
        document["metadata"] = {**metadata, "labels": {**own, block: None}}
        return document

    def _fill_manager(self, made: Json, marks: Placeholders) -> None:
        spec, pod = made["spec"], deployments.pod(made)
        meta = spec["template"].setdefault("metadata", {})
        instance = marks.value("{{ $.Release.Name }}")
        spec["replicas"] = marks.value("{{ $.Values.replicas }}")
        spec["selector"]["matchLabels"] |= {_INSTANCE: instance}
        meta["labels"] = {
            **(meta.get("labels") or {}),
            _INSTANCE: instance,
            marks.block("{{- with $.Values.podLabels }}\n{{- toYaml . | nindent @ }}\n{{- end }}"): None,
        }
        meta["annotations"] = {
            **(meta.get("annotations") or {}),
            marks.block("{{- with $.Values.podAnnotations }}\n{{- toYaml . | nindent @ }}\n{{- end }}"): None,
        }
        pod[marks.block(_POD_BLOCKS)] = None
        pod["serviceAccountName"] = marks.value(f'{{{{ include "{self._release.name}.serviceAccountName" $ }}}}')
        self._fill_container(deployments.container(made), marks)

    def _fill_container(self, container: Json, marks: Placeholders) -> None:
        container["image"] = marks.value(
            '"{{ $.Values.image.repository }}:{{ $.Values.image.tag | default (printf "v%s" $.Chart.AppVersion) }}"'
        )
        container["imagePullPolicy"] = marks.value("{{ $.Values.image.pullPolicy }}")
        container["args"] = [
            *(_argument(argument, marks) for argument in container.get("args") or ()),
            marks.block("{{- range $.Values.extraArgs }}\n- {{ . | quote }}\n{{- end }}"),
        ]
        condition = f'with include "{self._release.name}.watchNamespaces" $'
        container["env"] = [
            *(variable for variable in container.get("env") or () if variable["name"] != "WATCH_NAMESPACE"),
            marks.block(
                f"{{{{- {condition} }}}}\n- name: WATCH_NAMESPACE\n  value: {{{{ . | quote }}}}\n{{{{- end }}}}"
            ),
            marks.block("{{- with $.Values.extraEnv }}\n{{- toYaml . | nindent @ }}\n{{- end }}"),
        ]
        container["resources"] = {marks.block("{{- toYaml $.Values.resources | nindent @ }}"): None}


def _is_for_pods(service: Json) -> bool:
    """Return True for the Service to which pods of runs connect."""
    return any(port.get("targetPort") == "pods" for port in service["spec"].get("ports") or ())


def _argument(argument: Any, marks: Placeholders) -> Any:
    if isinstance(argument, str) and argument.startswith(_METRICS_FLAG):
        address = argument.removeprefix(_METRICS_FLAG)
        return marks.value(
            f'"{_METRICS_FLAG}{{{{ if $.Values.metrics.enabled }}}}{address}{{{{ else }}}}0{{{{ end }}}}"'
        )
    return argument


def _crd(document: Json) -> str:
    marks = Placeholders()
    metadata = document["metadata"]
    keep = marks.block("{{- if $.Values.crds.keep }}\nhelm.sh/resource-policy: keep\n{{- end }}")
    annotations = {**(metadata.get("annotations") or {}), keep: None}
    return _when(
        "$.Values.crds.install", marks.write({**document, "metadata": {**metadata, "annotations": annotations}})
    )


def _with(value: str, key: str) -> str:
    return f"{{{{- with $.Values.{value} }}}}\n{key}:\n  {{{{- toYaml . | nindent @+2 }}}}\n{{{{- end }}}}"


def _when(condition: str, text: str) -> str:
    return f"{{{{- if {condition} }}}}\n{text}{{{{- end }}}}\n" if condition else text


def _name(document: Json) -> str:
    return str((document.get("metadata") or {}).get("name") or "")
