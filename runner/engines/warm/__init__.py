"""The warm engine: it forks runs from a process that has loaded Ansible, without a new interpreter."""
