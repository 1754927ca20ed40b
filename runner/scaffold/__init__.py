"""`init` and `create api`: a project, and the kinds in it."""
