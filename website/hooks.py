"""What MkDocs is told besides: pages made of notebooks and of files outside docs/, and where links to such files lead."""

from __future__ import annotations

import ast
import json
import posixpath
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

ROOT = Path(__file__).parents[1]
PAGES = {
    "README.md": "index.md",
    "CONTRIBUTING.md": "CONTRIBUTING.md",
    "CHANGELOG.md": "CHANGELOG.md",
    "benchmarks/NOTES.md": "benchmarks.md",
}
LINK = re.compile(r"(\[[^\]]*\])\(([^)\s:#]+)(#[^)\s]*)?\)")
LANGUAGES = {".py": "python", ".yaml": "yaml", ".yml": "yaml"}
GROUPS = {  # of the public names
    "Run": "Experiment Fitness Range train resume Result Callback Generation Evolver BadInput",
    "Read": "load_run LoadedRun load_champion Champion evaluate",
    "Extend": "DeviceEnvironment Spec Box Discrete MultiDiscrete Agent Member HyperparameterSpec end_factor"
    " PopulationStats Selection",
}


def on_files(files: Files, config: Any) -> Files:
    """Add the pages outside docs/, the reference, and one for every file that a page links to."""
    for source, page in PAGES.items():
        text = (ROOT / source).read_text(encoding="utf-8")
        files.append(File.generated(config, page, content=_moved(text, posixpath.dirname(source), page)))
    files.append(File.generated(config, "api.md", content=_reference()))
    for name in ("site.css", "iframe-worker.js"):
        files.append(File.generated(config, name, content=(Path(__file__).parent / name).read_text(encoding="utf-8")))
    for notebook in sorted((ROOT / "docs").rglob("*.ipynb")):
        page = notebook.relative_to(ROOT / "docs").with_suffix(".md").as_posix()
        files.append(File.generated(config, page, content=_shown(notebook)))
    linked = set()
    docs = sorted(path.relative_to(ROOT).as_posix() for path in (ROOT / "docs").rglob("*.md"))
    for source in (*PAGES, *docs):
        linked |= set(_outside((ROOT / source).read_text(encoding="utf-8"), posixpath.dirname(source)))
    for path in sorted(linked):
        text = (ROOT / path).read_text(encoding="utf-8")
        shown = f"# {path}\n\n````{LANGUAGES.get(Path(path).suffix, 'text')}\n{text}\n````\n"
        files.append(File.generated(config, f"files/{path}.md", content=shown))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Links of a page of docs/ lead to pages of the site; the search finds what explains before what was measured."""
    name = page.file.src_uri
    if name.startswith(("results/", "files/", "benchmarks", "CHANGELOG")):
        page.meta["search"] = {"boost": 0.1}
    if name.startswith("files/"):  # lines of code are long
        page.meta["hide"] = ["navigation", "toc"]
    if not (ROOT / "docs" / name).is_file():
        return markdown
    return _moved(markdown, posixpath.dirname(f"docs/{name}"), name)


def _outside(text: str, folder: str) -> Iterator[str]:
    """The files outside docs/ that a text links to, which lies in a folder of the project."""
    for _, link, _ in LINK.findall(text):
        path = posixpath.normpath(posixpath.join(folder, link))
        if (ROOT / path).is_file() and not path.startswith("docs/") and path not in PAGES:
            yield path


def _moved(text: str, folder: str, page: str) -> str:
    """The text with links as they are on the site. What is a folder there, is no link here."""

    def lead(match: re.Match[str]) -> str:
        words, link, anchor = match[1], match[2], match[3] or ""
        path = posixpath.normpath(posixpath.join(folder, link))
        if (ROOT / path).is_dir():
            return words[1:-1]
        if not (ROOT / path).is_file():
            return match[0]
        path = path.replace(".ipynb", ".md")
        target = path.removeprefix("docs/") if path.startswith("docs/") else PAGES.get(path, f"files/{path}.md")
        return f"{words}({posixpath.relpath(target, posixpath.dirname(page) or '.')}{anchor})"

    return LINK.sub(lead, text)


def _reference() -> str:
    """A section for each group of public names, and in it one for each of them, from where it is defined."""
    tree = ast.parse((ROOT / "src/shoal/__init__.py").read_text(encoding="utf-8"))
    modules = next(
        ast.literal_eval(node.value)
        for node in tree.body
        if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") == "_NAMES"
    )
    homes = {name: module for module, names in modules.items() for name in names}
    groups = (
        f"## {title}\n\n" + "".join(f"::: {homes[name]}.{name}\n\n" for name in names.split())
        for title, names in GROUPS.items()
    )
    return "# Python API\n\n" + "".join(groups)


def _shown(notebook: Path) -> str:
    """A notebook as Markdown: what its cells say, their code, and its outputs."""
    cells = json.loads(notebook.read_text(encoding="utf-8"))["cells"]
    return "\n\n".join(part for cell in cells for part in _parts(cell))


def _parts(cell: dict[str, Any]) -> Iterator[str]:
    text = "".join(cell["source"])
    yield text if cell["cell_type"] == "markdown" else f"```python\n{text}\n```"
    for output in cell.get("outputs", ()):
        data = output.get("data", {"text/plain": output.get("text", "")})
        if "image/png" in data:
            yield f'<img alt="" src="data:image/png;base64,{"".join(data["image/png"]).strip()}">'
        else:
            yield f"```text\n{''.join(data['text/plain']).rstrip()}\n```"
