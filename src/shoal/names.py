"""Words for messages: names that do not exist, sizes."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


def nearest(name: str, known: Iterable[str], count: int = 3) -> list[str]:
    """The known names most like `name`, best first, whatever their case; none that is much less like it than the best."""
    lower = {k.lower(): k for k in known}
    found = difflib.get_close_matches(name.lower(), lower, count, 0.5)
    likeness = [difflib.SequenceMatcher(None, k, name.lower()).ratio() for k in found]
    return [lower[k] for k, x in zip(found, likeness, strict=True) if x > 0.8 * likeness[0]]


def unknown(what: str, name: str, known: Iterable[str]) -> str:
    """«what» has no such name; which ones are near, or which there are."""
    known = sorted(known)
    near = nearest(name, known)
    hint = (
        f"did you mean {' or '.join(near)}?"
        if near
        else f"choose from {', '.join(known)}"
        if known
        else "there are none"
    )
    return f"{what}: {name!r} does not exist; {hint}"


def readable(size: float) -> str:
    """A number of bytes in three digits."""
    for unit in ("B", "kB", "MB", "GB"):
        if size < 1000:
            return f"{size:.3g} {unit}"
        size /= 1000
    return f"{size:,.3g} TB"
