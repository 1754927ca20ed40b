"""Turns a job (object, role or playbook, vars, verbosity, deadline) into a result, through ansible-runner."""
