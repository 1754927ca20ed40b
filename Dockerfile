# syntax=docker/dockerfile:1
# Two images in one file: `base` is what operators are built from, and what follows it is what a project's own
# Dockerfile says after `FROM`. Build with: docker build -t memcached-operator .

FROM docker.io/library/python:3.13-slim-trixie AS build
WORKDIR /src
COPY requirements/core-2.21.txt requirements/
# The versions that were tested. Their hashes go, since the package itself, which is built here, can have none.
RUN sed -e 's/ *\\$//' -e '/^ *--hash=/d' requirements/core-2.21.txt > /constraints.txt
COPY pyproject.toml README.md LICENSE CHANGELOG.md ./
COPY runner/ runner/
RUN pip wheel --no-cache-dir --no-deps --wheel-dir /wheels .

FROM docker.io/library/python:3.13-slim-trixie AS base
# git: collections and roles may be fetched from repositories. openssh-client: hosts other than localhost. tini: an init
# as process 1, which reaps what is orphaned.
RUN apt-get update \
 && apt-get install --yes --no-install-recommends git openssh-client tini \
 && rm -rf /var/lib/apt/lists/*
RUN --mount=type=bind,from=build,source=/wheels,target=/wheels \
    --mount=type=bind,from=build,source=/constraints.txt,target=/constraints.txt \
    pip install --no-cache-dir --constraint /constraints.txt /wheels/*.whl

ENV HOME=/opt/ansible \
    USER_NAME=ansible \
    USER_UID=1001
# Group 0 may do what the user may: some clusters run a container under a user of their own choice, always in group 0.
RUN mkdir -p /etc/ansible "${HOME}/.ansible/tmp" \
 && printf '%s\n' '[defaults]' 'roles_path = /opt/ansible/roles' > /etc/ansible/ansible.cfg \
 && printf '%s\n' 'localhost ansible_connection=local' > /etc/ansible/hosts \
 && useradd --uid "${USER_UID}" --gid 0 --home-dir "${HOME}" --no-create-home --shell /sbin/nologin "${USER_NAME}" \
 && chown --recursive "${USER_UID}:0" "${HOME}" \
 && chmod --recursive ug+rwX "${HOME}"
WORKDIR ${HOME}
USER ${USER_UID}
ENTRYPOINT ["tini", "--", "/usr/local/bin/ansible-operator", "run", "--watches-file=./watches.yaml"]

FROM base
COPY requirements.yml ${HOME}/requirements.yml
RUN ansible-galaxy collection install -r ${HOME}/requirements.yml \
 && chmod -R ug+rwx ${HOME}/.ansible
COPY watches.yaml ${HOME}/watches.yaml
COPY roles/ ${HOME}/roles/
COPY playbooks/ ${HOME}/playbooks/
