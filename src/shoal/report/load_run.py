"""A run on disk, as tables and one figure: `load_run`, for notebooks."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from importlib.util import find_spec
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.figure import Figure

from shoal.core.atomic import expanded
from shoal.records.words import many
from shoal.report.lineage import MEASURED, count, flat, number
from shoal.report.palette import BLUE
from shoal.report.run import Run, read_run

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from shoal.experiment.experiment import Experiment
    from shoal.run.champion import Champion

Table = Any  # a pandas DataFrame, or a dict of NumPy columns


def load_run(run_dir: str | Path, trust_code: bool = False) -> LoadedRun:
    """Return what a run has written so far. Raises BadInput where there is no run.

    trust_code: import what the run names for its champion, where it is not Shoal's.
    """
    run = expanded(run_dir)
    return LoadedRun(run, read_run(run), trust_code)


@dataclass(frozen=True, repr=False)
class LoadedRun:
    """A run, as it was when it was loaded.

    Tables are pandas DataFrames where pandas is installed, and else dicts from a column's name to a NumPy array.
    """

    run_dir: Path
    _run: Run
    _trust_code: bool = False

    def __repr__(self) -> str:
        generations = many(len(self._run.lineage.generations), "generation")
        return f"<run {self.run_dir}: {', '.join(filter(None, (self._run.method.name, generations)))}>"

    @cached_property
    def lineage(self) -> Table:
        """One row for each member and generation.

        Columns: generation, uid, parent (whose weights it goes on with), parent_generation, explored, fitness,
        returns_std, episodes, steps, then every hyperparameter, and every metric of another name, such as loss/policy.
        NaN where nothing was recorded.
        """
        lineage = self._run.lineage
        shape = lineage.present.shape
        names = [name for name in self._run.metric_names if name not in lineage.hyper]  # trainers may report the same
        columns = lineage.hyper | {name: self._run.metric(name) for name in names}  # [G, N] each
        first = {
            "generation": np.broadcast_to(lineage.generations[:, None], shape),
            "uid": np.broadcast_to(lineage.uids, shape),
            "parent": lineage.parents,
            "parent_generation": lineage.parent_generations,
        }
        first |= {name: getattr(lineage, name) for name in ("explored", *MEASURED)}
        own = {name: values for name, values in columns.items() if name not in first}
        return _table({name: values[lineage.present] for name, values in (first | own).items()})

    @cached_property
    def metrics(self) -> Table:
        """One row for each generation.

        Columns: generation, steps, evaluation_steps, copies, and fitness/best, fitness/median, champion/smoothed_fitness,
        timing/train, ... as metrics.jsonl groups them. Metrics of single members are in `lineage`.
        """
        rows = [flat({name: x for name, x in row.items() if name != "members"}, "/") for row in self._run.metrics]
        kinds = dict.fromkeys(("generation", "steps", "evaluation_steps"), count)
        names = dict.fromkeys(name for row in rows for name in row)
        columns = {name: np.array([kinds.get(name, number)(row.get(name)) for row in rows]) for name in names}
        known = [name for name in ("generation", "steps") if name in columns and np.isfinite(columns[name]).all()]
        return _table(columns | {name: columns[name].astype(np.int64) for name in known})

    @property
    def experiment(self) -> Experiment:
        """The experiment that was run. Raises BadInput where the file was changed to something that is none."""
        from shoal.experiment.files import of_run

        return of_run(self.run_dir)

    @property
    def result(self) -> dict[str, Any]:
        """Contents of result.json; empty as long as the run goes on."""
        return self._run.result

    @cached_property
    def champion(self) -> Champion:
        """The best member so far, ready to act. Raises BadInput as long as there is none."""
        from shoal.run.champion import load_champion

        return load_champion(self.run_dir, self._trust_code)

    def plot(self) -> Figure:
        """Plot fitness and each hyperparameter over generations: all members, and the champion's lineage among them.

        A notebook shows the figure; elsewhere `plot().savefig("run.png")`.
        """
        lineage, space = self._run.lineage, self._run.space
        figure = Picture(figsize=(8, 3 + 1.8 * len(space)), layout="constrained")
        axes = figure.subplots(1 + len(space), 1, sharex=True, squeeze=False)[:, 0]
        self._curves(axes[0], lineage.fitness, "fitness")
        for axis, (name, entry) in zip(axes[1:], space.items(), strict=True):
            self._curves(axis, lineage.hyper[name], name)
            if words := self._run.words(name):
                axis.set_yticks(range(len(words)), words)
            if entry.scale == "log":
                axis.set_yscale("log")
        axes[0].set_title(self._run.name)
        if axes[0].lines:
            axes[0].legend(frameon=False, loc="lower right")
        axes[-1].set_xlabel("generation")
        axes[-1].xaxis.get_major_locator().set_params(integer=True)
        return figure

    def _curves(self, axis: Axes, values: np.ndarray, name: str) -> None:
        """[G, N] One line for each member, and one along the champion's lineage."""
        lineage = self._run.lineage
        axis.set_ylabel(name.replace("_", " "))
        axis.spines[["top", "right"]].set_visible(False)
        if not lineage.uids.size:
            return
        lines = axis.plot(lineage.generations, values, color="0.75", linewidth=0.8)
        lines[0].set_label("members")
        generations, along = lineage.generations[self._run.trace[0]], values[self._run.trace]
        axis.plot(generations, along, color=BLUE, label="the champion's lineage")


class Picture(Figure):
    """A figure that a notebook shows, and once: one of pyplot would be shown by itself, and as a cell's value too."""

    def _repr_png_(self) -> bytes:
        data = BytesIO()
        self.savefig(data, format="png")
        return data.getvalue()


def _table(columns: dict[str, np.ndarray]) -> Table:
    if find_spec("pandas") is None:
        return columns
    import pandas

    return pandas.DataFrame(columns)
