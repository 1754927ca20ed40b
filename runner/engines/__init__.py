"""How a run is executed other than by a new process of ansible-runner: a folder for each engine."""
