"""HTML of the pages, from the templates beside this file; what is not HTML is escaped."""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from shoal.report.palette import PAGE
from shoal.report.words import text


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
    autoescape=True,
    trim_blocks=True,
    lstrip_blocks=True,
    undefined=StrictUndefined,
)
ENVIRONMENT.policies["json.dumps_function"], ENVIRONMENT.policies["json.dumps_kwargs"] = pack, {}
ENVIRONMENT.filters["cell"] = lambda value: text(value) if isinstance(value, float) else value
ENVIRONMENT.globals["palette"] = PAGE
parts: Any = ENVIRONMENT.get_template("parts.html").module  # a function for each macro of it


def rendered(template: str, **values: Any) -> Markup:
    """Return a template with its values filled in."""
    return Markup(ENVIRONMENT.get_template(template).render(values))


def joined(*blocks: str) -> Markup:
    """Return pieces of HTML one after another."""
    return Markup("").join(blocks)
