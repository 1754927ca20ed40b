from __future__ import annotations

import pytest

from runner.sdk.migrate import dockerfile, packages
from tests.unit.migrate.projects import Analyse

GO = "quay.io/operator-framework/ansible-operator:v1.42.3"
UPDATE = "apt-get update"
INSTALL = "apt-get install --yes --no-install-recommends"
FORGET = "rm -rf /var/lib/apt/lists/*"


@pytest.mark.parametrize(
    ("script", "translated"),
    [
        (
            "dnf install -y --nodocs openssl jq && dnf clean all",
            "apt-get update && apt-get install --yes --no-install-recommends openssl jq && rm -rf /var/lib/apt/lists/*",
        ),
        (
            "microdnf update -y",
            "apt-get update && apt-get upgrade --yes && rm -rf /var/lib/apt/lists/*",
        ),
        (
            "yum -y install python3-devel \\\n    gcc-c++ && rm -rf /var/cache/yum && pip3 install a",
            "apt-get update && apt-get install --yes --no-install-recommends python3-dev g++ && pip3 install a && "
            + FORGET,
        ),
        (
            "dnf update -y && dnf install -y git; dnf remove -y git",
            f"{UPDATE} && apt-get upgrade --yes && {INSTALL} git; apt-get purge --yes --auto-remove git && {FORGET}",
        ),
        ("echo hello", "echo hello"),
    ],
)
def test_package_commands_are_translated(script: str, translated: str) -> None:
    found = packages.translate(script)
    assert found is not None
    assert " ".join(found.text.replace("\\\n", " ").split()) == translated
    assert found.uncertain == ()


@pytest.mark.parametrize(
    "script",
    [
        "dnf install -y https://example.com/a.rpm",
        "dnf module enable nodejs",
        "rpm -e --nodeps python3-pyasn1 && pip3 install pyasn1",
        "if true; then dnf install -y git; fi",
        "dnf install -y '@development'",
        "bash -c 'dnf install -y git'",
    ],
)
def test_a_command_without_a_plain_translation_remains_for_the_user(script: str) -> None:
    assert packages.is_foreign(script)
    assert packages.translate(script) is None


def test_names_of_packages_that_may_differ_are_listed() -> None:
    found = packages.translate("dnf install -y openssl sushy-tools")
    assert found is not None
    assert found.uncertain == ("sushy-tools",)


@pytest.mark.parametrize(
    ("image", "core"),
    [
        (GO, "2.18"),
        ("quay.io/operator-framework/ansible-operator:v1.37.0", "2.17"),
        ("quay.io/operator-framework/ansible-operator:v1.34", "2.15"),
        ("quay.io/operator-framework/ansible-operator:v0.19.4", "2.9"),
        ("quay.io/operator-framework/ansible-operator-2.11-preview:v1.22.0", "2.11"),
        ("registry.redhat.io/openshift4/ose-ansible-rhel9-operator:v4.18", ""),
        ("registry.redhat.io/openshift4/ose-ansible-operator:v4.8", ""),
        ("quay.io/operator-framework/ansible-operator:main", ""),
        ("example.com/ansible-operator-runner:0.1.0-core2.18", "2.18"),
    ],
)
def test_the_ansible_core_of_a_base_image(image: str, core: str) -> None:
    assert dockerfile.parse("Dockerfile", f"FROM {image}\n").core == core


def test_lines_that_need_a_change_are_found() -> None:
    text = f"""\
# An operator
ARG BASE={GO}
FROM ${{BASE}} AS final

RUN dnf install -y \\
    # a comment
    git
RUN pip3.9 install a && python3.12 --version
COPY a.py /usr/local/lib/python3.12/site-packages/a.py
COPY ca.pem /usr/local/lib/python3.9/site-packages/certifi/cacert.pem
COPY a.repo /etc/yum.repos.d/a.repo
RUN rpm -i a.rpm
"""
    parsed = dockerfile.parse("Dockerfile", text)
    assert [(each.line, each.rule, each.is_automatic) for each in dockerfile.findings(parsed)] == [
        (2, "base-image", True),
        (5, "rpm-packages", True),
        (8, "python-program", True),
        (10, "site-packages", False),
        (11, "rpm-repository", False),
        (12, "rpm-packages", False),
    ]


def test_another_dockerfile_is_not_an_operators() -> None:
    assert dockerfile.parse("Dockerfile", "FROM debian\nRUN dnf install git\n").base is None


def test_the_migrated_file_differs_in_the_lines_that_need_a_change() -> None:
    text = f"""\
ARG BASE={GO}
FROM ${{BASE}}
USER root
# tools
RUN dnf install -y git \\
 && dnf clean all
RUN pip3.9 install a
RUN rpm -i a.rpm
USER 1001
"""
    after = dockerfile.migrated(dockerfile.parse("Dockerfile", text), "example.com/ansible-operator-runner:1-core2.18")
    assert (
        after
        == """\
ARG BASE=example.com/ansible-operator-runner:1-core2.18
FROM ${BASE}
USER root
# tools
RUN apt-get update \\
 && apt-get install --yes --no-install-recommends git \\
 && rm -rf /var/lib/apt/lists/*
RUN pip3 install a
RUN rpm -i a.rpm
USER 1001
"""
    )
    assert [each.rule for each in dockerfile.findings(dockerfile.parse("Dockerfile", after))] == ["rpm-packages"]


def test_a_version_of_openshift_is_not_one_of_the_sdk(analyse: Analyse) -> None:
    for name in ("ose-ansible-operator:v4.8", "ose-ansible-rhel9-operator:v4.18"):
        text = f"FROM registry.redhat.io/openshift4/{name}\n"
        report = analyse({"Dockerfile": text, "requirements.yml": ""})
        assert [each.rule for each in report.findings] == ["base-image"]
        assert report.reasons[0].endswith(f"/{name}, whose version of Ansible is unknown")


def test_commands_in_a_here_document_are_reported_and_not_changed() -> None:
    text = f"""\
FROM {GO}
RUN <<EOF
# no comment of the Dockerfile
dnf install -y git
pip3.9 install a
EOF
RUN <<-'ONE' cat <<"TWO" && true
yum update
	ONE
COPY . /nowhere
TWO
COPY <<EOF /etc/a.conf
RUN dnf install git
EOF
COPY a.repo /etc/yum.repos.d/
RUN echo 1 << 2
CMD ["run"]
"""
    parsed = dockerfile.parse("Dockerfile", text)
    assert [(each.name, each.first, each.last) for each in parsed.instructions] == [
        ("FROM", 1, 1),
        ("RUN", 2, 6),
        ("RUN", 7, 11),
        ("COPY", 12, 14),
        ("COPY", 15, 15),
        ("RUN", 16, 16),
        ("CMD", 17, 17),
    ]
    assert [(each.line, each.rule, each.is_automatic) for each in dockerfile.findings(parsed)][1:] == [
        (2, "rpm-packages", False),
        (2, "python-program", True),
        (7, "rpm-packages", False),
        (15, "rpm-repository", False),
    ]
    assert [each for each, _, _ in dockerfile.copies(parsed)] == [parsed.instructions[4]]
    after = dockerfile.migrated(parsed, "example.com/ansible-operator-runner:1")
    assert after.splitlines()[1:] == text.replace("pip3.9", "pip3").splitlines()[1:]
