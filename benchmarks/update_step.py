"""What an update step of off-policy agents costs: a population in one program against one agent after another.

The protocol of fastpbrl (arXiv 2206.08888): TD3 and SAC with 17 observations, 6 actions, 256-256 networks and batches of
256, 1 and 50 update steps per call; DQN on 84 x 84 x 4 images of 8 bits with the Nature CNN, 256 hidden units, 14 actions
and batches of 32, 1 and 10 steps per call; random data that are on the device already; populations of 1 to 80; JAX and
PyTorch, each one agent after another (sequential), in one process per agent (parallel), and all at once (vectorised).
The figure that counts is the mean over all calls but the first two.

A call of Shoal's is what a run does between two environment steps, and so a little more than the paper's: it stores a
transition, draws its batches from a memory of 10,000 transitions (DQN: 1,000), and updates. PyTorch is handed its batches.
Every cell is measured in a process of its own. Memory is what that process held at most; with one process per agent, the
sum of their shares at the end; on an accelerator, what the arrays there took at most. CPU time per call stands beside
the wall clock: it tells how much of a slow call was spent waiting for a core that somebody else used.

The floor is the matrix arithmetic of an update (`operations`) over the rate of large float32 products in the same call.

    python benchmarks/update_step.py --peer PYTHON [--agents td3 --steps 1 --populations 1 8 --methods vectorised]

PYTHON is the interpreter of an environment with torch; without it only JAX is measured. Every cell goes to the CSV file
when it is done; `--again` shows the tables and the figure of a file that is there.
"""

import argparse
import csv
import json
import os
import subprocess
import sys
import tempfile
from itertools import pairwise
from pathlib import Path

from baselines.cell import Cell
from common import last_json, table

HERE = Path(__file__).parent
SCRIPTS = {"JAX": HERE / "update_cell.py", "PyTorch": HERE / "baselines" / "torch_agents.py"}
METHODS = ("sequential", "parallel", "vectorised")
STEPS = {"td3": (1, 50), "sac": (1, 50), "dqn": (1, 10)}
FIELDS = [
    "agent",
    "steps",
    "library",
    "method",
    "population",
    "calls",
    "mean",
    "median",
    "min",
    "max",
    "cpu",
    "compile",
]
FIELDS += ["memory_mb", "devices", "rate"]


def dense(batch: int, sizes: tuple[int, ...], inputs: int = 0) -> dict[str, int]:
    """Operations of a network of dense layers, two per multiply-add, without biases, activations and the optimiser.

    forward; weights: the gradient of the weights, as much again; inputs: the gradient handed back from layer to layer,
    as much again but for the first layer, which hands back only the `inputs` that something is to be learned from.
    """
    layers = [2 * batch * a * b for a, b in pairwise(sizes)]
    back = sum(layers[1:]) + 2 * batch * inputs * sizes[1]
    return {"forward": sum(layers), "weights": sum(layers), "inputs": back}


def operations(agent: str) -> float:
    """Operations of the matrix products and convolutions of one update of one agent.

    TD3: the target policy and both target critics forwards; both critics forwards and backwards; and in every second
    update the policy forwards and backwards, through the first critic.
    SAC: the policy and both target critics forwards; both critics forwards and backwards; the policy forwards and
    backwards, through both critics.
    DQN: target and online network forwards on the next observation; the online one forwards and backwards.
    """
    if agent == "dqn":
        batch, side, channels, convolutions = 32, 84, 4, []
        for filters, size, stride in ((32, 8, 4), (64, 4, 2), (64, 3, 1)):
            side = (side - size) // stride + 1
            convolutions.append(2 * batch * side**2 * size**2 * channels * filters)
            channels = filters
        flat = side**2 * channels
        head = dense(batch, (flat, 256, 14), inputs=flat)
        forward = sum(convolutions) + head["forward"]
        return 3 * forward + forward + sum(convolutions[1:]) + head["inputs"]
    critic = dense(256, (23, 256, 256, 1))
    through = critic["forward"] + dense(256, (23, 256, 256, 1), inputs=6)["inputs"]
    policy = dense(256, (17, 256, 256, 6 if agent == "td3" else 12))
    targets, critics = policy["forward"] + 2 * critic["forward"], 2 * sum(critic.values())
    learning = sum(policy.values())
    return targets + critics + ((learning + through) / 2 if agent == "td3" else learning + 2 * through)


