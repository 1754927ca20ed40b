"""The fingerprint of what runs execute: which changes of files, settings and environment count."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

from runner.base.config.paths import search_path
from runner.core.content import files as content_digest
from runner.core.content.files import ContentDigest, FileDigests
from runner.core.watches.spec_paths import SpecPath
from runner.core.watches.watch import Playbook, Role, Watch
from runner.engines.pod.fields import PodPolicy, isolated
from runner.features.hosts.fields import AllowedHosts, InventoryPolicy, with_hosts
from runner.values.errors import EngineError


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name, text in {
        "roles/cache/tasks/main.yml": "- debug:",
        "roles/other/tasks/main.yml": "- debug:",
        "collections/ansible_collections/a/installed/MANIFEST.json": '{"version": "1.0.0"}',
        "collections/ansible_collections/a/installed/README.md": "text",
        "collections/ansible_collections/a/source/plugins/modules/x.py": "x = 1",
        "home/.ansible.cfg": "[defaults]",
        "ansible.cfg": "[defaults]",
        "site.yml": "- hosts: all",
        "runs/artifacts/1/stdout": "output",
    }.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    return tmp_path


@pytest.fixture
def make(folder: Path, make_watch: Callable[..., Watch]) -> Callable[..., ContentDigest]:
    def build(*, environ: dict[str, str] | None = None, args: str = "", **watch: Any) -> ContentDigest:
        fields = {"content": Role("cache", folder / "roles/cache"), **watch}
        places = search_path(cwd=folder, roles_path="", collections_path=str(folder / "collections"), environ={})
        # Only the folders of this test: what is installed here is not the matter.
        places = replace(places, collections=(folder / "collections/ansible_collections",))
        return ContentDigest(
            make_watch(**fields), places, args, {"HOME": str(folder / "home"), **(environ or {})}, folder
        )

    return build


async def test_the_same_files_are_the_same_whatever_their_times(
    make: Callable[..., ContentDigest], folder: Path
) -> None:
    before = await make().digest()
    for parent, _, names in os.walk(folder):
        for name in names:
            os.utime(f"{parent}/{name}", (1, 1))
    assert await make().digest() == before


@pytest.mark.parametrize(
    "path",
    [
        "roles/cache/tasks/main.yml",
        "roles/cache/files/new.txt",
        "roles/other/tasks/main.yml",
        "collections/ansible_collections/a/installed/MANIFEST.json",
        "collections/ansible_collections/a/source/plugins/modules/x.py",
        "home/.ansible.cfg",
    ],
)
async def test_a_file_that_runs_may_use_counts(make: Callable[..., ContentDigest], folder: Path, path: str) -> None:
    before = await make().digest()
    (folder / path).parent.mkdir(exist_ok=True)
    (folder / path).write_text("something else")
    assert await make().digest() != before


async def test_an_ansible_cfg_counts_only_where_runs_read_it(make: Callable[..., ContentDigest], folder: Path) -> None:
    given = {"ANSIBLE_CONFIG": str(folder / "ansible.cfg")}
    before, before_given = await make().digest(), await make(environ=given).digest()
    (folder / "ansible.cfg").write_text("[defaults]\ntimeout = 5\n")
    assert await make().digest() == before
    assert await make(environ=given).digest() != before_given


async def test_files_beside_a_playbook_count_except_run_folders(
    make: Callable[..., ContentDigest], folder: Path
) -> None:
    content = Playbook(folder / "site.yml")
    before = await make(content=content).digest()
    (folder / "runs/artifacts/1/stdout").write_text("more")
    assert await make(content=content).digest() == before
    (folder / "group_vars").mkdir()
    (folder / "group_vars/all.yml").write_text("a: 1")
    assert await make(content=content).digest() != before


async def test_fields_of_a_watch_that_change_its_runs_count_and_its_schedule_does_not(
    make: Callable[..., ContentDigest],
) -> None:
    before = await make(vars={"a": 1}, blacklist=frozenset()).digest()
    assert await make(vars={"a": 2}).digest() != before
    assert await make(vars={"a": 1}, mark_unsafe=False).digest() != before
    assert await make(vars={"a": 1}, args="--diff").digest() != before
    assert await make(vars={"a": 1}, line=7, reconcile_period=3.0).digest() == before


async def test_the_environment_counts_but_for_what_differs_from_pod_to_pod(make: Callable[..., ContentDigest]) -> None:
    before = await make(environ={"RELATED_IMAGE_CACHE": "a:1"}).digest()
    assert await make(environ={"RELATED_IMAGE_CACHE": "a:2"}).digest() != before
    service = {"WEB_SERVICE_HOST": "10.0.0.1", "WEB_PORT": "tcp://10.0.0.1:80", "WEB_PORT_80_TCP_ADDR": "10.0.0.1"}
    passing = {"HOSTNAME": "pod-7", "POD_NAME": "pod-7", "WEB_SERVICE_PORT_HTTP": "80", **service}
    assert await make(environ={"RELATED_IMAGE_CACHE": "a:1", **passing}).digest() == before


@pytest.mark.parametrize("name", ["DB_PORT", "AUTH_SERVICE_HOST", "AUTH_SERVICE_PORT", "DB_PORT_1_OLD"])
async def test_a_setting_with_a_name_like_that_of_a_service_counts(
    make: Callable[..., ContentDigest], name: str
) -> None:
    service = {"WEB_PORT": "tcp://10.0.0.1:80"}
    digests = {await make(environ={name: value, **service}).digest() for value in ("5432", "5433")}
    assert len(digests) == 2


async def test_files_are_checked_again_after_a_while_and_read_only_if_changed(
    make: Callable[..., ContentDigest], folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = make()
    before = await made.digest()
    (folder / "roles/cache/tasks/main.yml").write_text("- fail:")
    assert await made.digest() == before
    monkeypatch.setattr(content_digest, "_FRESH", 0.0)
    read: list[str] = []
    original = content_digest._digest

    def noted(path: Path) -> bytes:
        read.append(path.name)
        return original(path)

    monkeypatch.setattr(content_digest, "_digest", noted)
    assert await made.digest() != before
    assert read == ["main.yml"]


@pytest.mark.parametrize("is_role", [True, False])
async def test_roles_beside_content_that_is_outside_the_search_path_count(
    make: Callable[..., ContentDigest], folder: Path, *, is_role: bool
) -> None:
    for name in ("one", "two"):
        (folder / "outside" / name / "tasks").mkdir(parents=True)
    (folder / "outside/site.yml").touch()
    content = Role("one", folder / "outside/one") if is_role else Playbook(folder / "outside/site.yml")
    before = await make(content=content).digest()
    (folder / "outside/two/tasks/main.yml").write_text("- debug:")
    assert await make(content=content).digest() != before


def test_links_to_folders_above_them_end_no_search(folder: Path) -> None:
    for role in ("cache", "other"):
        (folder / "roles" / role / "tests").mkdir()
        (folder / "roles" / role / "tests/roles").symlink_to("../..")
        (folder / "roles" / role / "files").symlink_to(folder / "collections")
    files = [str(path.relative_to(folder / "roles")) for path in islice(content_digest.below(folder / "roles"), 100)]
    manifest = "files/ansible_collections/a/installed/MANIFEST.json"
    assert {f"{role}/{name}" for role in ("cache", "other") for name in ("tasks/main.yml", manifest)} <= {*files}
    assert len(files) == 8


def test_an_entry_that_is_no_file_has_no_digest_and_a_large_file_is_not_read_as_a_whole(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    os.mkfifo(folder / "pipe")
    large = folder / "large"
    large.write_bytes(b"content")
    monkeypatch.setattr(Path, "read_bytes", None)
    digest = hashlib.blake2b(b"content", digest_size=16).hexdigest()
    assert FileDigests().take([folder / "pipe", large]) == {str(folder / "pipe"): "", str(large): digest}


async def test_the_inventory_of_the_project_counts_with_the_variables_beside_it(
    make: Callable[..., ContentDigest], folder: Path
) -> None:
    file, variables = folder / "inventories/base.yml", folder / "inventories/group_vars/web.yml"
    variables.parent.mkdir(parents=True)
    file.write_text("web:")
    policy = InventoryPolicy(
        SpecPath.parse("spec.hosts"), "web", file, None, AllowedHosts((), ("a.b",)), first_use=False, fact_cache=0.0
    )
    found = {await make().digest(), await make(more=with_hosts(policy)).digest()}
    variables.write_text("a: 1")
    found.add(await make(more=with_hosts(policy)).digest())
    file.write_text("other:")
    found.add(await make(more=with_hosts(policy)).digest())
    found.add(await make(more=with_hosts(replace(policy, allow=AllowedHosts((), ("c.d",))))).digest())
    assert len(found) == 5


async def test_another_image_of_pods_counts_and_their_number_does_not(make: Callable[..., ContentDigest]) -> None:
    template = {"image": "example.com/ee:1"}
    before = await make(more=isolated(PodPolicy(1, {}, template))).digest()
    assert await make(more=isolated(PodPolicy(20, {}, template, ttl=60))).digest() == before
    others = (
        PodPolicy(1, {}, {"image": "example.com/ee:2"}),
        PodPolicy(1, {}, {**template, "env": [{"name": "A", "value": "1"}]}),
        PodPolicy(1, {"serviceAccountName": "runs"}, template),
    )
    assert len({before, await make().digest(), *[await make(more=isolated(other)).digest() for other in others]}) == 5


@pytest.mark.parametrize("is_role", [True, False])
async def test_content_that_is_missing_has_no_digest(
    make: Callable[..., ContentDigest], folder: Path, *, is_role: bool
) -> None:
    content = Role("gone", folder / "roles/gone") if is_role else Playbook(folder / "gone/site.yml")
    with pytest.raises(EngineError, match=r"gone.* does not exist"):
        await make(content=content).digest()
