"""What README and the tutorials show a newcomer, with nothing but what they install: `newcomer.py WHEEL [CONSTRAINTS]`.

Commands and files are theirs, letter by letter; only what pip installs is the wheel that is given. Without constraints it is
README alone, with the newest versions that the wheel allows. Each page has a folder of its own in the current one. Fails
with the first command that does, or where what they promise is not there. The environment, a gigabyte, stays only then.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import venv
from pathlib import Path

ROOT = Path(__file__).parents[2]
SECTIONS = {  # of each page the heading of the section, or none for all of it, and what is there in the end
    "README.md": ("## Start", ("runs/Acrobot-v1-ppo-0/report.html", "champion.mp4")),
    "docs/tutorials/quickstart.md": (
        "",
        ("runs/Pendulum-v1-ppo-0/champion", "runs/Pendulum-v1-ppo-0/report.html", "champion.mp4", "policy.onnx"),
    ),
    "docs/tutorials/your_environment.md": (
        "",
        ("runs/Corridor-ppo-0/champion", "runs/balloon-ppo-0/champion"),
    ),
    "docs/tutorials/first_study.md": (
        "",
        ("studies/first-study/report.html", "studies/first-study/study.csv"),
    ),
}
INSTALLS = re.compile(r"pip install (?:-e '\.|'shoal)(\[[^\]]*\])'$")
OF_A_CLONE = re.compile(r"git clone |cd |make |python3 -m venv |source ")  # what makes the place that is here already


def main(wheel: Path, constraints: Path | None = None) -> None:
    venv.create("empty", with_pip=True)
    pins = f"--constraint {constraints}" if constraints else ""
    for page in SECTIONS if constraints else ["README.md"]:
        heading, promised = SECTIONS[page]
        text = (ROOT / page).read_text(encoding="utf-8")
        section = text.partition(f"\n{heading}\n")[2].partition("\n## ")[0] if heading else text
        assert section, (page, heading)
        print(f"# {page}", flush=True)
        shorten(Path("empty"))
        folder = Path(Path(page).stem)
        folder.mkdir()
        follow(section, folder, f"python -m pip install --quiet --quiet --no-compile {pins} '{wheel}\\1'")
        missing = [place for place in promised if not (folder / place).exists()]
        assert not missing, missing
    shutil.rmtree("empty")


def shorten(environment: Path) -> None:
    """Give the study of a tutorial, once it is installed, one seed instead of six: twelve runs take five minutes."""
    for study in environment.glob("lib/*/site-packages/shoal/experiments/studies/first-study.yaml"):
        study.write_text(study.read_text(encoding="utf-8").replace("seeds: 6", "seeds: 1"), encoding="utf-8")


def follow(section: str, folder: Path, install: str) -> None:
    """Write the files that a section shows, and run its commands, in their order."""
    for kind, text in re.findall(r"^```(\w+)\n(.*?)^```", section, re.DOTALL | re.MULTILINE):
        if named := re.match(r"# (\w+\.\w+)\n", text):
            (folder / named[1]).write_text(text, encoding="utf-8")
        lines = [line[2:].partition("  #")[0].strip() for line in text.splitlines() if line.startswith("$ ")]
        for command in lines if kind == "console" else ():
            if OF_A_CLONE.match(command):
                continue
            print(f"$ {command}", flush=True)
            activated = f". ../empty/bin/activate && {INSTALLS.sub(install, command)}"
            subprocess.run(activated, cwd=folder, shell=True, check=True)


if __name__ == "__main__":
    main(*(Path(given).resolve() for given in sys.argv[1:]))
