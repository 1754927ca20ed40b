"""The warm engine: runs are forked from a process that has Ansible loaded, and need no new interpreter."""
