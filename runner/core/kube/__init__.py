"""The Kubernetes API as this package uses it: credentials, client, discovery, watches and their cache."""
