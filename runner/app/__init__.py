"""The operator process: start and stop order, signals, the admin servers, and reload after edits."""
