"""Content that runs execute: its digest, its files, and the lookups in it."""
