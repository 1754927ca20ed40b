"""Run folder: ansible-runner's private data directory of one object, recreated for each run.

Owns `env/`, `inventory/`, `project/` and `tmp/`; `artifacts/` is kept. Promises:

- Folders have mode 0700 and files 0600, regardless of the umask.
- A file is complete or missing.
- Nothing of an earlier run remains outside `artifacts/`.

Blocking I/O: call it in a thread. Must not start processes.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shlex
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import runner
from runner.agent import user
from runner.base.config import atomic_file
from runner.core.engine import artifacts, extravars
from runner.core.engine.job import Job
from runner.core.engine.processes import MARKER
from runner.core.watches.watch import Playbook, Role
from runner.values.errors import EngineError

KUBECONFIG = Path("env", "kubeconfig")
TEMPORARY = Path("tmp")
FACTS = Path("facts")
"""Folder with facts of hosts, which the next run uses."""
MAX_VERBOSITY = 7

_ENVVARS = Path("env", "envvars")
_EXTRAVARS = Path("env", "extravars")
"""Exists from the start of a run until all that only the run uses is removed."""
_KUBE_CACHE = TEMPORARY / "kube"
_COLLECTIONS = Path(runner.__file__).parent / "collections"
_FOLDERS = ("env", "inventory", "project", "tmp")
_UNEXPECTED_FILES = ("args",)  # ansible-runner would run its content instead of the playbook


@dataclass(frozen=True, slots=True)
class RunFolder:
    """A prepared folder. `environment` is the whole environment of the run's processes."""

    path: Path
    ident: str
    playbook: Path
    inventories: tuple[Path, ...]
    verbosity: int
    ansible_args: str
    environment: Mapping[str, str]
    facts: Path | None = None
    """Folder with kept facts of hosts."""

    @property
    def kubeconfig(self) -> Path:
        """Path of this run's own kubeconfig."""
        return self.path / KUBECONFIG


def prepare(job: Job, identity: str, environ: Mapping[str, str], callbacks: Sequence[Path] = ()) -> RunFolder:
    """Prepare the folder for a run; `environ` is the operator's own environment.

    `callbacks` are folders of callbacks that Ansible loads.

    Raises:
        EngineError: a file cannot be written, or `--ansible-args` cannot be split.
    """
    _check(job)
    environment = {**environ, **job.environment}
    try:
        _make_folders(job.run_dir)
        added = {**job.environment, **_added(job.run_dir, identity, environment, callbacks)}
        playbook = _write_project(job, explicit=environment.get("ANSIBLE_GATHERING") == "explicit")
        _write_env(job, added)
        inventories = _write_inventories(job, environment.get("ANSIBLE_INVENTORY", ""))
        if "NSS_WRAPPER_PASSWD" in added:
            atomic_file.write(_passwd(job.run_dir), user.entries(environment))
    except OSError as error:
        _forget_secrets(job.run_dir)
        raise EngineError(
            f"the run folder {job.run_dir} cannot be written ({error.strerror}: {error.filename}); "
            "it needs a writable volume with free space",
        ) from error
    except EngineError:
        _forget_secrets(job.run_dir)
        raise
    return RunFolder(
        path=job.run_dir,
        ident=job.ident,
        playbook=playbook,
        inventories=inventories,
        verbosity=max(0, min(job.verbosity, MAX_VERBOSITY)),
        ansible_args=job.ansible_args,
        environment={**environment, **added},
        facts=FACTS if job.inventory is not None and job.inventory.keeps_facts else None,
    )


def clear(path: Path) -> None:
    """Remove the kubeconfig, variables and temporary files of a run, after every process of it has ended.

    Raises:
        OSError: a step failed; the other steps are done. After a temporary shortage, call it again.
    """
    with contextlib.ExitStack() as all_of_it:  # the last one first
        for name in (_EXTRAVARS, TEMPORARY, Path("env", "cmdline")):
            all_of_it.callback(_remove, path / name)
        all_of_it.callback(_remove, _short_temporary(path))
        (path / KUBECONFIG).unlink(missing_ok=True)


def _check(job: Job) -> None:
    """Reject paths that could leave the folder (Kubernetes allows no such names) and arguments that cannot be split."""
    if ".." in job.run_dir.parts or not job.run_dir.is_absolute():
        raise EngineError(f"{job.run_dir} cannot be the run folder of {job.gvk} {job.key}: it must be absolute")
    if job.ident in {"", ".", "..", artifacts.LATEST} or "/" in job.ident:
        raise EngineError(f"{job.ident!r} cannot name a run: it must be the name of a folder")
    try:
        shlex.split(job.ansible_args)
    except ValueError as error:
        raise EngineError(f"--ansible-args {job.ansible_args!r} cannot be split into words: {error}") from error


