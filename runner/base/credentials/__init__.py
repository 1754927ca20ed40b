"""Credentials for the API server: kubeconfig, exec plugins, tokens, TLS and proxies."""
