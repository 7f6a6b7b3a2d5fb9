"""Runs that many tests look at and none changes, and a browser."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.runs import flags, shoal


@pytest.fixture(scope="session")
def six(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Six generations, never stopped."""
    run = tmp_path_factory.mktemp("runs") / "six"
    outcome = shoal(*flags(run, generations=6))
    assert (outcome.code, outcome.err) == (0, "")
    (run.parent / "six.out").write_text(outcome.out)
    return run


@pytest.fixture(scope="session")
def thirty(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Thirty generations, long enough to be met at work by a signal."""
    run = tmp_path_factory.mktemp("runs") / "thirty"
    assert shoal(*flags(run, "--quiet", generations=30)).code == 0
    return run


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
