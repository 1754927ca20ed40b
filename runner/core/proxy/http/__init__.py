"""HTTP of the proxy: connections, messages, TLS, upstream."""
