"""watches.yaml: fields, selectors, policies, and validation of a project."""
