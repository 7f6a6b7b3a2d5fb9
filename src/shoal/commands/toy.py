"""The toy problem of the PBT paper (arXiv 1711.09846, figure 2), with Shoal's selectors, explorers and evolvers.

The goal Q = 1.2 - (t0^2 + t1^2) cannot be differentiated; each of two members climbs a surrogate instead,
1.2 - (h0 t0^2 + h1 t1^2), and begins at t = (0.9, 0.9) with h = (1, 0) or (0, 1): it sees one coordinate only. Alone,
neither gets beyond Q = 0.39; by copying and exploring, both find the top at 1.2. Successors of PBT climb the same hill.
"""

from __future__ import annotations

from io import BytesIO
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from shoal.core.atomic import check_target, write_file
from shoal.core.errors import BadInput
from shoal.core.keys import derive
from shoal.core.population import Decision, PopulationStats
from shoal.core.space import Range, SearchSpace
from shoal.methods import explore, select
from shoal.methods.method import Method
from shoal.methods.mf_pbt import MfPbt
from shoal.methods.pb2 import Pb2
from shoal.methods.pbt import Pbt
from shoal.report.palette import PAIR

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from shoal.records.screen import Screen

TOP, STEPS, INTERVAL, RATE = 1.2, 200, 10, 0.02
SPACE = {"h0": Range(0.0, 1.0), "h1": Range(0.0, 1.0)}


class Arm(NamedTuple):
    """One arm. Half of the members have h = (1, 0) at first, the others h = (0, 1).

    inherit: copies include the hyperparameters
    """

    title: str
    method: Method
    inherit: bool = True
    members: int = 2


GAUSSIAN, KEEP, DUEL = explore.Gaussian(0.1), explore.NoExploration(), select.Tournament()
ARMS = {
    "pbt": Arm("PBT", Pbt(select=DUEL, explore=GAUSSIAN)),
    "explore": Arm("Explore only", Pbt(select=select.NoSelection(explore=True), explore=GAUSSIAN)),
    "exploit": Arm("Exploit only", Pbt(select=DUEL, explore=KEEP), inherit=False),
    "grid": Arm("Grid search", Pbt(select=select.NoSelection(), explore=KEEP)),
    "exploit_hyper": Arm("Exploit only, copying h too", Pbt(select=DUEL, explore=KEEP)),
    "pb2": Arm("PB2", Pb2(select=DUEL, explore=GAUSSIAN, window=8)),
    "pbt_8": Arm("PBT, eight members", Pbt(select=select.Truncation(), explore=GAUSSIAN), members=8),
    "mf_pbt": Arm("MF-PBT, eight members", MfPbt(explore=GAUSSIAN, periods=(1, 5)), members=8),
}
FIGURE = ("pbt", "explore", "exploit", "grid", "pb2", "mf_pbt")  # the four panels of the paper, then successors


class Trajectories(NamedTuple):
    """N members over S steps.

    theta:  float64 [S + 1, N, 2], the weights of each member
    hyper:  float64 [S + 1, N, 2], its h0 and h1
    q:      float64 [S + 1, N], its Q
    copied: bool [S + 1, N], True where its weights were copied at this step
    """

    theta: np.ndarray
    hyper: np.ndarray
    q: np.ndarray
    copied: np.ndarray


