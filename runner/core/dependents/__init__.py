"""Objects that runs created: watched by metadata, and compared."""
