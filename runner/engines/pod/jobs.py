"""Objects of a run in a pod, and of a warm pod: the Job, and the Secret with the agent and its contact. Pure.

The Secret is also the record of the run: it exists from before the Job until the run's outcome is recorded. Its name
is that of the run, so that two operators cannot create two. Both are owned by the custom resource. In another
namespace, annotations name it instead.
"""

from __future__ import annotations

import base64
import functools
import hashlib
import hmac
import io
import json
import re
import secrets
import zipfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from runner import agent
from runner.core.engine.job import Job, UnrecordedRun
from runner.core.kube.discovery import ApiResource
from runner.engines.pod.fields import PodPolicy
from runner.values.objects import (
    GVK,
    PRIMARY_RESOURCE,
    PRIMARY_RESOURCE_TYPE,
    Object,
    ObjectKey,
    Owner,
    annotations_of,
    labels_of,
    metadata,
    references_of,
    type_name,
)

RUN_OF = "ansible.sdk.operatorframework.io/run-of"
"""Label of a run's Secret, Job and pod: UID of the custom resource. Annotation of a warm pod: `type/namespace/name`."""
RUN = "ansible.sdk.operatorframework.io/run"
"""Label of a run's Job and pod: name of the run; of a warm pod: its own name."""
WARM = "ansible.sdk.operatorframework.io/warm-pod-of"
"""Label of a warm pod and its Job: kind of the watch. The pod gets `RUN_OF` with its run."""
OWN_LABELS = (RUN_OF, WARM)
"""Labels of Secrets, Jobs and pods of runs; each has one."""
CONTAINER = "ansible"
"""Name of the container that runs Ansible."""
SECRET_DIR, WORK = "/operator/agent", "/operator/work"
"""Folders in the pod: the Secret with the agent, and its files."""
AGENT = "agent.py"
"""File with the agent, a zip application. An earlier operator can have created the Secret, so the name is fixed."""
PRIVATE_DATA = f"{WORK}/run"
"""ansible-runner's private data directory in the pod."""
_PACKAGE = "ansible_operator_agent"
"""Name of `runner.agent` in a pod, which no package of an image has."""
_MAIN = f"""import sys

if sys.argv[1] == "preload":
    from {_PACKAGE}.preload import main
else:
    from {_PACKAGE}.start import main
main()
"""
_RECORD = "ansible.sdk.operatorframework.io/run-record"
"""Annotation of the Secret: a `RunRecord` as JSON."""
_SEALED = "sealed-token"
"""Member of the Secret of a run in a warm pod: its token, encrypted."""
_SIGNATURE = "ansible.sdk.operatorframework.io/run-signature"
_MOST_ENDED = 2
"""Number of earlier Jobs of a resource that remain beside a new one."""
_OF_RUN = re.compile("run-[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}-[0-9]+")
_OF_WARM_POD = re.compile("warm-[a-z0-9]+-[0-9a-f]{10}")
_NONE: frozenset[str] = frozenset()
SECRETS = ApiResource(GVK("", "v1", "Secret"), "secrets", namespaced=True, verbs=_NONE, subresources=_NONE)
JOBS = ApiResource(GVK("batch", "v1", "Job"), "jobs", namespaced=True, verbs=_NONE, subresources=_NONE)
EVENTS = ApiResource(GVK("", "v1", "Event"), "events", namespaced=True, verbs=_NONE, subresources=_NONE)
PODS = ApiResource(GVK("", "v1", "Pod"), "pods", namespaced=True, verbs=_NONE, subresources=_NONE)
_LONGEST_KIND, _LONGEST_LABEL = 40, 63
_SLACK = 120.0
"""Seconds that Kubernetes grants a run beyond its timeout: the operator ends it first, and says why."""
_LABELS = {"app.kubernetes.io/managed-by": "ansible-operator", "app.kubernetes.io/component": "run"}
_CONFINED = {
    "allowPrivilegeEscalation": False,
    "capabilities": {"drop": ["ALL"]},
    "seccompProfile": {"type": "RuntimeDefault"},
}


@dataclass(frozen=True, slots=True)
class Address:
    """Address of the operator for agents, with the authority of its certificate."""

    server: str
    """`host:port`; the host may have several addresses."""
    name: str
    """Name in the certificate."""
    authority: str
    """Certificate of the authority, PEM."""
    key: bytes = field(repr=False)
    """Key of the authority. It also signs the records of runs."""


@dataclass(frozen=True, slots=True)
class RunRecord:
    """Data with which the next operator continues a run."""

    ident: str
    generation: int
    purpose: str
    """As in `Job`."""
    began: float
    """Seconds since the epoch."""
    warm: str = ""
    """Name of its warm pod's Job, in the operator's namespace; empty: its Job has the name of the run."""


@dataclass(frozen=True, slots=True)
class RecordedRun(UnrecordedRun):
    """A run whose Secret exists."""

    name: str
    namespace: str
    record: RunRecord


