#!/usr/bin/python
"""Neither AnsibleModule nor JSON arguments: a file of key=value pairs."""
import json
import os
import sys

with open(sys.argv[1]) as file:
    text = file.read()
print(json.dumps({"changed": True, "text": text.strip(), "name": __name__, "arguments": len(sys.argv), "cwd": os.getcwd()}))
