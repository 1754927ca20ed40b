"""The fork server and the operator's end of it."""
