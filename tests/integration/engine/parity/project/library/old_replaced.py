#!/usr/bin/python
"""Its arguments are written into its code."""
import json

arguments = """<<INCLUDE_ANSIBLE_MODULE_JSON_ARGS>>"""
given = json.loads(arguments)
print(json.dumps({"changed": False, "given": {name: given[name] for name in given if not name.startswith("_")}}))
