"""Writes what it sees where it runs to `work`/NAME.json, once a name; returns the name."""

import importlib.util
import json
import os
from pathlib import Path

from ansible.plugins.lookup import LookupBase

HERE = Path(__file__).resolve().parent.parent / "files"


def load(name):
    spec = importlib.util.spec_from_file_location(f"parity_{name}", HERE / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class LookupModule(LookupBase):
    def run(self, terms, variables=None, **kwargs):
        for term in terms:
            path = Path(variables["work"]) / f"{term}.json"
            if not path.exists():
                seen = {"process": load("look").look(), "ansible": load("look_at_ansible").look()}
                path.write_text(json.dumps(seen, default=str))
        return terms
