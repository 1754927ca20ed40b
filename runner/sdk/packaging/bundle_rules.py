"""Validation rules of OLM catalogs for bundles. Pure.

Sources: OLM's documentation (https://olm.operatorframework.io/docs/tasks/creating-operator-bundle/ and
.../best-practices/), and that of the validators of `operator-sdk bundle validate` and of community catalogs.
"""

from __future__ import annotations

import base64
import binascii
import gzip
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from runner.sdk.packaging.manifests import is_version

Json = dict[str, Any]

KINDS = frozenset(
    {
        *("ClusterServiceVersion", "CustomResourceDefinition", "Secret", "ConfigMap", "Service", "ServiceAccount"),
        *("ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding", "PrometheusRule", "ServiceMonitor"),
        *("PodDisruptionBudget", "PriorityClass", "VerticalPodAutoscaler", "ConsoleYAMLSample", "ConsoleQuickStart"),
        *("ConsoleCLIDownload", "ConsoleLink", "ConsolePlugin", "NetworkPolicy"),
    }
)
"""Kinds that a bundle may contain."""
PREFIX = "operators.operatorframework.io.bundle."
_REQUIRED = {
    "mediatype.v1": "registry+v1",
    "manifests.v1": "manifests/",
    "metadata.v1": "metadata/",
}
CAPABILITIES = ("Basic Install", "Seamless Upgrades", "Full Lifecycle", "Deep Insights", "Auto Pilot")
CATEGORIES = (
    *("AI/Machine Learning", "Application Runtime", "Big Data", "Cloud Provider", "Developer Tools", "Database"),
    *("Integration & Delivery", "Logging & Tracing", "Modernization & Migration", "Monitoring", "Networking"),
    *("OpenShift Optional", "Security", "Storage", "Streaming & Messaging", "Observability", "Other"),
)
MODES = ("OwnNamespace", "SingleNamespace", "MultiNamespace", "AllNamespaces")
_ICONS = ("image/gif", "image/jpeg", "image/png", "image/svg+xml")
_LARGEST = 1024 * 1024
_SUBDOMAIN = re.compile(r"[a-z0-9]([-a-z0-9.]*[a-z0-9])?")
_LABEL = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?")
_EMAIL = re.compile(r"[^@\s]+@[^@\s]+\.[^@\s]+")
_RANGE = re.compile(r"(\s*(<=|>=|<|>|=|!=)?\s*\d+\.\d+\.\d+\S*\s*(\|\|)?)+")


@dataclass(frozen=True, slots=True)
class Bundle:
    """Manifests of a bundle, and the annotations in its `metadata/annotations.yaml`."""

    manifests: tuple[Json, ...]
    annotations: Mapping[str, str]

    @property
    def csv(self) -> Json:
        """The ClusterServiceVersion; empty if there is not exactly one."""
        found = [each for each in self.manifests if each.get("kind") == "ClusterServiceVersion"]
        return found[0] if len(found) == 1 else {}

    @property
    def owned(self) -> list[Json]:
        """Owned kinds in the ClusterServiceVersion."""
        return list(((self.csv.get("spec") or {}).get("customresourcedefinitions") or {}).get("owned") or ())

    @property
    def crds(self) -> list[Json]:
        """CRDs among the manifests."""
        return [each for each in self.manifests if each.get("kind") == "CustomResourceDefinition"]


def check(bundle: Bundle) -> list[str]:
    """Return the problems of a bundle, one sentence each."""
    if not bundle.csv:
        return ["a bundle must contain exactly one ClusterServiceVersion"]
    return [sentence for rule in _RULES for sentence in rule(bundle)]


def _names(bundle: Bundle) -> Iterator[str]:
    package = bundle.annotations.get(f"{PREFIX}package.v1", "")
    name, version = str(bundle.csv["metadata"].get("name") or ""), str(bundle.csv["spec"].get("version") or "")
    if not _SUBDOMAIN.fullmatch(name):
        yield f"metadata.name {name!r} is not a valid DNS name"
    if not is_version(version):
        yield f"spec.version {version!r} is not a semantic version such as 1.2.3"
    elif name != f"{package}.v{version.replace('+', '-')}":
        yield f"metadata.name {name!r} must be the package's name and version, {package}.v{version}"
    replaces = str(bundle.csv["spec"].get("replaces") or "")
    if replaces == name:
        yield f"spec.replaces names the bundle itself, {name}"
    elif replaces and not replaces.startswith(f"{package}.v"):
        yield f"spec.replaces {replaces!r} is not a bundle of {package}"
    least = str(bundle.csv["spec"].get("minKubeVersion") or "")
    if not is_version(least):
        yield f"spec.minKubeVersion {least!r} is not a semantic version such as 1.25.0"
    reach = (bundle.csv["metadata"].get("annotations") or {}).get("olm.skipRange")
    if reach is not None and not _RANGE.fullmatch(str(reach)):
        yield f"the annotation olm.skipRange {reach!r} is not a range such as '>=1.0.0 <1.2.0'"


def _presentation(bundle: Bundle) -> Iterator[str]:
    spec = bundle.csv["spec"]
    for field in ("displayName", "description"):
        if not str(spec.get(field) or "").strip():
            yield f"spec.{field} is empty"
    if not (spec.get("provider") or {}).get("name"):
        yield "spec.provider has no name"
    if not spec.get("maintainers"):
        yield "spec.maintainers is empty"
    for each in spec.get("maintainers") or ():
        if not each.get("name") or not _EMAIL.fullmatch(str(each.get("email") or "")):
            yield f"spec.maintainers: {each} needs a name and an e-mail address"
    for each in spec.get("links") or ():
        if urlsplit(str(each.get("url") or "")).scheme not in {"http", "https"} or not each.get("name"):
            yield f"spec.links: {each} needs a name and a URL with http:// or https://"


