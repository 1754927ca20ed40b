"""Commands for authors of operators: new projects, generated files, plans, local clusters, migration."""