def continued(job: Job) -> RecordedRun | None:
    """Return the run that a job continues; None if it begins one."""
    return job.resumed if isinstance(job.resumed, RecordedRun) else None


def run_name(uid: str, number: int) -> str:
    """Return the name of a run: of its Secret, Job and pod."""
    return f"run-{uid}-{number}"


def run_number(name: str) -> int:
    """Return the number in the name of a run; 0 if it is not such a name."""
    number = name.rpartition("-")[2]
    return int(number) if name.startswith("run-") and number.isdecimal() else 0


def next_number(names: Iterable[str]) -> int:
    """Return the number after those of existing runs."""
    return max(map(run_number, names), default=0) + 1


def superfluous(names: Sequence[str]) -> Sequence[str]:
    """Return the names of a resource's ended Jobs to delete. `names` are all of them, oldest first."""
    return names[:-_MOST_ENDED]


def secret(run: Job, record: RunRecord, name: str, namespace: str, address: Address) -> Object:
    """Return the Secret of a run.

    Its record is signed, so that no other client can write one with its own token. The agent of a warm pod does not
    read it. Then the Secret contains the encrypted token only: users of the namespace need no access to the run.
    """
    meta = _metadata(run, name, namespace)
    text = json.dumps(asdict(record))
    signature = _signature(address.key, name, run.uid, run.token, text)
    meta["annotations"] = {**meta.get("annotations", {}), _RECORD: text, _SIGNATURE: signature}
    if record.warm:
        return _secret(meta, {_SEALED: _sealed(address.key, name, run.token)})
    return {**_secret(meta, _contact(name, run.token, address)), "data": _agent()}


def _secret(meta: dict[str, Any], content: dict[str, str]) -> Object:
    return {"apiVersion": "v1", "kind": "Secret", "metadata": meta, "type": "Opaque", "stringData": content}


@functools.cache
def _agent() -> Mapping[str, str]:
    return {AGENT: base64.b64encode(archive()).decode()}


def archive() -> bytes:
    """Return the agent as a zip application."""
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as application:
        for path in sorted(Path(agent.__path__[0]).glob("*.py")):
            application.writestr(zipfile.ZipInfo(f"{_PACKAGE}/{path.name}"), path.read_bytes(), zipfile.ZIP_DEFLATED)
        application.writestr(zipfile.ZipInfo("__main__.py"), _MAIN)
    return stream.getvalue()


def _contact(name: str, token: str, address: Address) -> dict[str, str]:
    return {
        "run": name,
        "token": token,
        "ca.crt": address.authority,
        "server": address.server,
        "name": address.name,
    }


def recorded(obj: Object, uid: str, key: bytes) -> RecordedRun | None:
    """Return the run of the object `uid` that a Secret records; None if it is not signed with `key`."""
    meta, annotations = metadata(obj), annotations_of(obj)
    token = _token(obj, key)
    text = str(annotations.get(_RECORD, ""))
    expected = _signature(key, str(meta.get("name", "")), uid, token, text)
    if not hmac.compare_digest(expected.encode(), str(annotations.get(_SIGNATURE, "")).encode()):
        return None
    record = RunRecord(**json.loads(text))
    return RecordedRun(record.ident, token, str(meta["name"]), str(meta["namespace"]), record)


def _token(obj: Object, key: bytes) -> str:
    """Return the token in a Secret; empty if there is none."""
    data = obj.get("data") or {}
    try:
        if _SEALED not in data:
            return base64.b64decode(data.get("token", ""), validate=True).decode()
        nonce, _, text = base64.b64decode(data[_SEALED], validate=True).decode().partition(".")
        return _masked(key, str(metadata(obj).get("name", "")), nonce, bytes.fromhex(text)).decode()
    except ValueError:
        return ""


def _sealed(key: bytes, name: str, token: str) -> str:
    """Return a token that only operators with this key can read. The signature of the record protects its content."""
    nonce = secrets.token_hex(16)
    return f"{nonce}.{_masked(key, name, nonce, token.encode()).hex()}"


def _masked(key: bytes, name: str, nonce: str, text: bytes) -> bytes:
    """Combine a text with a key stream of the same length, used once. The second time, this restores the text."""
    stream = hashlib.shake_256(_signature(key, "token", name, nonce).encode()).digest(len(text))
    return bytes(a ^ b for a, b in zip(text, stream, strict=True))


def elsewhere(obj: Object, gvk: GVK) -> ObjectKey | None:
    """Return the resource of a Secret or Job in another namespace than its resource; None if it is of another kind."""
    annotations = annotations_of(obj)
    namespace, slash, name = str(annotations.get(PRIMARY_RESOURCE, "")).partition("/")
    is_of_kind = annotations.get(PRIMARY_RESOURCE_TYPE) == type_name(gvk)
    return ObjectKey(namespace, name) if slash and is_of_kind else None


