"""The command line: parsing, help, exit codes."""
