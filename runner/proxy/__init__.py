"""The API proxy that runs talk through."""
