"""The images, built once: the one that operators are built from, and those of two projects."""

from __future__ import annotations

from tests.kit.images import BASE
from tests.kit.tasks import NAME, config_map

CRATE = "localhost/crate-operator:v1"
COLLECTIONS = ("kubernetes.core", "community.mysql", "ansible.mysql")
GO = "localhost/go-operator:v1"

ROLE = config_map(f"{NAME}-settings", {"greeting": "{{ greeting }}"})

GO_DOCKERFILE = f"""FROM {BASE}

USER root
RUN pip3 install --no-cache-dir jmespath
RUN curl --version && echo 'x:y' > /etc/of-root
USER ${{USER_UID}}
RUN python3 -m pip install --no-cache-dir netaddr

COPY requirements.yml ${{HOME}}/requirements.yml
RUN ansible-galaxy collection install -r ${{HOME}}/requirements.yml \\
 && chmod -R ug+rwx ${{HOME}}/.ansible

COPY --chown=ansible:root watches.yaml ${{HOME}}/watches.yaml
COPY roles/ ${{HOME}}/roles/
COPY playbooks/ ${{HOME}}/playbooks/

ENTRYPOINT ["/tini", "--", "/usr/local/bin/ansible-operator", "run", \\
    "--watches-file=./watches.yaml", \\
    "--reconcile-period=0s" \\
    ]
"""
"""What projects of the Go operator say; only the image behind FROM is another one."""
