"""Options of the operator: a folder for each, with everything of it. Only `runner.app` and `runner.sdk` import them."""
