"""The command that a message names for an extra installs it beside what is there, wherever that came from."""

from __future__ import annotations

import json
from importlib import metadata
from types import SimpleNamespace
from typing import Any

import pytest

from shoal.core.errors import BadInput
from shoal.core.extras import install

COMMIT = "0123456789abcdef0123456789abcdef01234567"
GIT = "https://git.example/somebody-with-a-long-name/shoal.git"


@pytest.mark.parametrize(
    ("origin", "command"),
    [
        ({"url": "file:///home/a%20b/shoal", "dir_info": {"editable": True}}, "pip install -e '/home/a b/shoal[onnx]'"),
        (
            {"url": "file:///downloads/shoal-1-py3-none-any.whl", "archive_info": {}},
            "pip install 'shoal[onnx] @ file:///downloads/shoal-1-py3-none-any.whl'",
        ),
        (
            {"url": GIT, "vcs_info": {"vcs": "git", "commit_id": COMMIT}},
            f"pip install 'shoal[onnx] @ git+{GIT}@{COMMIT}'",
        ),
        (None, "pip install 'shoal[onnx]'"),
    ],
)
def test_an_extra_comes_from_where_shoal_came_from(
    origin: dict[str, Any] | None, command: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    note = None if origin is None else json.dumps(origin)
    found = SimpleNamespace(read_text={"direct_url.json": note}.get)
    monkeypatch.setattr(metadata, "distributions", lambda name: iter([found]))
    assert install("onnx") == command
    assert str(BadInput(f"videos need {install('onnx')}")).endswith(command)  # never shortened
