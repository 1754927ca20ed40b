"""The operator process: start and stop order, signals, and the admin servers."""
