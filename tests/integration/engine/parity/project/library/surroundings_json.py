#!/usr/bin/python
"""WANT_JSON: a process with its arguments in a file."""
import importlib.util
import json
import sys

with open(sys.argv[1]) as file:
    path = json.load(file)["look"]
spec = importlib.util.spec_from_file_location("parity_look", path)
look = importlib.util.module_from_spec(spec)
spec.loader.exec_module(look)
print(json.dumps({"seen": look.look()}))