def run(library: str, python: str, arguments: list[str]) -> dict:
    """One measurement, with nothing compiled before."""
    with tempfile.TemporaryDirectory() as folder:
        command = [python, str(SCRIPTS[library]), *arguments]
        return last_json(command, XDG_CACHE_HOME=folder, XLA_PYTHON_CLIENT_PREALLOCATE="false")


def measure(options: argparse.Namespace) -> tuple[list[dict], list[str]]:
    """Every cell that was asked for, and the names of those that failed; those whose memory would not fit are left out."""
    if os.getloadavg()[0] > 0.5:
        print(
            "others are busy on this machine: PyTorch's threads wait for one another, so its times mean little",
            file=sys.stderr,
        )
    pythons = {"JAX": sys.executable} | ({"PyTorch": options.peer} if options.peer else {})
    rate, rows, failed = run("JAX", sys.executable, ["--rate", str(options.seconds)]), [], []
    with options.csv.open("w", newline="") as file:
        writer = csv.DictWriter(file, FIELDS)
        writer.writeheader()
        for agent in options.agents:
            for steps in options.steps or STEPS[agent]:
                for library, python in pythons.items():
                    for method in options.methods:
                        needs = 0.0  # megabytes per agent, from the last cell
                        for population in sorted(options.populations):
                            cell = Cell(agent, steps, method, population, options.calls, options.seconds)
                            name = f"{agent}, {steps} steps, {library} {method}, population {population}"
                            if rate["device"] == "cpu" and needs * population > 0.7 * _available():
                                print(f"{name}: left out, would take {needs * population:,.0f} MB", file=sys.stderr)
                                continue
                            try:
                                result = run(library, python, ["--cell", json.dumps(cell._asdict())])
                            except subprocess.CalledProcessError as error:
                                print(f"{name}: failed, {error}", file=sys.stderr)
                                failed.append(name)
                                break
                            needs = result["memory_mb"] / population
                            rows.append({**dict.fromkeys(FIELDS, 0), **cell._asdict(), **result, "library": library})
                            rows[-1] = {k: rows[-1][k] for k in FIELDS} | {"rate": rate["rate"]}
                            writer.writerow(rows[-1])
                            file.flush()
                            print(f"{name}: {result['mean'] * 1e3:,.2f} ms", file=sys.stderr)
    return rows, failed


def _available() -> float:
    """Megabytes of memory that are free for new processes."""
    lines = Path("/proc/meminfo").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("MemAvailable:")) / 1024


def read(path: Path) -> list[dict]:
    """The cells of an earlier call."""
    with path.open(newline="") as file:
        rows = list(csv.DictReader(file))
    words = ("agent", "library", "method")
    return [{k: v if k in words else float(v) for k, v in row.items()} for row in rows]


def panels(rows: list[dict]) -> dict[tuple[str, int], list[dict]]:
    """The cells by agent and steps per call."""
    keys = dict.fromkeys((row["agent"], int(row["steps"])) for row in rows)
    return {key: [row for row in rows if (row["agent"], row["steps"]) == key] for key in keys}


