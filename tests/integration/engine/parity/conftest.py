"""Runs one project with both engines, one after the other in the same folders, and compares everything they show.

As the folders are the same, no path may differ; what may stands in `differences.py`. With `settled` the engine under
test runs twice: what it learned from its first run, and has loaded before the second, must not show. Without that, a
second run would be a fork of the same server as the first, and repeat it. `PARITY_ENGINE=exec` compares the cold engine
with itself, which tests the list; `PARITY_KEEP=FOLDER` keeps what was seen where it differs; `PARITY_SETTLED=1` settles
every test, as `make test-nightly` does.
"""

from __future__ import annotations

import http.server
import os
import shutil
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import pytest
import pytest_asyncio

from runner.base.config.settings import EngineName
from tests.integration.engine.parity.comparison import PROJECT, Parity, Place, _Echo
from tests.integration.engine.runs import WITHOUT
from tests.kit.engines import ProcessEngines


@pytest.fixture(scope="session")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    """A copy of the project, with the file that a binary module is, and a web server."""
    folder = tmp_path_factory.mktemp("parity")
    project = folder / "project"
    shutil.copytree(PROJECT, project)
    # Any program that prints its argument's content is a module: the arguments come back as its result.
    shutil.copy(shutil.which("cat") or "/bin/cat", project / "library" / "binary_module")
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Echo) as server:
        serving = threading.Thread(target=server.serve_forever)
        serving.start()
        yield Place(project, folder / "runner", f"http://127.0.0.1:{server.server_port}")
        server.shutdown()
        serving.join()


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def parity(place: Place, processes_of: Callable[[Path], list[int]]) -> AsyncIterator[Parity]:
    engine = ProcessEngines(place.root, "exec", WITHOUT)
    name: EngineName = "exec" if os.environ.get("PARITY_ENGINE") == "exec" else "warm"
    engine.choice.check(name, "PARITY_ENGINE")
    keep = os.environ.get("PARITY_KEEP")
    yield Parity(engine, name, place, processes_of, Path(keep) if keep else None)
    problem = engine.pool.problem
    await engine.close(0)
    assert problem is None, "not every run was warm"
