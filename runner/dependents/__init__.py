"""Objects that runs created: watched by metadata, compared, and guarded against loops."""
