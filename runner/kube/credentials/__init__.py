"""Credentials for the API server: kubeconfig, exec plugins, OIDC, tokens, TLS and proxies."""
