"""Required rights: checked at start, recorded as Roles."""
