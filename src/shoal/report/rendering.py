"""HTML and prose of the pages, from the templates beside this file; what is not HTML is escaped."""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from shoal.records.words import many, text
from shoal.report.palette import PAGE


def pack(data: Any) -> str:
    """JSON as small as it gets, four digits a number, NaN as null."""
    return json.dumps(_plain(data), separators=(",", ":"), allow_nan=False)


def _plain(data: Any) -> Any:
    if isinstance(data, dict):
        return {str(name): _plain(value) for name, value in data.items()}
    if isinstance(data, np.ndarray):
        data = data.tolist()
    if isinstance(data, list | tuple):
        return [_plain(value) for value in data]
    if isinstance(data, float):
        if not math.isfinite(data):
            return None
        digits = float(f"{data:.{7 if 0.9 < data < 1 else 5}g}")
        return int(digits) if digits == int(digits) else digits
    return data


ENVIRONMENT = Environment(
    loader=PackageLoader("shoal.report"),
    autoescape=lambda name: name != "prose.txt",
    trim_blocks=True,
    lstrip_blocks=True,
    undefined=StrictUndefined,
)
ENVIRONMENT.policies["json.dumps_function"], ENVIRONMENT.policies["json.dumps_kwargs"] = pack, {}
ENVIRONMENT.filters |= {"cell": lambda value: text(value) if isinstance(value, float) else value, "many": many}
ENVIRONMENT.globals["palette"] = PAGE
parts: Any = ENVIRONMENT.get_template("parts.html").module  # a function for each macro of it
_PROSE: Any = ENVIRONMENT.get_template("prose.txt").module
METRICS: dict[str, tuple[str, str]] = _PROSE.METRICS  # of agents: by name, heading and how they are read


class Figure:
    """A figure: its sentences, and the drawings and tables under them. finding: what it shows; reading: how to read it."""

    def __init__(self, heading: str, finding: str, reading: str, *content: str):
        self.heading, self.finding, self.reading, self.content = heading, finding, reading, content

    def __html__(self) -> Markup:
        return parts.figure(self)


Block = Markup | Figure | list[Figure]  # of a section; figures of a list stand side by side


def rendered(template: str, **values: Any) -> Markup:
    """Return a template with its values filled in."""
    return Markup(ENVIRONMENT.get_template(template).render(values))


def prose(name: str, **facts: Any) -> str:
    """Return a text of prose.txt, as far as these facts make it."""
    return " ".join(getattr(_PROSE, name)(**facts).split())
