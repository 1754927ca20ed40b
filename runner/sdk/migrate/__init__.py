"""`ansible-operator migrate`: report about a project of the Go operator, its mechanical changes, and trial runs."""