def _forget_secrets(path: Path) -> None:
    with contextlib.suppress(OSError):  # if the folder could not be written, it may not exist
        for name in (KUBECONFIG, _EXTRAVARS):
            (path / name).unlink(missing_ok=True)
        shutil.rmtree(path / TEMPORARY)


def _make_folders(path: Path) -> None:
    private_folder(path)
    for name in (*_FOLDERS, *_UNEXPECTED_FILES):
        _remove(path / name)
    for name in (*_FOLDERS, "artifacts"):
        private_folder(path / name)
    short = _short_temporary(path)
    private_folder(short.parent)
    _remove(short)
    private_folder(short)


def private_folder(path: Path) -> None:
    """Create a folder and its missing parents, each 0700. An existing folder must be owned by the operator's user."""
    try:
        created = [_make_folder(folder) for folder in (*reversed(path.parents), path)]
    except FileNotFoundError:  # the removal of another object removed the empty namespace meanwhile
        created = [_make_folder(folder) for folder in (*reversed(path.parents), path)]
    if not created[-1]:
        status = path.lstat()
        if not path.is_dir() or path.is_symlink() or status.st_uid != os.geteuid():
            raise EngineError(f"{path} is not a folder of our own; remove it or move the run folders")
        path.chmod(0o700)


def _make_folder(path: Path) -> bool:
    """Create one folder with mode 0700, regardless of the umask. Return True if it was missing."""
    if path.exists():
        return False
    try:
        path.mkdir(mode=0o700)
    except FileExistsError:
        return False
    path.chmod(0o700)
    return True


def _remove(path: Path) -> None:
    """Remove a file, link or folder."""
    try:
        path.unlink(missing_ok=True)
    except (IsADirectoryError, PermissionError):  # Linux raises the first, POSIX the second
        shutil.rmtree(path)


def _write_json(path: Path, value: Any) -> None:
    atomic_file.write(path, json.dumps(value, indent=1))


def shared_environment(
    environ: Mapping[str, str], own: Mapping[str, str], callbacks: Sequence[Path] = ()
) -> dict[str, str]:
    """Return the environment of runs with these variables of their own, with placeholders for `wire.PER_RUN`."""
    environment = {**environ, **own}
    return environment | _added(Path(os.devnull), "", environment, callbacks)


def _added(run_dir: Path, identity: str, environment: Mapping[str, str], callbacks: Sequence[Path]) -> dict[str, str]:
    """Return the variables of a run in addition to the operator's and the job's."""
    kubeconfig = str(run_dir / KUBECONFIG)
    added = {
        **user.variables(environment),
        **user.wrapper(environment, _passwd(run_dir)),
        MARKER: identity,
        "KUBECONFIG": kubeconfig,
        "K8S_AUTH_KUBECONFIG": kubeconfig,
        # Below the run folder, so that the next run removes the files of a killed run.
        "ANSIBLE_LOCAL_TEMP": str(run_dir / TEMPORARY),
        # Clients cache discovery in files without expiry: the next run would find kinds that are deleted.
        "TMPDIR": environment.get("TMPDIR") or str(_short_temporary(run_dir)),
        "KUBECACHEDIR": environment.get("KUBECACHEDIR") or str(run_dir / _KUBE_CACHE),
        # Ansible also searches for collections on Python's path, last. A collection that the user installed has
        # precedence, and `collections_path` of an ansible.cfg stays in force; ANSIBLE_COLLECTIONS_PATH would hide it.
        "PYTHONPATH": os.pathsep.join(filter(None, (environment.get("PYTHONPATH"), str(_COLLECTIONS)))),
    }
    if callbacks:
        added["ANSIBLE_CALLBACK_PLUGINS"] = os.pathsep.join(
            filter(None, (environment.get("ANSIBLE_CALLBACK_PLUGINS"), *map(str, callbacks)))
        )
    # ansible-runner drops a task's whole result above this size, including its message; its default is 700,000.
    added["MAX_EVENT_RES"] = environment.get("MAX_EVENT_RES", str(16 << 20))
    if not {"ANSIBLE_NOCOLOR", "NO_COLOR", "ANSIBLE_FORCE_COLOR"} & environment.keys():
        added["ANSIBLE_NOCOLOR"] = "1"  # ansible-runner gives Ansible a terminal; logs and status show no colours
    return added


