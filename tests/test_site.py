"""The docs as a site: built without a warning, with links that lead somewhere and pictures that are there."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urldefrag

import pytest

import shoal

ROOT = Path(__file__).parents[1]


class Page(HTMLParser):
    """The anchors of a page, and where its links and pictures lead."""

    def __init__(self, text: str):
        super().__init__()
        self.anchors: set[str] = set()
        self.leads: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        told = dict(attrs)
        self.anchors |= {told[name] for name in ("id", "name") if told.get(name)}  # type: ignore[misc]
        for name in ("href", "src"):
            if value := told.get(name):
                self.leads.add(value)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site, built without a warning."""
    pytest.importorskip("mkdocs")
    place = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "-f", ROOT / "website/mkdocs.yml", "-d", place]
    built = subprocess.run(command, capture_output=True, text=True, env=os.environ | {"NO_MKDOCS_2_WARNING": "1"})
    assert built.returncode == 0, built.stderr
    return place


@pytest.mark.slow
def test_every_page_is_built_and_every_link_leads_somewhere(site: Path) -> None:
    pages = {path: Page(path.read_text()) for path in site.rglob("*.html") if path.name != "404.html"}
    sources = {path.stem for path in (ROOT / "docs").rglob("*.md")}
    assert sources | {"index", "api", "CHANGELOG", "CONTRIBUTING"} <= {path.stem for path in pages}
    broken = []
    for path, page in pages.items():
        for lead in page.leads:
            if re.match(r"[a-z]+:|//", lead):
                continue  # elsewhere
            where, anchor = urldefrag(unquote(lead))
            target = (path.parent / where).resolve() if where else path
            if target.is_dir():
                target /= "index.html"
            if not target.exists() or (anchor and target in pages and anchor not in pages[target].anchors):
                broken.append((path.name, lead))
    assert not broken
    described = pages[site / "api.html"].anchors
    assert {name for name in shoal.__all__ if not any(x.endswith(f".{name}") for x in described)} == set()


SEARCHED = (
    *("callback", "early stopping", "replay buffer", "search space", "hyperparameter tuning", "domain randomisation"),
    *("asymmetric", "recurrent", "warm start", "importance", "action mask", "multi-agent", "windows", "fine-tuning"),
)


@pytest.mark.slow
@pytest.mark.parametrize("term", SEARCHED)
def test_searching_a_word_of_the_field_finds_a_page(site: Path, term: str) -> None:
    """Its line in the glossary at least."""
    index = json.loads((site / "search/search_index.json").read_text())["docs"]
    found = {part["location"].partition("#")[0] for part in index if term in f"{part['title']} {part['text']}".lower()}
    assert "reference/glossary.html" in found


@pytest.mark.slow
@pytest.mark.browser
def test_pages_opened_from_disk_ask_nothing_of_a_network_and_fit_a_phone(site: Path, chromium: Any) -> None:
    """Each page; and the search works there too."""
    asked: list[str] = []
    context = chromium.new_context(viewport={"width": 390, "height": 800}, offline=True)
    page = context.new_page()
    page.on("request", lambda request: asked.append(request.url))
    page.on("pageerror", lambda error: asked.append(str(error)))
    wide = []
    for file in sorted(site.rglob("*.html")):
        page.goto(file.as_uri())
        if page.evaluate("document.documentElement.scrollWidth > innerWidth"):
            wide.append(file.name)
    assert not [what for what in asked if not what.startswith(("file:", "data:"))] and not wide
    page.goto((site / "tutorials/quickstart.html").as_uri())
    page.set_viewport_size({"width": 1280, "height": 800})
    page.click(".md-search__input")
    page.keyboard.type("callback")
    page.wait_for_selector(".md-search-result__item >> text=Callbacks and early stopping")
    context.close()
