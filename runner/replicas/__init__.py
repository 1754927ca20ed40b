"""Leader election and shards over Leases, and the guard that fences writes."""