def _icon(bundle: Bundle) -> Iterator[str]:
    icons = bundle.csv["spec"].get("icon") or ()
    if len(icons) != 1:
        yield f"spec.icon contains {len(icons)} icons; it must contain exactly one"
    for each in icons:
        if each.get("mediatype") not in _ICONS:
            yield f"spec.icon: the media type {each.get('mediatype')!r} is not one of {', '.join(_ICONS)}"
        try:
            base64.b64decode(str(each.get("base64data") or ""), validate=True)
        except binascii.Error:
            yield "spec.icon: base64data is not valid base64"


def _annotations(bundle: Bundle) -> Iterator[str]:
    given = bundle.csv["metadata"].get("annotations") or {}
    if given.get("capabilities") not in CAPABILITIES:
        yield f"the annotation capabilities {given.get('capabilities')!r} is not one of {', '.join(CAPABILITIES)}"
    unknown = [each.strip() for each in str(given.get("categories") or "").split(",") if each.strip() not in CATEGORIES]
    if unknown:
        yield f"the annotation categories has {', '.join(unknown) or 'no value'}; valid are {', '.join(CATEGORIES)}"
    for key, value in given.items():
        if not isinstance(value, str):
            yield f"the annotation {key} is not a string"


def _modes(bundle: Bundle) -> Iterator[str]:
    modes = bundle.csv["spec"].get("installModes") or ()
    unknown = [str(each.get("type")) for each in modes if each.get("type") not in MODES]
    if unknown:
        yield f"spec.installModes: {', '.join(unknown)} is not one of {', '.join(MODES)}"
    if not any(each.get("supported") for each in modes):
        yield "spec.installModes: at least one mode must be supported"


def _strategy(bundle: Bundle) -> Iterator[str]:
    install = bundle.csv["spec"].get("install") or {}
    if install.get("strategy") != "deployment":
        yield f"spec.install.strategy {install.get('strategy')!r} must be `deployment`"
    strategy = install.get("spec") or {}
    if not strategy.get("deployments"):
        yield "spec.install.spec.deployments is empty"
    accounts = {
        each.get("serviceAccountName")
        for key in ("permissions", "clusterPermissions")
        for each in strategy.get(key) or ()
    }
    for each in bundle.manifests:
        if each.get("kind") == "ServiceAccount" and each["metadata"].get("name") in accounts:
            yield f"OLM creates the ServiceAccount {each['metadata']['name']}: the bundle must not contain it"


def _owned(bundle: Bundle) -> Iterator[str]:
    declared = {(str(each.get("name")), str(each.get("version"))) for each in bundle.owned}
    there = {
        (str(each["metadata"]["name"]), str(version.get("name")))
        for each in bundle.crds
        for version in each["spec"].get("versions") or ()
        if version.get("served")
    }
    for name, version in sorted(declared - there):
        yield f"{name} {version} is owned, but no CRD in the bundle serves it"
    for name, version in sorted(there - declared):
        yield f"the CRD {name} serves {version}, which is missing from spec.customresourcedefinitions.owned"
    for each in bundle.owned:
        if not each.get("displayName") or not each.get("description"):
            yield f"{each.get('name')}: an owned kind needs a displayName and a description"


def _examples(bundle: Bundle) -> Iterator[str]:
    text = (bundle.csv["metadata"].get("annotations") or {}).get("alm-examples")
    try:
        examples = json.loads(str(text or ""))
    except ValueError:
        yield "the annotation alm-examples is not valid JSON"
        return
    kinds = {(each.get("kind"), str(each.get("apiVersion")).rpartition("/")[2]) for each in examples}
    owned = {(each.get("kind"), each.get("version")) for each in bundle.owned}
    for kind, version in sorted(owned - kinds):
        yield f"alm-examples has no example of {kind} {version}"
    for kind, version in sorted(kinds - owned):
        yield f"alm-examples has an example of {kind} {version}, which is not owned"


def _manifests(bundle: Bundle) -> Iterator[str]:
    for each in bundle.manifests:
        if each.get("kind") not in KINDS:
            yield f"a bundle cannot contain a {each.get('kind')} ({(each.get('metadata') or {}).get('name')})"
    whole = json.dumps(bundle.manifests).encode()
    size = len(base64.b64encode(gzip.compress(whole, mtime=0)))
    if size > _LARGEST:
        yield f"the compressed manifests have {size} bytes; the limit is {_LARGEST}"


def _metadata(bundle: Bundle) -> Iterator[str]:
    for key, value in _REQUIRED.items():
        if bundle.annotations.get(f"{PREFIX}{key}") != value:
            yield f"the bundle's annotation {PREFIX}{key} must be {value!r}"
    if not _SUBDOMAIN.fullmatch(bundle.annotations.get(f"{PREFIX}package.v1", "")):
        yield f"the bundle's annotation {PREFIX}package.v1 is not a valid DNS name"
    channels = [each for each in bundle.annotations.get(f"{PREFIX}channels.v1", "").split(",") if each]
    bad = [each for each in channels if not _LABEL.fullmatch(each)]
    if bad or not channels:
        yield f"the bundle's channels {channels} are empty or contain an invalid name"
    default = bundle.annotations.get(f"{PREFIX}channel.default.v1")
    if default is not None and default not in channels:
        yield f"the default channel {default!r} is not one of the bundle's channels, {', '.join(channels)}"


_RULES: Sequence[Callable[[Bundle], Iterator[str]]] = (
    *(_names, _presentation, _icon, _annotations, _modes, _strategy, _owned, _examples, _manifests, _metadata),
)
