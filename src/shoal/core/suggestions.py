"""Words for messages: names that do not exist, sizes, values that are too long to be read."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable

# What can be long in a message: quoted text, lists, mappings, and words that are no paths.
LONG = re.compile(r"""(?<!\w)'[^']{99,}'(?!\w)|(?<!\w)"[^"]{99,}"(?!\w)|[\[{][^\]}]{99,}[\]}]|[^\s/]{99,}""")


def nearest(name: str, known: Iterable[str], count: int = 3) -> list[str]:
    """The known names most like `name`, best first, whatever their case; none that is much less like it than the best."""
    lower = {k.lower(): k for k in known}
    found = difflib.get_close_matches(name.lower(), lower, count, 0.5)
    likeness = [difflib.SequenceMatcher(None, k, name.lower()).ratio() for k in found]
    return [lower[k] for k, x in zip(found, likeness, strict=True) if x > 0.8 * likeness[0]]


def readable(size: float) -> str:
    """A number of bytes in three digits."""
    for unit in ("B", "kB", "MB", "GB"):
        if size < 1000:
            return f"{size:.3g} {unit}"
        size /= 1000
    return f"{size:,.3g} TB"


def shortened(message: str) -> str:
    """A message without the middle of each long value in it; a thousand characters at most."""
    return _ends(LONG.sub(lambda found: _ends(found[0], 60), _ends(message, 10_000)), 1000)


def _ends(text: str, length: int) -> str:
    return text if len(text) <= length else f"{text[: length * 3 // 4]} ... {text[-length // 4 :]}"
