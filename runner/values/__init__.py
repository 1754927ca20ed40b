"""Values that all parts share: objects and their keys, owners, errors, digests, backoff. They import nothing else."""