def _short_temporary(run_dir: Path) -> Path:
    """Return the run's own folder for temporary files of programs. It is short, as a socket's path has 107 bytes."""
    name = hashlib.sha256(os.fsencode(run_dir)).hexdigest()[:12]
    return Path(tempfile.gettempdir(), f"ansible-operator-{os.geteuid()}", name)


def _passwd(run_dir: Path) -> Path:
    """Return the file with an entry of a user that has none. All runs have the same."""
    return _short_temporary(run_dir).with_name("passwd")


def _write_env(job: Job, environment: Mapping[str, str]) -> None:
    """Write `env/`."""
    env = job.run_dir / "env"
    _write_json(job.run_dir / _ENVVARS, dict(environment))  # first, because it names the run that uses the kubeconfig
    atomic_file.write(job.run_dir / KUBECONFIG, job.kubeconfig)
    atomic_file.write(job.run_dir / _EXTRAVARS, extravars.dump(job.extra_vars, job.unsafe_keys))
    _write_json(env / "settings", {"pexpect_timeout": 1})
    if job.ansible_args:
        atomic_file.write(env / "cmdline", job.ansible_args)


def _write_inventories(job: Job, own: str) -> tuple[Path, ...]:
    """Write the inventories. The first one is that of localhost, or the user's own, which replaces it."""
    path = job.run_dir
    first = Path(own).absolute() if own else _write_localhost(path)
    if job.inventory is None:
        return (first,)
    of_run = job.inventory.write(path / TEMPORARY, _short_temporary(path), facts=path / FACTS)
    return first, *of_run, *job.inventory.further


def _write_localhost(path: Path) -> Path:
    file = path / "inventory" / "hosts"
    # Ansible's files for modules are below the run folder: HOME can be read-only, and a killed run cleans up nothing.
    atomic_file.write(file, localhost(path / TEMPORARY))
    return file


def localhost(temporary: Path) -> str:
    """Return the inventory with localhost, whose temporary folder for modules is `temporary`."""
    interpreter = "ansible_python_interpreter={{ansible_playbook_python}}"
    return f"localhost ansible_connection=local {interpreter} {shlex.quote(f'ansible_remote_tmp={temporary}')}\n"


def _write_project(job: Job, *, explicit: bool) -> Path:
    """Return the playbook to run; for a role, write one in `project/`."""
    if isinstance(job.content, Playbook):
        return job.content.path
    project = job.run_dir / "project"
    name = collection_role(job.content)
    if name is None:
        # Roles beside it are found as with `--roles-path`, but roles_path of an ansible.cfg stays in force.
        (project / "roles").symlink_to(job.content.path.parent, target_is_directory=True)
        name = job.content.path.name
    _write_json(project / "main.yml", playbook_of(name, job, explicit=explicit))
    return project / "main.yml"


def playbook_of(role: str, job: Job, *, explicit: bool) -> list[dict[str, Any]]:
    """Return the playbook that runs a role. `explicit`: no facts are gathered."""
    hosts = job.inventory.group if job.inventory is not None else "localhost"
    return [{"hosts": hosts, "gather_facts": not explicit, "roles": [{"role": role}]}]


def collection_role(role: Role) -> str | None:
    """Return `namespace.collection.role` for a role of a collection."""
    match role.path.parts:
        case (*_, "ansible_collections", namespace, collection, "roles", name):
            return f"{namespace}.{collection}.{name}"
    return None


def unfinished(root: Path) -> list[tuple[Path, str]]:
    """Return each run folder below `root` whose last run did not end cleanly, with the marker of that run."""
    return [
        (folder, _identity(folder / _ENVVARS))
        for folder in artifacts.run_folders(root)
        if any((folder / name).is_file() for name in (KUBECONFIG, _EXTRAVARS))
    ]


@dataclass(frozen=True, slots=True)
class GoingOn:
    """A run that did not end cleanly: its name, and the marker of its processes."""

    ident: str
    marker: str


def going_on(path: Path) -> GoingOn | None:
    """Return the run of a folder that did not end cleanly; its operator may be dead."""
    latest = artifacts.latest(path / "artifacts")
    return GoingOn(latest, _identity(path / _ENVVARS)) if latest and (path / _EXTRAVARS).is_file() else None


def _identity(envvars: Path) -> str:
    with contextlib.suppress(OSError, ValueError, AttributeError):
        return str(json.loads(envvars.read_bytes()).get(MARKER, ""))
    return ""
