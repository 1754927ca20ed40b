"""`ansible-operator plan`: plan runs of the command, and their report."""
