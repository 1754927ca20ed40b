"""What integration tests of several parts share: one browser, started when the first test asks for it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.browser import Reader


@pytest.fixture(scope="session")
def _browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Reader]:
    from tests import browser  # noqa: PLC0415 - only these tests need it

    driver = browser.start(tmp_path_factory.mktemp("chromium"))
    yield browser.Reader(driver)
    driver.quit()


@pytest.fixture
def reader(_browser: Reader) -> Iterator[Reader]:
    """Somebody who reads pages, in a wide and light window; nothing that they open may make the browser complain.

    Ask for it after what serves the pages, so that they are left before that ends.
    """
    _browser.resize(1280)
    _browser.prefer("light")
    _browser.complaints()
    yield _browser
    _browser.leave()
    complaints = _browser.complaints()
    assert complaints == []
