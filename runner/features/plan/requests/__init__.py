"""Handler of plan runs: writes become dry runs, and reads return the planned objects."""
