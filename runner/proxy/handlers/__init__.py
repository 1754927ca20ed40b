"""Handlers of the proxy: authentication, owners, reads, writes, secrets, discovery."""