def _signature(key: bytes, *parts: str) -> str:
    return hmac.new(key, json.dumps(parts).encode(), hashlib.sha256).hexdigest()


def job(run: Job, policy: PodPolicy, name: str, namespace: str) -> Object:
    """Return the Job of a run."""
    labels = {**_LABELS, RUN_OF: run.uid, RUN: name}
    manifest = _job({**_metadata(run, name, namespace), "labels": labels}, policy)
    if run.deadline is not None:
        manifest["spec"]["activeDeadlineSeconds"] = int(run.deadline + _SLACK)
    return manifest


def job_of(pod: Object) -> ObjectKey | None:
    """Return the Job that controls the pod of a run; None if it is not the Job that the label `RUN` names.

    Other clients can give their own pods the labels of a run.
    """
    meta = metadata(pod)
    name = str(labels_of(pod).get(RUN, ""))
    owner: Mapping[str, Any] = next((reference for reference in references_of(pod) if reference.get("controller")), {})
    is_controlled = (owner.get("apiVersion"), owner.get("kind"), owner.get("name")) == ("batch/v1", "Job", name)
    return ObjectKey(str(meta.get("namespace", "")), name) if is_controlled else None


def warm_name(kind: str) -> str:
    """Return the name of a new warm pod: of its Secret and Job."""
    return f"warm-{kind.lower()[:_LONGEST_KIND]}-{secrets.token_hex(5)}"


def is_secret_name(name: str, *, warm: bool) -> bool:
    """Return whether a name is that of the Secret of a run in a pod; with `warm`, also of a warm pod."""
    return _OF_RUN.fullmatch(name) is not None or (warm and _OF_WARM_POD.fullmatch(name) is not None)


def warm_label(kind: str) -> str:
    """Return the value of the label `WARM`."""
    return kind[:_LONGEST_LABEL]


def warm_token(address: Address, name: str) -> str:
    """Return the token with which the agent of a warm pod obtains its run. The next operator can compute it too."""
    return _signature(address.key, "warm", name)


def warm_job(kind: str, policy: PodPolicy, name: str, namespace: str, owners: Sequence[Object]) -> Object:
    """Return the Job of a warm pod. Its pod waits without limit, so it has no deadline."""
    labels = {**_LABELS, RUN: name, WARM: warm_label(kind)}
    return _job({"name": name, "namespace": namespace, "labels": labels, "ownerReferences": list(owners)}, policy)


def warm_secret(job: Object, address: Address, warm: Mapping[str, str]) -> Object:
    """Return the Secret of a warm pod, which its created Job owns. `warm`: content of the agent's file `warm`."""
    meta = metadata(job)
    name = str(meta["name"])
    reference = {"apiVersion": "batch/v1", "kind": "Job", "name": name, "uid": meta["uid"]}
    made = {"name": name, "namespace": meta["namespace"], "labels": meta["labels"], "ownerReferences": [reference]}
    content = _contact(name, warm_token(address, name), address)
    return {**_secret(made, {**content, "warm": json.dumps(warm)}), "data": _agent()}


def _job(meta: dict[str, Any], policy: PodPolicy) -> Object:
    spec = {
        "backoffLimit": 0,
        "ttlSecondsAfterFinished": policy.ttl,
        "template": {
            "metadata": {
                "labels": meta["labels"],
                "annotations": {"kubectl.kubernetes.io/default-container": CONTAINER},
            },
            "spec": _pod(policy, str(meta["name"])),
        },
    }
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": meta, "spec": spec}


def _pod(policy: PodPolicy, name: str) -> dict[str, Any]:
    pod, container = policy.pod, policy.container
    return {
        **pod,
        "restartPolicy": "Never",
        "automountServiceAccountToken": "serviceAccountName" in pod,
        "enableServiceLinks": False,
        "volumes": [
            {"name": "agent", "secret": {"secretName": name}},
            {"name": "work", "emptyDir": {}},
            *pod.get("volumes", []),
        ],
        "containers": [
            {
                **container,
                "securityContext": {**_CONFINED, **container.get("securityContext", {})},
                "name": CONTAINER,
                "command": ["python3", f"{SECRET_DIR}/{AGENT}", SECRET_DIR, WORK],
                "terminationMessagePolicy": "FallbackToLogsOnError",
                "volumeMounts": [
                    {"name": "agent", "mountPath": SECRET_DIR, "readOnly": True},
                    {"name": "work", "mountPath": WORK},
                    *container.get("volumeMounts", []),
                ],
            }
        ],
    }


def _metadata(run: Job, name: str, namespace: str) -> dict[str, Any]:
    owner = Owner(run.owner, namespaced=bool(run.owner.key.namespace))
    labels = {**_LABELS, RUN_OF: run.uid}
    meta = {"name": name, "namespace": namespace, "labels": labels}
    if owner.may_own_in(namespace):
        return {**meta, "ownerReferences": [owner.reference()]}
    return {**meta, "annotations": owner.annotations()}