def show(rows: list[dict]) -> None:
    """A table for each agent and number of steps."""
    columns = ["", "population", "ms per call", "median", "least to most", "CPU ms", "× seq. PyTorch", "per member"]
    columns += ["of the floor", "compile s", "MB"]
    for (agent, steps), cells in panels(rows).items():
        base = {row["population"]: row["mean"] for row in cells if _method(row) == "PyTorch sequential"}
        single = {_method(row): row["mean"] for row in cells if row["population"] == 1}
        lines = []
        for row in cells:
            n, mean = int(row["population"]), row["mean"]
            floor = operations(agent) * steps * n / row["rate"]
            lines.append(
                [
                    _method(row),
                    str(n),
                    f"{mean * 1e3:,.2f}",
                    f"{row['median'] * 1e3:,.2f}",
                    f"{row['min'] * 1e3:,.2f} to {row['max'] * 1e3:,.2f}",
                    f"{row['cpu'] * 1e3:,.2f}",
                    f"{base[n] / mean:.2f}" if n in base else "",
                    f"{mean / n / single[_method(row)]:.2f}" if _method(row) in single else "",
                    f"{floor / mean:.0%}",
                    f"{row['compile']:.1f}" if row["compile"] else "",
                    f"{row['memory_mb']:,.0f}",
                ]
            )
        rate = cells[0]["rate"]
        floor = operations(agent) * steps / rate * 1e3
        title = (
            f"{agent.upper()}, {steps} update step(s) per call: {operations(agent) / 1e6:,.0f} MFLOP per update, "
            f"{rate / 1e9:,.0f} GFLOP/s, floor {floor:.2f} ms per member"
        )
        table(title, columns, lines)


def _method(row: dict) -> str:
    return f"{row['library']} {row['method']}"


def draw(rows: list[dict], path: Path) -> None:
    """Time per call over the population, one panel per agent and number of steps."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    found = panels(rows)
    figure, axes = plt.subplots(1, len(found), figsize=(4 * len(found), 3.6), squeeze=False, layout="constrained")
    colours, lines = dict(zip(METHODS, ("C7", "C1", "C0"), strict=True)), {"JAX": "o-", "PyTorch": "s--"}
    for axis, ((agent, steps), cells) in zip(axes[0], found.items(), strict=True):
        for name in dict.fromkeys(map(_method, cells)):
            mine = [row for row in cells if _method(row) == name]
            style, colour = lines[mine[0]["library"]], colours[mine[0]["method"]]
            axis.loglog([r["population"] for r in mine], [r["mean"] for r in mine], style, color=colour, label=name)
        sizes = sorted({row["population"] for row in cells})
        floor = operations(agent) * steps / cells[0]["rate"]
        axis.loglog(sizes, [floor * n for n in sizes], "k:", linewidth=1, label="matrix arithmetic")
        axis.set(title=f"{agent.upper()}, {steps} step{'s' * (steps > 1)} per call", xlabel="population")
        axis.set_xticks(sizes, [f"{n:g}" for n in sizes])
        axis.minorticks_off()
        axis.grid(alpha=0.3)
    axes[0][0].set_ylabel("seconds per call")
    axes[0][-1].legend(fontsize=7)
    figure.savefig(path, dpi=150)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("--peer", metavar="PYTHON", help="interpreter with torch")
    add("--agents", nargs="+", choices=STEPS, default=list(STEPS))
    add("--methods", nargs="+", choices=METHODS, default=list(METHODS))
    add("--steps", nargs="+", type=int, help="updates per call (default: 1 50, of dqn 1 10)")
    add("--populations", nargs="+", type=int, default=[1, 2, 4, 8, 16, 32, 64, 80], metavar="N")
    add("--calls", type=int, default=22, help="of a cell at most, of which two do not count (default: %(default)s)")
    add("--seconds", type=float, default=10, help="after which a cell makes no more than 5 (default: %(default)s)")
    add("--csv", type=Path, default=Path("update_step.csv"), metavar="FILE", help="(default: %(default)s)")
    add("--figure", type=Path, default=Path("update_step.png"), metavar="FILE", help="(default: %(default)s)")
    add("--again", action="store_true", help="measure nothing: tables and figure of the CSV file")
    options = parser.parse_args()
    rows, failed = (read(options.csv), []) if options.again else measure(options)
    if not rows:
        sys.exit("no cell could be measured; the lines above say why")
    show(rows)
    draw(rows, options.figure)
    if failed:
        sys.exit(f"failed: {'; '.join(failed)}")


if __name__ == "__main__":
    main()
