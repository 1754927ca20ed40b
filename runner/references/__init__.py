"""Objects that a spec names and the custom resource does not own."""
