"""Conversion of a role's argument specs to the schema of a CRD, and back."""
