"""What developers start by hand; `make help` says how."""
