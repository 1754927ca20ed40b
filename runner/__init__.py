"""Run Ansible roles and playbooks as Kubernetes operators."""

__version__ = "0.1.0"
