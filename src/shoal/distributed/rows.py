"""PopulationStats and metrics as rows of numbers, the form in which processes exchange them: about 200 bytes per member."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from shoal.core.population import PopulationStats
from shoal.distributed.exchange import Route

WHOLE = ("uid", "generation", "steps", "episodes")  # integers below 2**53


def columns(stats: PopulationStats) -> list[str]:
    """The names of the columns that `to_rows` makes of stats alone."""
    return [*stats.arrays, *(f"hyper.{name}" for name in sorted(stats.hyper))]


def to_rows(stats: PopulationStats, metrics: dict[str, np.ndarray], extra: list[float]) -> np.ndarray:
    """float64 [N, C]: the stats' fields, hyperparameters and metrics by name, and `extra` numbers of this process."""
    columns = list(stats.arrays.values())
    columns += [stats.hyper[name] for name in sorted(stats.hyper)] + [metrics[name] for name in sorted(metrics)]
    columns += [np.full(len(stats.uid), x) for x in extra]
    return np.stack([np.asarray(c, np.float64) for c in columns], 1)


def from_rows(rows: np.ndarray, like: PopulationStats, metrics: dict) -> tuple[PopulationStats, dict, np.ndarray]:
    """The stats, metrics and `extra` [M, E] in rows of `to_rows`; names and dtypes as in `like` and `metrics`."""
    columns = iter(rows.T)
    fields = {name: next(columns).astype(x.dtype) for name, x in like.arrays.items()}
    hyper = {name: next(columns).astype(np.float32) for name in sorted(like.hyper)}
    seen = {name: next(columns).astype(metrics[name].dtype) for name in sorted(metrics)}
    stats = like._replace(**fields, hyper={name: hyper[name] for name in like.hyper})
    return stats, {name: seen[name] for name in metrics}, np.array(list(columns)).T


def to_json(rows: np.ndarray) -> list[list[float | str]]:
    """Rows as JSON can have them, of which `np.array(..., float)` makes rows again: NaN and infinities are text."""
    return [[x if np.isfinite(x) else str(x) for x in row] for row in rows.tolist()]


def sound(rows: np.ndarray, names: list[str], generation: int) -> bool:
    """True where rows that another worker wrote, with these `columns`, can be the stats of a generation."""
    whole = rows[:, [i for i, name in enumerate(names) if name in WHOLE]]
    hyper = rows[:, [i for i, name in enumerate(names) if name.startswith("hyper.")]]
    counted = (whole >= 0) & (whole < 2**53) & (whole == np.floor(whole))  # false for NaN
    return bool(counted.all() and np.isfinite(hyper).all() and (rows[:, names.index("generation")] == generation).all())


def routes(parents: np.ndarray, owner: np.ndarray, wanted: Sequence[int]) -> list[Route]:
    """Routes of the states to be sent: of every parent to each process with a child of it; of `wanted` rows to process 0.

    parents: int64 [M], rows; owner: int64 [M], the process of each row. The same list in every process.
    """
    sent = {(int(p), int(owner[child])) for child, p in enumerate(parents) if owner[p] != owner[child]}
    sent |= {(row, 0) for row in wanted if owner[row] != 0}
    return [Route(row, int(owner[row]), destination) for row, destination in sorted(sent)]
