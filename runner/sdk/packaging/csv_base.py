"""The project's base ClusterServiceVersion, and the version of the existing bundle."""

from __future__ import annotations

import base64
import os
from datetime import UTC, datetime
from pathlib import Path

import yaml

from runner.errors import ConfigError
from runner.sdk.packaging import descriptors, manifests, semver
from runner.sdk.scaffold import templates
from runner.sdk.scaffold.project import Project

_ROOT = Path(__file__).parent / "templates"
_ICON = (
    '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 64 64"><circle cx="32" cy="32" r="30" fill="#1a5276"/>'
    '<path d="M18 46 32 14l14 32M24 36h16" fill="none" stroke="#fff" stroke-width="5"/></svg>'
)
_BUNDLE = Path("bundle/manifests")


def ensure(project: Project) -> Path:
    """Return the file of the project's own ClusterServiceVersion. Create it if it is missing."""
    path = Path(f"config/manifests/bases/{project.name}.clusterserviceversion.yaml")
    if path.exists():
        return path
    kinds = sorted({resource.kind for resource in project.resources})
    values = {
        "name": project.name,
        "domain": project.domain,
        "title": descriptors.title(project.name),
        "kinds": ", ".join(kinds) or "its kinds",
        "keyword": kinds[0].lower() if kinds else project.name,
        "maintainer": _quoted(manifests.git("config", "user.name") or "Maintainers"),
        "email": _quoted(manifests.git("config", "user.email") or f"maintainers@{project.domain}"),
        "icon": base64.b64encode(_ICON.encode()).decode(),
    }
    [(_, text)] = templates.tree("bundle", values, _ROOT)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path


def name_before(package: str, version: str) -> str:
    """Return the bundle that this version upgrades: the one in bundle/ if it is older, or the one that it upgrades."""
    path = _BUNDLE / f"{package}.clusterserviceversion.yaml"
    try:
        spec = yaml.safe_load(path.read_text(encoding="utf-8"))["spec"]
        known = str(spec["version"])
        if known == version:
            return str(spec.get("replaces") or "")
        return f"{package}.v{known.replace('+', '-')}" if semver.key(known) < semver.key(version) else ""
    except FileNotFoundError:
        return ""
    except (OSError, yaml.YAMLError, LookupError, TypeError, ValueError) as error:
        raise ConfigError(f"{path}: not a valid ClusterServiceVersion to upgrade from: {error}") from None


def created_at() -> str:
    """Return the time of the last commit, or of SOURCE_DATE_EPOCH, so that builds are reproducible."""
    epoch = os.environ.get("SOURCE_DATE_EPOCH") or manifests.git("log", "-1", "--format=%ct")
    when = datetime.fromtimestamp(int(epoch), UTC) if epoch.isdigit() else datetime.now(UTC)
    return when.strftime("%Y-%m-%dT%H:%M:%SZ")


def _quoted(text: str) -> str:
    return yaml.safe_dump(text, allow_unicode=True, width=1000).splitlines()[0]
