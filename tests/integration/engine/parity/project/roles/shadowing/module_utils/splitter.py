SPLITTER = "of the role, in place of Ansible's own"
