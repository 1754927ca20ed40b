"""The proxy between the clients of a run and the API server."""
