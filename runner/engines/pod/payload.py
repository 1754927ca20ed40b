"""Order of a run in a pod: the stream of `ansible-runner transmit`, with the private data directory in it.

It contains roles or playbooks with the files beside them, extra vars, and the kubeconfig for the agent's port. The
operator's own callback and collection are beside them. Other collections are those of the image. Only options of
Ansible and `RELATED_IMAGE_*` of the operator's environment are passed on, without paths in the operator's pod. Blocking
I/O: call it in a thread.

A variable is passed if Ansible's configuration defines it with a type other than a path. Variables of plugins and
collections have no such definition, and can contain tokens.
"""

from __future__ import annotations

import functools
import importlib.util
import json
import os
import shlex
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml
from ansible_runner.streaming import Transmitter

import runner
from runner.agent.frames import RELAY_PORT
from runner.agent.preload import IDENT
from runner.base import log
from runner.base.config.paths import ansible_configs
from runner.core.content import files as content_files
from runner.core.content.files import BESIDE_A_PLAYBOOK, SKIPPED, leads_back
from runner.core.engine import extravars, run_dir
from runner.core.engine.job import Inventory, Job
from runner.core.engine.run_dir import MAX_VERBOSITY
from runner.core.proxy.handlers.authenticate import kubeconfig
from runner.core.watches.watch import Playbook
from runner.engines.pod.jobs import PRIVATE_DATA
from runner.values.errors import EngineError

ORDER = ".order-"
"""Begin of the names of files and folders with orders, which contain variables and the token of the run."""
_OWN = "operator"
"""Folder in `project/` with the operator's own plugins."""
_TEMPORARY = str(Path(PRIVATE_DATA, "tmp"))
_PACKAGE = Path(runner.__file__).parent
_SKIPPED = shutil.ignore_patterns(*SKIPPED, "*.pyc")
_log = log.get(__name__)
_logged = log.Once()
_PATHS = {"path", "pathspec", "pathlist", "tmp", "tmppath"}
"""Types of Ansible's options that are paths, here in the operator's pod."""
_OF_GALAXY = "GALAXY_"
"""Begin of names of options that only installations of collections use."""
_NOT_PASSED = ("ANSIBLE_OPERATOR_", "ANSIBLE_RUNNER_", f"ANSIBLE_{_OF_GALAXY}", "ANSIBLE_CONFIG", "ANSIBLE_DEBUG_LOGS")
"""Begins of variables that runs do not need: of the operator, ansible-runner, Galaxy, and of a file that is passed."""


