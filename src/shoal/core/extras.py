"""The command that adds optional packages to Shoal as it was installed here."""

from __future__ import annotations

import json
from importlib import metadata
from urllib.parse import unquote


def install(extra: str) -> str:
    """Return the command for an extra: from the clone, wheel or repository that pip has noted, else from an index."""
    notes = (found.read_text("direct_url.json") for found in metadata.distributions(name="shoal"))
    origin = json.loads(next(notes, None) or "{}")  # PEP 610
    url = origin.get("url")
    if not url:
        return f"pip install 'shoal[{extra}]'"
    if origin.get("dir_info", {}).get("editable"):
        return f"pip install -e '{unquote(url.removeprefix('file://'))}[{extra}]'"
    if repository := origin.get("vcs_info"):
        url = f"{repository['vcs']}+{url}@{repository['commit_id']}"
    return f"pip install 'shoal[{extra}] @ {url}'"
