"""Checks of `ansible-operator validate` that follow Ansible: templates, plugins, files, argument specs, variables."""