def write(job: Job, target: Path, environ: Mapping[str, str], cwd: Path, callbacks: Sequence[Path] = ()) -> None:
    """Write the order of a job to a file. `environ` is the operator's environment.

    `callbacks` are folders of callbacks that Ansible loads.

    Raises:
        EngineError: the order cannot be written.
    """
    try:
        with tempfile.TemporaryDirectory(dir=target.parent, prefix=ORDER) as folder:
            kwargs = _make(job, Path(folder), environ, cwd, callbacks)
            with os.fdopen(os.open(target, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as stream:
                Transmitter(_output=stream, private_data_dir=folder, **kwargs).run()
    except (OSError, shutil.Error, UnicodeError) as error:
        raise EngineError(f"the files of the run cannot be collected: {error}") from error


def _make(job: Job, folder: Path, environ: Mapping[str, str], cwd: Path, callbacks: Sequence[Path]) -> dict[str, Any]:
    """Make the private data directory; return the arguments of ansible-runner."""
    for name in ("env", "inventory", "project", "tmp"):
        (folder / name).mkdir()
    project = folder / "project"
    environment = _environment(job.environment, environ)
    playbook = _content(job, project, explicit=environment.get("ANSIBLE_GATHERING") == "explicit")
    for name, text in configuration(job.environment, environ, cwd).items():
        _write(folder / name, text)
    own = project / _OWN
    shutil.copytree(_PACKAGE / "collections", own / "collections", ignore=_ignored)
    for source in (*callbacks, Path(__file__).with_name("callbacks")):
        shutil.copytree(source, own / "callbacks", ignore=_ignored, dirs_exist_ok=True)
    env = folder / "env"
    _write(env / "kubeconfig", kubeconfig(f"http://127.0.0.1:{RELAY_PORT}", job.token))
    _write(env / "extravars", extravars.dump(job.extra_vars, job.unsafe_keys))
    _write(folder / "inventory/hosts", run_dir.localhost(Path(_TEMPORARY)))
    arguments: dict[str, Any] = {
        "ident": IDENT,
        "playbook": playbook,
        "verbosity": max(0, min(job.verbosity, MAX_VERBOSITY)),
    }
    # ansible-runner's worker takes one inventory only.
    more = _inventories(job.inventory, folder) if job.inventory is not None else []
    if job.ansible_args or more:
        arguments["cmdline"] = " ".join(filter(None, (job.ansible_args, shlex.join(more))))
    return arguments


def _ignored(folder: str, names: list[str]) -> set[str]:
    """Return the names that are not copied."""
    skipped = set(_SKIPPED(folder, names))
    return skipped | {name for name in names if name not in skipped and not _is_usable(Path(folder, name))}


def _is_usable(path: Path) -> bool:
    """Return True for a readable file or folder that is not a link to a folder above it. Log any other entry.

    Ansible cannot use it either, so it does not prevent a run.
    """
    is_folder = path.is_dir()
    is_usable = (is_folder or path.is_file()) and os.access(path, os.R_OK | os.X_OK if is_folder else os.R_OK)
    is_usable = is_usable and not leads_back(path)
    if not is_usable and _logged.is_new(path):
        _log.warning(
            "Pods of runs do not get an entry of a role or playbook: it is not a file or folder that can be read",
            path=str(path),
        )
    return is_usable


def _inventories(inventory: Inventory, folder: Path) -> list[str]:
    """Write the inventory of the hosts, and copy those of the project; return the arguments with them."""
    written = [*inventory.write(folder / "tmp", Path(_TEMPORARY, "cp"), seen=Path(_TEMPORARY))]
    for file in inventory.further:
        inside = Path("project", _OWN, "inventory")
        for source in content_files.of_inventory(file):
            target = folder / inside / source.relative_to(file.parent)
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(source, target)
        written.append(Path(PRIVATE_DATA, inside, file.name))
    return [argument for path in written for argument in ("-i", str(path))]


def _write(path: Path, text: str) -> None:
    path.write_text(text, encoding="utf-8")
    path.chmod(0o600)


def configuration(added: Mapping[str, str], environ: Mapping[str, str], cwd: Path) -> dict[str, str]:
    """Return the files of the private data directory on which Ansible's options depend: texts by path.

    `added` overrides variables of `environ`, the operator's environment. Raises OSError.
    """
    files = {
        "env/envvars": json.dumps(_environment(added, environ)),
        "env/settings": json.dumps({"pexpect_timeout": 1}),
    }
    config = ansible_configs(environ, cwd)[0]
    if environ.get("ANSIBLE_CONFIG") and os.access(config, os.R_OK):  # Ansible ignores a missing file, and any encoding
        files["project/ansible.cfg"] = config.read_text(encoding="utf-8", errors="replace")
    return files


def _environment(added: Mapping[str, str], environ: Mapping[str, str]) -> dict[str, str]:
    passed = {name: value for name, value in environ.items() if _is_passed(name)}
    own = f"{PRIVATE_DATA}/project/{_OWN}"
    config = f"{PRIVATE_DATA}/env/kubeconfig"
    overrides = {name: value for name, value in added.items() if _is_passed(name)}
    return {
        **passed,
        **overrides,
        "KUBECONFIG": config,
        "K8S_AUTH_KUBECONFIG": config,
        "ANSIBLE_LOCAL_TEMP": _TEMPORARY,
        "PYTHONPATH": f"{own}/collections",
        "ANSIBLE_CALLBACK_PLUGINS": f"{own}/callbacks",
        "MAX_EVENT_RES": environ.get("MAX_EVENT_RES", str(16 << 20)),
        "ANSIBLE_NOCOLOR": "1",
    }


def _is_passed(name: str) -> bool:
    return name.startswith("RELATED_IMAGE_") or _is_passed_by_variable().get(name, False)


def unknown_variables(environ: Mapping[str, str]) -> list[str]:
    """Return the variables of Ansible, its plugins or collections that are not passed, as their content is unknown.

    Such a variable can contain a path or a secret: Ansible's configuration does not define it.
    """
    known = _is_passed_by_variable()
    variables = {name for name in environ if name.startswith("ANSIBLE_") and not name.startswith(_NOT_PASSED)}
    return sorted(variables - known.keys())


@functools.cache
def _is_passed_by_variable() -> Mapping[str, bool]:
    """Return the variables that Ansible's own configuration defines, and whether a pod gets each."""
    (package,) = importlib.util.find_spec("ansible").submodule_search_locations  # type: ignore[union-attr,misc]
    definitions = yaml.load(Path(package, "config/base.yml").read_text(encoding="utf-8"), yaml.CSafeLoader)
    return {
        variable["name"]: option.get("type") not in _PATHS and not name.startswith(_OF_GALAXY)
        for name, option in definitions.items()
        for variable in option.get("env") or ()
        if variable["name"].startswith("ANSIBLE_")
    }


def _content(job: Job, project: Path, *, explicit: bool) -> str:
    """Copy the role or playbook; return the name of the playbook to run."""
    if isinstance(job.content, Playbook):
        return _playbook(job.content.path, project)
    name = run_dir.collection_role(job.content)
    if name is None:
        shutil.copytree(job.content.path.parent, project / "roles", ignore=_ignored)
        name = job.content.path.name
    _write(project / "main.yml", json.dumps(run_dir.playbook_of(name, job, explicit=explicit)))
    return "main.yml"


def _playbook(path: Path, project: Path) -> str:
    """Copy a playbook, the files beside it, and the project's roles; return its name."""
    for file in path.parent.iterdir():
        if file.is_file() and _is_usable(file):
            shutil.copy2(file, project / file.name)
    for name in BESIDE_A_PLAYBOOK:
        if (path.parent / name).is_dir():
            shutil.copytree(path.parent / name, project / name, ignore=_ignored)
    roles = path.parent.parent / "roles"
    if not (project / "roles").exists() and roles.is_dir():
        shutil.copytree(roles, project / "roles", ignore=_ignored)
    return path.name
