"""`init` and `create api`: creation of a project and of its kinds."""
