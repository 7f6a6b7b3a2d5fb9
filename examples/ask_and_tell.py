"""Ask-and-tell: Shoal only decides; this script starts the processes of four members itself, and copies their weights.

The task is like that of figure 2 of the PBT paper (arXiv 1711.09846): reach the maximum, 1.2, by the gradient of a
surrogate whose two weights, h0 and h1, are the hyperparameters.
"""

import json
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

import shoal  # does not import JAX

GENERATIONS, STEPS, RATE = 8, 15, 0.02


def train(weights: Path, h0: float, h1: float) -> None:
    """The process of a member: continue from its weights, save them, print their fitness."""
    theta = np.load(weights)
    for _ in range(STEPS):
        theta = theta - 2 * RATE * np.array([h0, h1]) * theta
    np.save(weights, theta)
    print(1.2 - np.sum(theta**2))


def generation(evolver: shoal.Evolver, folder: Path) -> dict[int, float]:
    """Copy weights, train all members side by side, return their fitness."""
    members = evolver.ask()
    weights = {member["uid"]: folder / f"{member['uid']}.npy" for member in members}
    before = {uid: path.read_bytes() for uid, path in weights.items()}  # a parent may itself be a child
    running = {}
    for member in members:
        uid, parent, hyper = member["uid"], member["copy_from"], member["hyper"]
        if parent is not None:
            weights[uid].write_bytes(before[parent])
        command = [sys.executable, __file__, str(weights[uid]), str(hyper["h0"]), str(hyper["h1"])]
        running[uid] = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    outputs = {uid: process.communicate()[0] for uid, process in running.items()}
    # A failed process has no fitness: NaN, so that its member copies another one.
    return {uid: float(text) if running[uid].returncode == 0 else float("nan") for uid, text in outputs.items()}


def main() -> None:
    evolver = shoal.Evolver(space={"h0": [0, 1], "h1": [0, 1]}, population=4, explore="resample")
    with tempfile.TemporaryDirectory() as place:
        for member in evolver.ask():
            np.save(Path(place) / f"{member['uid']}.npy", np.full(2, 0.9))
        for number in range(GENERATIONS):
            fitness = generation(evolver, Path(place))
            evolver.tell(fitness)
            copies = [f"{m['uid']} copies {m['copy_from']}" for m in evolver.ask() if m["copy_from"] is not None]
            print(f"generation {number}: best {np.nanmax(list(fitness.values())):.3f}, {', '.join(copies)}")
            # To resume: `evolver.load_state_dict(json.loads(...))` of this file.
            (Path(place) / "evolver.json").write_text(json.dumps(evolver.state_dict()))
    print(f"the best member reaches {np.nanmax(list(fitness.values())):.4f} of 1.2")


if __name__ == "__main__":
    if len(sys.argv) > 1:
        train(Path(sys.argv[1]), *map(float, sys.argv[2:]))
    else:
        main()
