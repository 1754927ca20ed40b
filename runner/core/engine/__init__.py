"""Runner of jobs (object, role or playbook, vars, verbosity, deadline) through ansible-runner."""
