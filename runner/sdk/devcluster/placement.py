"""Admission policy that selects the node of a pod, and the images that the real node has. Pure.

There is no registry, so the real node can only run the images that were loaded. The policy adds a node selector to each
pod without one for `type`: `real` if the node has all its images, otherwise `kwok`. It leaves pods of DaemonSets and
pods with a node name unchanged. Loaded images are never pulled, so the policy replaces the pull policy `Always`, which
is the default for the tag `latest`, by `IfNotPresent`.

See "Mutating Admission Policy" in the Kubernetes documentation.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from runner.sdk.devcluster import kwok, node
from runner.sdk.devcluster.nodes import Nodes

_GROUP = "admissionregistration.k8s.io"
API_VERSION = f"{_GROUP}/v1beta1"
APISERVER_FLAGS = (f"--runtime-config={API_VERSION}=true", "--feature-gates=MutatingAdmissionPolicy=true")
_NAME = "node-of-pods"
POLICY_PATH = f"/apis/{API_VERSION}/mutatingadmissionpolicies/{_NAME}"
BINDING_PATH = f"/apis/{API_VERSION}/mutatingadmissionpolicybindings/{_NAME}"
_NAMESPACE, _IMAGES = "kube-system", "node-images"
IMAGES_PATH = f"/api/v1/namespaces/{_NAMESPACE}/configmaps/{_IMAGES}"

_LOADED = "params.data.images.split('\\n')"
_CONTAINERS = "(object.spec.containers + object.spec.?initContainers.orValue([]))"
_TARGET = f"({_CONTAINERS}.all(c, c.image in variables.loaded) ? '{node.TYPE}' : '{kwok.TYPE}')"


def images(names: Iterable[str]) -> Mapping[str, Any]:
    """Return the ConfigMap with all ways to write the names of images."""
    spellings = sorted({spelling for name in names for spelling in spell(name)})
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": _IMAGES, "namespace": _NAMESPACE},
        "data": {"images": "\n".join(spellings)},
    }


def spell(name: str) -> list[str]:
    """Return all ways to write the full name of an image: the registry, `library` and the tag `latest` are defaults."""
    bases = [name]
    if name.startswith("docker.io/"):
        bases.append(name.removeprefix("docker.io/"))
        if name.startswith("docker.io/library/"):
            bases.append(name.removeprefix("docker.io/library/"))
    return [*bases, *(base.removesuffix(":latest") for base in bases if base.endswith(":latest"))]


def policy(nodes: Nodes) -> Mapping[str, Any]:
    """Return the policy."""
    mutations = [_pull("containers"), _pull("initContainers")]
    if nodes is Nodes.BOTH:
        mutations.insert(0, _select())
    return {
        "apiVersion": API_VERSION,
        "kind": "MutatingAdmissionPolicy",
        "metadata": {"name": _NAME},
        "spec": {
            "failurePolicy": "Ignore",
            "reinvocationPolicy": "Never",
            "paramKind": {"apiVersion": "v1", "kind": "ConfigMap"},
            "matchConstraints": {
                "resourceRules": [
                    {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]}
                ]
            },
            "variables": [{"name": "loaded", "expression": _LOADED}],
            "mutations": mutations,
        },
    }


def _select() -> Mapping[str, Any]:
    chosen = (
        "object.spec.?nodeName.orValue('') != '' || 'type' in object.spec.?nodeSelector.orValue({})"
        " || object.metadata.?ownerReferences.orValue([]).exists(o, o.kind == 'DaemonSet')"
    )
    with_others = f"[JSONPatch{{op: 'add', path: '/spec/nodeSelector/type', value: {_TARGET}}}]"
    alone = f"[JSONPatch{{op: 'add', path: '/spec/nodeSelector', value: {{'type': {_TARGET}}}}}]"
    selected = f"has(object.spec.nodeSelector) ? {with_others} : {alone}"
    return {"patchType": "JSONPatch", "jsonPatch": {"expression": f"({chosen}) ? [] : ({selected})"}}


def _pull(field: str) -> Mapping[str, Any]:
    always = f"object.spec.{field}.filter(c, c.imagePullPolicy == 'Always' && c.image in variables.loaded)"
    changed = f"{always}.map(c, Object.spec.{field}{{name: c.name, imagePullPolicy: 'IfNotPresent'}})"
    expression = f"has(object.spec.{field}) ? Object{{spec: Object.spec{{{field}: {changed}}}}} : Object{{}}"
    return {"patchType": "ApplyConfiguration", "applyConfiguration": {"expression": expression}}


def binding() -> Mapping[str, Any]:
    """Return the binding of the policy to the ConfigMap."""
    return {
        "apiVersion": API_VERSION,
        "kind": "MutatingAdmissionPolicyBinding",
        "metadata": {"name": _NAME},
        "spec": {
            "policyName": _NAME,
            "paramRef": {"name": _IMAGES, "namespace": _NAMESPACE, "parameterNotFoundAction": "Deny"},
        },
    }
