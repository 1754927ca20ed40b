"""Charts and bundles: a project as others install it."""
