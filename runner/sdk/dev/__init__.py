"""`ansible-operator dev`: a control plane, the project's kinds, and the operator with a live view, until Ctrl-C."""
