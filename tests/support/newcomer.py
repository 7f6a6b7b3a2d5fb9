"""README's "Without the repository", where nothing is but what it installs: `python newcomer.py WHEEL [CONSTRAINTS]`.

The commands and files are those of the section, letter by letter; only what pip installs is the wheel that is given, and the
newest versions that it allows where there are no constraints. Runs in the current folder. Fails with the first command that
does, or where what it promises is not there. The environment, a gigabyte, stays only then.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import venv
from pathlib import Path

README = Path(__file__).parents[2] / "README.md"
HEADING = "## Without the repository"
PROMISED = (
    "runs/CartPole-v1-ppo-0/champion",
    "runs/CartPole-v1-ppo-0/report.html",
    "studies/corridor/report.html",
    "studies/corridor/study.csv",
)
ACTS = """
import numpy, onnxruntime
session = onnxruntime.InferenceSession("policy.onnx")
(action,) = session.run(["action"], {"obs": numpy.zeros((3, 4), "float32")})
assert action.shape == (3,) and set(action.tolist()) <= {0, 1}
"""


def main(wheel: Path, constraints: Path | None = None) -> None:
    section = README.read_text(encoding="utf-8").partition(HEADING)[2].partition("\n## ")[0]
    blocks = re.findall(r"```(\w+)\n(.*?)```", section, re.DOTALL)
    commands = [
        line[2:].partition("#")[0].strip() for kind, text in blocks if kind == "console" for line in text.splitlines()
    ]
    for kind, text in blocks:
        if kind != "console":
            name = text.splitlines()[0].removeprefix("# ")
            Path(name).write_text(text)
    venv.create("empty", with_pip=True)
    assert commands[0] == "pip install 'shoal[onnx]'", commands[0]
    pins = f"--constraint {constraints}" if constraints else ""
    commands[0] = f"python -m pip install --quiet {pins} '{wheel}[onnx]'"
    for command in commands:
        print(f"$ {command}", flush=True)
        subprocess.run(f". empty/bin/activate && {command}", shell=True, check=True)
    missing = [place for place in PROMISED if not Path(place).exists()]
    assert not missing, missing
    subprocess.run(["empty/bin/python", "-c", ACTS], check=True)
    shutil.rmtree("empty")


if __name__ == "__main__":
    main(*(Path(given).resolve() for given in sys.argv[1:]))