def run(arm: str, seed: int) -> Trajectories:
    """Run an arm: gradient ascent, and a generation of evolution after every interval."""
    _, method, inherit, n = ARMS[arm]
    evolver, everybody = method.evolver(SearchSpace(SPACE, {}, {}), n), np.arange(n)
    state, _ = evolver.init((seed, 0), everybody)
    unknown, once = np.full(n, np.nan), np.ones(n, np.int64)
    theta, hyper = np.full((n, 2), 0.9), np.eye(2)[2 * everybody // n]
    path = [(theta, hyper, quality(theta), np.zeros(n, bool))]
    for step in range(1, STEPS + 1):
        theta, copied = theta - RATE * 2 * hyper * theta, np.zeros(n, bool)
        if step % INTERVAL == 0:
            steps, h = np.full(n, step), {name: hyper[:, i].astype(np.float32) for i, name in enumerate(SPACE)}
            stats = PopulationStats(everybody, steps // INTERVAL - 1, steps, quality(theta), unknown, once, h)
            state, decision = evolver.decide(derive((seed,), step), state, stats, everybody)
            assert isinstance(decision, Decision)
            theta, copied = theta[decision.parents], decision.parents != everybody
            if inherit:
                hyper = np.stack([decision.hyper[name] for name in SPACE], 1).astype(np.float64)
        path.append((theta, hyper, quality(theta), copied))
    return Trajectories(*(np.stack(part) for part in zip(*path, strict=True)))


def quality(theta: np.ndarray) -> np.ndarray:
    """Q of weights [..., 2]."""
    return TOP - (theta**2).sum(-1)


def final(arm: str, seed: int) -> float:
    """Q of the best member at the end of one run."""
    return float(run(arm, seed).q[-1].max())


def figure(path: Path, seed: int = 0) -> None:
    """Draw a run of each arm: Q over steps, and below it the weights on the contours of Q."""
    from matplotlib.figure import Figure

    canvas = Figure(figsize=(3 * len(FIGURE), 6.4), layout="constrained")
    axes = canvas.subplots(2, len(FIGURE), sharex="row", sharey="row")
    side = np.linspace(-0.1, 1.0, 100)
    contours = quality(np.stack(np.meshgrid(side, side), -1))
    for (above, below), arm in zip(axes.T, FIGURE, strict=True):
        trajectories = run(arm, seed)
        above.set_title(ARMS[arm].title, fontweight="bold")
        above.axhline(TOP, color="0.6", linewidth=0.8, linestyle="--")
        above.set(xlabel="step", xlim=(0, STEPS), ylim=(-0.5, 1.3))
        above.spines[["top", "right"]].set_visible(False)
        below.contourf(side, side, contours, levels=np.linspace(-0.8, TOP, 11), cmap="Greys_r", vmin=-3)
        below.set(xlabel=r"$\theta_0$", aspect="equal")
        for i in range(ARMS[arm].members):
            copied = trajectories.copied[:, i]
            _line(above, np.arange(STEPS + 1), trajectories.q[:, i], copied, i)
            x, y = trajectories.theta[:, i].T
            _line(below, x, y, copied, i)
        below.plot(0, 0, "*", color="k", markersize=11, clip_on=False)
    axes[0, 0].set_ylabel("Q")
    axes[1, 0].set_ylabel(r"$\theta_1$", rotation=0)
    axes[0, 0].plot([], [], ":", color="0.4", label="copy")
    axes[0, 0].legend(loc="lower right", frameon=False)
    picture = BytesIO()
    canvas.savefig(picture, format=path.suffix[1:], dpi=150)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_file(path, picture.getvalue())


def main(out: Path, seeds: int, console: Screen) -> None:
    """Print a table over `seeds` runs of every arm, and save the figure at `out`."""
    from rich.progress import track
    from rich.table import Table

    if out.suffix.lower() not in (".png", ".svg", ".pdf"):
        raise BadInput(f"--out {out}: must end in .png, .svg or .pdf")
    check_target(out)
    if seeds < 1:
        raise BadInput(f"--seeds {seeds}: must be at least 1")
    runs = track(list(product(ARMS, range(seeds))), "members climb", console=console, transient=True)
    finals = np.array([final(arm, seed) for arm, seed in runs]).reshape(len(ARMS), seeds)
    grid = Table("arm", title=f"Final Q of the best member, {seeds} seeds (the top is {TOP})")
    for heading in ("mean", "std", "5 %", "95 %"):
        grid.add_column(heading, justify="right")
    for arm, q in zip(ARMS.values(), finals, strict=True):
        grid.add_row(arm.title, *(f"{number:.3f}" for number in (q.mean(), q.std(), *np.percentile(q, (5, 95)))))
    console.print(grid)
    figure(out)
    console.print(f"Figure saved to {out}", soft_wrap=True)


def _line(axes: Axes, x: np.ndarray, y: np.ndarray, copied: np.ndarray, member: int) -> None:
    """A member's course: solid where it learns, dotted where it copies, a dot at the end; the first lies beneath."""
    color, width = PAIR[member % 2], 3.0 if member == 0 else 1.4
    jumps = np.flatnonzero(copied)
    solid = [np.insert(part.astype(float), jumps, np.nan) for part in (x, y)]
    axes.plot(*solid, color=color, linewidth=width, label=f"member {member}")
    axes.plot([x[jumps - 1], x[jumps]], [y[jumps - 1], y[jumps]], color=color, linestyle=":", linewidth=1.2)
    axes.plot(x[-1], y[-1], "o", color=color, markersize=4 + width, clip_on=False)
