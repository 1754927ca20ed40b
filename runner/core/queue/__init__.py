"""The work queue of one kind, priorities, and concurrency."""
