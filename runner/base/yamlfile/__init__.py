"""YAML with line numbers, and edits that keep comments."""
