"""Changes to Ansible inside a forked run, one file per shortcut."""
