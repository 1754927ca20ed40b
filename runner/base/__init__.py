"""Settings, credentials, the log, metrics, health checks, Events, and YAML, as any service needs them."""
