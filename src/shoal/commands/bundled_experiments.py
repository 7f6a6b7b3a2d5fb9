"""Experiments and studies that come with Shoal: found by name, listed, copied."""

from __future__ import annotations

import re
import shutil
from itertools import takewhile
from pathlib import Path

from shoal.core.errors import BadField, BadInput, unknown
from shoal.core.escape import in_shell
from shoal.records.screen import Screen, plain_table, styled

PACKAGE = Path(__file__).parents[1]
STUDIES = "studies/"  # prefix of the names of studies
SENTENCE = re.compile(r"(?<=[.?]) (?=[A-Za-z`])")  # "et al. 2017" goes on


def folder() -> Path:
    """The folder of experiments: inside an installed package, or beside the source of a clone."""
    within = PACKAGE / "experiments"
    return within if within.is_dir() else PACKAGE.parents[1] / "experiments"


def names() -> list[str]:
    """Names of all experiments and studies: paths in the folder without suffix."""
    return sorted(path.relative_to(folder()).with_suffix("").as_posix() for path in folder().rglob("*.yaml"))


def find_experiment(file: Path, study: bool = False) -> Path:
    """Find the user's file, or else the experiment or study of that name. Raises BadInput if there is neither."""
    if file.exists():
        return file
    known = {name.removeprefix(STUDIES): name for name in names() if name.startswith(STUDIES) == study}
    if (name := str(file.with_suffix(""))) in known and file.suffix == ".yaml":
        raise BadInput(f"there is no such file; {name}, without .yaml, comes with Shoal", file=file)
    if file.suffix:
        return file
    if str(file) not in known:
        from shoal.environments import suites

        if not study and (":" in str(file) or suites.VERSION.search(str(file))):
            suites.resolve(str(file))
            raise BadField("experiment", "is an environment", f"write --env {file}", value=f"'{file}'")
        raise unknown("study" if study else "experiment", str(file), known)
    return folder() / f"{known[str(file)]}.yaml"


def list_experiments(screen: Screen) -> None:
    """List experiments and studies, each with the first sentence of its file."""
    for heading, studies in (("experiments, for shoal train", False), ("studies, for shoal study", True)):
        table = plain_table(show_header=False)
        for name in names():
            if name.startswith(STUDIES) == studies:
                table.add_row(styled((name.removeprefix(STUDIES), "bold")), _about(folder() / f"{name}.yaml"))
        screen.print(styled((heading, "dim")), table, sep="\n")


def copy(name: str) -> tuple[list[Path], str]:
    """Copy an experiment or a folder of them to the current directory.

    Returns the new files, and the command that trains with them. Raises BadInput if there is none, or a file exists.
    """
    known = names()
    folders = {other.partition("/")[0] for other in known if "/" in other}
    if name in folders:
        files, place = sorted(path for path in (folder() / name).iterdir() if path.is_file()), Path(name)
    elif name in known:
        file, place = folder() / f"{name}.yaml", Path()
        text = file.read_text(encoding="utf-8")
        files = [file, *(code for code in sorted(file.parent.glob("*.py")) if code.stem in text)]
    else:
        raise unknown("experiment", name, [*known, *folders])
    made = [place / file.name for file in files]
    taken = [place] if place.exists() and not place.is_dir() else [path for path in made if path.exists()]
    if taken:
        raise BadInput("exists already, and is not overwritten", file=taken[0])
    place.mkdir(exist_ok=True)
    for file, new in zip(files, made, strict=True):
        shutil.copyfile(file, new)
    first, enter = next(path for path in made if path.suffix == ".yaml"), ""
    if place.name and any(path.suffix == ".py" for path in made):  # found in the current directory alone
        first, enter = first.relative_to(place), f"cd {in_shell(place)} && "
    return made, f"{enter}shoal {'study' if f'{name}/'.startswith(STUDIES) else 'train'} {in_shell(first)}"


def _about(file: Path) -> str:
    """The first sentence of the comment at the top of a file."""
    lines = takewhile(lambda line: line.startswith("# "), file.read_text(encoding="utf-8").splitlines())
    return SENTENCE.split(" ".join(line.removeprefix("# ") for line in lines))[0].rstrip(":")
