"""Handlers of the proxy: authentication, confinement, formats, owners, refusals, forwarding."""
