"""A role's argument specs as the schema of a CRD."""
