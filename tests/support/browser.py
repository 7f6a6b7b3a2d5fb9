"""A browser for tests."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from typing import Any

import pytest


@pytest.fixture(scope="module")
def chromium() -> Iterator[Any]:
    """A headless Chromium; a laptop may lack it, a continuous-integration machine may not."""
    missing = "" if (executable := shutil.which("chromium")) else "chromium is not installed"
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        missing = "playwright is not installed"
    if missing:
        (pytest.fail if os.environ.get("CI") else pytest.skip)(missing)
    flags = ["--no-sandbox", "--headless", "--disable-background-networking", "--disable-gpu"]
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=executable, args=flags)
        yield browser
        browser.close()
