"""The messages that tests pin: each is some test's, and a test that says another one fails."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from support import messages

TESTS = """
import pytest

@pytest.mark.parametrize("name", ["b", "a"])
def test_names(name, said):
    said(f"{name}: WHAT")
    said(f"{name}: once more")

def test_place(tmp_path, said):
    said(tmp_path / "run")
"""
MESSAGES = """test_here.py::test_names
  b
    b: wrong
    b: once more
  a
    a: wrong
    a: once more

test_here.py::test_place
    TMP/run
"""


def test_every_message_is_said_by_a_test(request: pytest.FixtureRequest) -> None:
    """In a run of whole files: `pytest --update-messages` drops the others."""
    assert request.config.stash[messages.BOOK].left_over() == []


def test_what_tests_say_is_held_against_the_file(tmp_path: Path) -> None:
    (tmp_path / "tests/support").mkdir(parents=True)
    shutil.copy(messages.__file__, tmp_path / "tests/support")
    (tmp_path / "pytest.ini").touch()
    (tmp_path / "tests/conftest.py").write_text("pytest_plugins = ['support.messages']")
    test, file = tmp_path / "tests/test_here.py", tmp_path / "tests/messages.txt"

    def run(*options: str) -> str:
        command = [sys.executable, "-m", "pytest", "-q", "-p", "xdist", "tests", *options]
        quick = os.environ | {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
        return subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, env=quick, timeout=60).stdout

    test.write_text(TESTS.replace("WHAT", "wrong"))
    assert "3 failed" in run() and not file.exists()
    assert "3 passed" in run("--update-messages")
    assert file.read_text() == MESSAGES and "3 passed" in run("-n", "2")
    test.write_text(TESTS.replace("WHAT", "not right").replace("test_place", "test_other"))
    assert "3 failed" in run()
    file.write_text(MESSAGES.replace("b: wrong", "b: ... right"))
    assert "1 passed" in run("-k", "b")
    run("--update-messages", "-k", "names")
    changed = MESSAGES.replace("b: wrong", "b: ... right").replace("a: wrong", "a: not right")
    assert file.read_text() == changed.partition("\n\n")[0] + "\n"
    test.write_text(TESTS.replace("WHAT", "not right").replace('    said(f"{name}: once more")\n', ""))
    assert "3 failed" in run()
