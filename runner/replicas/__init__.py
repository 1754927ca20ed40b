"""Leader election with a Lease, and the guard that fences writes."""
