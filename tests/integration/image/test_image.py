"""The image that operators are built from, built for real."""

from __future__ import annotations

import json
import stat
import subprocess
from collections.abc import Callable

import pytest

from tests.kit.images import BASE, DEBIAN, Image, Store, hindrance
from tests.kit.places import ROOT

MOST = 250 * 1024 * 1024
"""Bytes that the image may have, unpacked."""

pytestmark = [
    pytest.mark.full,
    pytest.mark.xdist_group("image"),
    pytest.mark.timeout(1500),
    pytest.mark.skipif(bool(why := hindrance()), reason=why),
]

TRUSTING = "localhost/trusting-operator:v1"
OLD = "localhost/ansible-operator-runner:2.18"


def test_the_image_has_the_user_folders_and_programs_that_projects_rely_on(base: Image) -> None:
    assert base.config["User"] == "1001"
    assert base.config["WorkingDir"] == "/opt/ansible"
    assert {"HOME=/opt/ansible", "USER_NAME=ansible", "USER_UID=1001"} <= set(base.config["Env"])
    run = ["/usr/local/bin/ansible-operator", "run", "--watches-file=./watches.yaml"]
    assert base.config["Entrypoint"] == ["/tini", "--", *run]
    assert (base.root / "etc/ansible/ansible.cfg").read_text().split("\n")[:2] == [
        "[defaults]",
        "roles_path = /opt/ansible/roles",
    ]
    assert base.run("id", "--user", "--name") == "ansible\n"
    assert base.run("id", "--groups") == "0\n"
    assert "ansible-core" in base.run("ansible-operator", "version")
    assert not list(base.root.glob("usr/local/lib/python3*/dist-packages/runner/sdk"))
    for program in ("ansible-galaxy", "pip", "pip3", "python3", "curl", "ssh"):
        assert base.run("sh", "-c", f"command -v {program}")


def test_names_and_paths_of_the_go_operators_image_exist(base: Image) -> None:
    assert base.run("python3.12", "-c", "import google.auth, requests_unixsocket; print('found')") == "found\n"
    installed = base.run("python3", "-c", "import ansible_runner; print(ansible_runner.__file__)").strip()
    for folder in ("/usr/lib", "/usr/lib64", "/usr/local/lib", "/usr/local/lib64"):
        path = f"{folder}/python3.12/site-packages/ansible_runner/__init__.py"
        assert base.run("readlink", "--canonicalize-existing", path).strip() == installed
    assert base.run("/usr/local/bin/python3", "-c", "import cryptography.fernet; print('found')") == "found\n"
    assert base.run("pip3.12", "--version") == base.run("pip", "--version")


def test_certificates_have_the_layouts_of_debian_and_of_red_hat(base: Image) -> None:
    bundle = "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem"
    for path in ("/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt", "/etc/pki/tls/cert.pem"):
        assert base.run("readlink", "--canonicalize-existing", path) == f"{bundle}\n"
    count = "import ssl; print(len(ssl.create_default_context().get_ca_certs()))"
    assert int(base.run("python3", "-c", count)) > 100
    # Another bundle at Red Hat's path, as a volume mounts it, is the one that programs use.
    mounted = (
        f"mount -t tmpfs tmpfs {bundle.rpartition('/')[0]} && "
        f"cp /etc/ssl/certs/Certainly_Root_R1.pem {bundle} && python3 -c '{count}'"
    )
    assert base.run("sh", "-c", mounted, user="0:0") == "1\n"


def test_its_size_is_within_bounds(base: Image, record_property: Callable[[str, object], None]) -> None:
    record_property("image, MiB unpacked", round(base.size / 2**20, 1))
    assert base.size <= MOST


def test_group_0_may_write_where_the_user_may_and_others_nowhere(base: Image) -> None:
    home = base.root / "opt/ansible"
    found = [home, *home.rglob("*")]
    assert {home / ".ansible/tmp", home / ".ansible/debug"} <= {*found}
    for path in found:
        told = path.stat()
        assert (told.st_uid, told.st_gid) == (1001, 0)
        assert (told.st_mode & stat.S_IRWXG) >> 3 == (told.st_mode & stat.S_IRWXU) >> 6
        assert not told.st_mode & stat.S_IWOTH


def test_the_image_contains_nothing_of_the_build_machine(base: Image) -> None:
    for left in ("etc/xdg/pip/pip.conf", "etc/apt/apt.conf.d/99machine", "run/authorities.crt"):
        path = base.root / left
        assert not path.exists() or path.read_bytes() == b"", "where a file was mounted, an empty one may stay"


def test_its_bill_of_materials_names_what_is_installed_and_nothing_else(base: Image) -> None:
    bill = json.loads((base.root / "usr/share/sbom/ansible-operator-runner.cdx.json").read_text())
    assert (bill["bomFormat"], bill["specVersion"]) == ("CycloneDX", "1.6")
    named = [component["purl"].partition("?")[0] for component in bill["components"] if "purl" in component]
    debian = base.run("dpkg-query", "--show", "--showformat=${Package} ${Version}\\n").splitlines()
    python = json.loads(base.run("pip", "list", "--format=json", "--disable-pip-version-check"))
    assert len(named) == len(debian) + len(python)
    assert {name.split("/", 1)[1].partition("@")[0] for name in named if name.startswith("pkg:deb/debian/")} == {
        f"debian/{line.split()[0].replace('+', '%2B')}" for line in debian
    }
    assert {name for name in named if name.startswith("pkg:pypi/")} == {
        f"pkg:pypi/{each['name'].lower().replace('_', '-')}@{each['version']}" for each in python
    }
    references = [component["bom-ref"] for component in bill["components"]]
    assert len(references) == len(set(references))


@pytest.mark.usefixtures("base")
def test_certificates_in_red_hats_folder_are_trusted_by_a_projects_image(store: Store) -> None:
    """A Dockerfile copies a certificate and runs `update-ca-trust`, as those of the Go operator's image do."""
    context = store.folder / "trust"
    context.mkdir()
    made = ("-keyout", str(context / "key.pem"), "-out", str(context / "shop.pem"))
    request = ("req", "-x509", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=Shop CA", "-days", "2")
    subprocess.run(["openssl", *request, *made], check=True, capture_output=True)
    anchors = "/etc/pki/ca-trust/source/anchors/"
    lines = (f"FROM {BASE}", "USER 0", f"COPY shop.pem {anchors}", "RUN update-ca-trust extract", "USER 1001", "")
    (context / "Dockerfile").write_text("\n".join(lines))
    store.build(context, TRUSTING)
    image = store.unpack(TRUSTING)
    subjects = "import ssl; print([a['subject'] for a in ssl.create_default_context().get_ca_certs()])"
    assert "Shop CA" in image.run("python3", "-c", subjects)
    assert image.run("readlink", "/etc/ssl/certs/ca-certificates.crt").startswith("/etc/pki/ca-trust/extracted/")


@pytest.mark.nightly
def test_a_second_image_carries_ansible_core_2_18(store: Store) -> None:
    store.make_debian()
    store.build(ROOT, OLD, "--target=base", f"--build-arg=DEBIAN={DEBIAN}", "--build-arg=ANSIBLE_CORE=2.18")
    old = store.unpack(OLD)
    assert "2.18." in old.run("ansible-operator", "version")
