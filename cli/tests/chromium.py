"""The distribution's browser without a window, for tests of pages."""

import contextlib
import shutil
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, sync_playwright


@contextlib.contextmanager
def running() -> Iterator[Browser]:
    program = shutil.which("chromium")
    if program is None:
        pytest.skip("no browser: apt-get install chromium")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=["--no-sandbox"])
        yield browser
        browser.close()
