"""Memory of a fork server: what runs only read, they do not copy."""

from __future__ import annotations

import subprocess
import sys

import pytest

from runner.engines.warm.server import sharing
from tests.kit.places import ROOT

KNOWN = sys.version_info[:2] in {(3, 12), (3, 13)}

READING = """
import gc, os, sys
from runner.engines.warm.server import sharing

kept = [{"name": str(number) * 3, "parts": [number + 0.5, (str(number),)]} for number in range(40_000)]

def copied():
    with open("/proc/self/smaps_rollup") as file:
        return next(int(line.split()[1]) for line in file if line.startswith("Private_Dirty"))

def read():
    found = 0
    for each in kept:
        found += len([part for part in each.values()]) + len(each["parts"][1][0])
    return found

if sys.argv[1] == "settled":
    sharing.make_immortal()
gc.freeze()
pid = os.fork()
if pid == 0:
    before = copied()
    read()
    print(copied() - before, flush=True)
    os._exit(0)
os.waitpid(pid, 0)
"""
USING = """
import weakref
from runner.engines.warm.server import sharing

class Thing:
    def __init__(self, name): self.name = name
    def tell(self): return f"{self.name} of {len(others)}"

thing, others, text = Thing("one"), {"a": [1, 2], "b": (3,)}, "was there"
def count(upto):
    total = 0
    for number in range(upto):
        total += number
    return total

assert sharing.make_immortal() > 1000
others["c"] = [thing]
others["a"].append(text)
del others["b"], thing
text += ", and more"
others["c"][0].name += "!"
gone = weakref.ref(Thing("new"))
assert gone() is None, "what is made afterwards still goes"
print(others["c"][0].tell(), others["a"], text, count(1000))
"""


def _python(code: str, *arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments], cwd=ROOT, check=False, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.lengthy
@pytest.mark.skipif(not KNOWN, reason="this interpreter has no immortal objects that can be made")
def test_a_fork_that_only_reads_copies_little() -> None:
    settled, before = int(_python(READING, "settled")), int(_python(READING, "as it is"))
    assert before > 5_000, "KiB that were copied"
    assert settled < before / 4


@pytest.mark.skipif(not KNOWN, reason="as above")
def test_shared_objects_can_be_used_and_changed_and_new_ones_are_collected() -> None:
    assert _python(USING) == "one! of 2 [1, 2, 'was there'] was there, and more 499500\n"


def test_an_interpreter_that_is_not_known_is_left_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("runner.engines.warm.server.sharing.sys.version_info", (3, 99, 0))
    made = object()
    before = sys.getrefcount(made)
    assert sharing.make_immortal() == 0
    assert sys.getrefcount(made) == before
