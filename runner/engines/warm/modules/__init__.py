"""Ansible modules that run in a fork instead of a new interpreter."""
