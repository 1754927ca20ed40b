# syntax=docker/dockerfile:1
# Two images in one file: `base` is what operators are built from, and what follows it is what a project's own
# Dockerfile says after `FROM`. Build with: docker build -t memcached-operator .

ARG DEBIAN=docker.io/library/debian:trixie-20261005-slim@sha256:a29215f6a35e51e22adffa17f89e9d2ef06214e64a2bad10d765c46aea49f11f

FROM ${DEBIAN} AS build
# Not every locked package publishes a wheel for s390x and ppc64le; what builds them stays in this stage.
RUN case "$(dpkg --print-architecture)" in \
      s390x | ppc64el) compilers='build-essential cargo libffi-dev libssl-dev pkg-config python3-dev' ;; \
    esac \
 && apt-get update \
 && apt-get install --yes --no-install-recommends binutils python3-venv ${compilers} \
 && python3 -m venv /build
# A lock in requirements/: image-2.21.txt, or image-2.18.txt for roles that later releases refuse.
ARG ANSIBLE_CORE=2.21
WORKDIR /src
COPY requirements/build.txt requirements/image-${ANSIBLE_CORE}.txt requirements/
RUN /build/bin/pip install --no-cache-dir --require-hashes -r requirements/build.txt \
 && /build/bin/pip wheel --no-cache-dir --wheel-dir /wheels --require-hashes -r requirements/image-${ANSIBLE_CORE}.txt
COPY pyproject.toml README.md LICENSE CHANGELOG.md ./
COPY runner/ runner/
# The label `commit` of the metric ansible_operator_build_info.
ARG COMMIT=unknown
RUN printf '%s\n' "${COMMIT}" > runner/commit.txt
# Into a folder that becomes /usr/local. What no operator uses goes: the commands for authors, a second, asynchronous client of Kubernetes as
# large as the first, Ansible's tests of collections, compiled code of pip, and what debuggers want to know of libraries.
RUN /build/bin/pip wheel --no-cache-dir --no-deps --no-build-isolation --wheel-dir /wheels . \
 && /build/bin/pip --python /usr/bin/python3 install --no-cache-dir --no-index --no-deps --break-system-packages \
      --root-user-action ignore --root /staging /wheels/*.whl \
 && cd /staging/usr/local/lib/python3.*/dist-packages \
 && rm -r kubernetes/aio ansible_test runner/sdk /staging/usr/local/bin/ansible-test \
 && find pip -name __pycache__ -prune -exec rm -r '{}' + \
 && find . -name '*.so' -exec strip --strip-unneeded '{}' +

FROM ${DEBIAN} AS base
# The pin would hold back what Debian has mended since.
# curl: what projects' own Dockerfiles fetch things with. openssh-client: hosts other than localhost. libnss-wrapper: an
# entry of a user id that the cluster chose, without which ssh does not start. tini: an init as process 1, which reaps what is orphaned; where projects that say so in an entrypoint of their own look for it.
RUN apt-get update \
 && apt-get upgrade --yes \
 && apt-get install --yes --no-install-recommends \
      ca-certificates curl libnss-wrapper openssh-client python-is-python3 python3 tini \
 && ln -s /usr/bin/tini /tini \
 && rm -rf /var/lib/apt/lists/* /var/cache/apt/*.bin /var/cache/apt/archives/*.deb /var/log/*
# Debian's own Python, not one beside it: modules that roles run find it as /usr/bin/python3, with the same libraries.
# Nothing of Debian's needs guarding from pip here, and projects install with it; it is the published pip, since Debian's
# brings packages that pip cannot replace.
COPY --from=build /staging/usr/local /usr/local
RUN printf '%s\n' '[global]' 'break-system-packages = true' > /etc/pip.conf
# Names and paths that Dockerfiles of the Go operator's image use: its version of Python, and Red Hat's layout of
# certificates.
COPY hack/image/pki-layout /etc/ca-certificates/update.d/pki-layout
COPY hack/image/update-ca-trust /usr/local/bin/update-ca-trust
RUN ln -s /usr/bin/python3 /usr/local/bin/python3 \
 && ln -s /usr/bin/python3 /usr/local/bin/python3.12 \
 && ln -s pip3 /usr/local/bin/pip3.12 \
 && packages=$(echo /usr/local/lib/python3.*/dist-packages) \
 && for folder in /usr/lib /usr/lib64 /usr/local/lib /usr/local/lib64; do \
      mkdir -p "${folder}/python3.12" && ln -s "${packages}" "${folder}/python3.12/site-packages"; \
    done \
 && bundle=/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem \
 && mkdir -p /etc/pki/ca-trust/source/anchors /etc/pki/tls/certs \
 && ln -s "${bundle}" /etc/pki/tls/certs/ca-bundle.crt \
 && ln -s "${bundle}" /etc/pki/tls/cert.pem \
 && update-ca-certificates
# What is in it, as CycloneDX: Debian's packages and Python's.
COPY hack/sbom /tmp/sbom
RUN mkdir -p /usr/share/sbom \
 && python3 /tmp/sbom ansible-operator-runner > /usr/share/sbom/ansible-operator-runner.cdx.json \
 && rm /tmp/sbom

ENV HOME=/opt/ansible \
    LANG=C.UTF-8 \
    USER_NAME=ansible \
    USER_UID=1001
# Group 0 may do what the user may: some clusters run a container under a user of their own choice, always in group 0.
# ansible-core 2.22 wants the folder debug, which it cannot make in a pod with a read-only root filesystem.
RUN mkdir -p /etc/ansible "${HOME}/.ansible/tmp" "${HOME}/.ansible/debug" \
 && printf '%s\n' '[defaults]' 'roles_path = /opt/ansible/roles' > /etc/ansible/ansible.cfg \
 && printf '%s\n' 'localhost ansible_connection=local' > /etc/ansible/hosts \
 && useradd --uid "${USER_UID}" --gid 0 --home-dir "${HOME}" --no-create-home --shell /sbin/nologin "${USER_NAME}" \
 && chown --recursive "${USER_UID}:0" "${HOME}" \
 && chmod --recursive ug+rwX "${HOME}"
WORKDIR ${HOME}
USER ${USER_UID}
ENTRYPOINT ["/tini", "--", "/usr/local/bin/ansible-operator", "run", "--watches-file=./watches.yaml"]

FROM base AS sample
COPY requirements.yml ${HOME}/requirements.yml
RUN ansible-galaxy collection install -r ${HOME}/requirements.yml \
 && chmod -R ug+rwx ${HOME}/.ansible
COPY watches.yaml ${HOME}/watches.yaml
COPY roles/ ${HOME}/roles/
COPY playbooks/ ${HOME}/playbooks/
