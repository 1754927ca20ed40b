"""What the proxy does with a request: authenticate, owners, reads, writes, secrets, discovery."""
