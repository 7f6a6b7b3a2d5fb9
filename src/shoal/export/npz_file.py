"""A champion as arrays of NumPy, for those who have nothing else."""

from __future__ import annotations

from io import BytesIO
from pathlib import Path

import numpy as np

from shoal.core.atomic import write_file
from shoal.export.metadata import about
from shoal.export.program import program_of
from shoal.run.champion import Champion


def write_npz(champion: Champion, file: Path) -> None:
    """Write the arrays that a champion of one of Shoal's own agents acts with, by their paths; and what is told of it,
    under `about.NAME`. Raises BadInput."""
    texts = {f"about.{name}": np.array(text) for name, text in about(champion).items()}
    data = BytesIO()
    np.savez(data, allow_pickle=False, **program_of(champion).learned, **texts)
    write_file(file, data.getvalue())
