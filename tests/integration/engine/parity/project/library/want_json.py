#!/usr/bin/python
"""WANT_JSON"""
import json
import sys

with open(sys.argv[1]) as file:
    given = json.load(file)
print(json.dumps({"changed": False, "keys": sorted(given), "text": given["text"]}))
