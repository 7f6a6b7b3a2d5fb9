"""Docstrings say what parts are as lines of `name: meaning`; the site shows them as a list."""

from __future__ import annotations

import re
from typing import Any

import griffe

PART = re.compile(r"^(\w[\w, ]*): ", re.MULTILINE)


class Parts(griffe.Extension):
    """Makes items of a list of such lines; an attribute has no parts."""

    def on_object(self, *, obj: Any, **_: Any) -> None:
        if obj.docstring and not obj.is_attribute:
            obj.docstring.value = PART.sub(r"\n- `\1`: ", obj.docstring.value)
