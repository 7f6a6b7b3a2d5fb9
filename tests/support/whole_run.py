"""A run with all of its files, made of NumPy's numbers: nothing is trained or compiled for it."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

import jax
import numpy as np
from support.runs import at_work, tiny
from support.synthetic_run import write_run

from shoal.core.candidates import Candidate, SmoothedFitness
from shoal.core.spec import Discrete, Spec
from shoal.core.trend import Trend
from shoal.experiment.build import make_learner
from shoal.experiment.plan import make_closed_plan
from shoal.methods.pbt import Pbt
from shoal.run.provenance import provenance
from shoal.run.rundir import RunDirectory, Totals

SPEC = Spec((4,), "float32", Discrete(2))
AGENT = make_learner(tiny(), SPEC, Pbt()).agent
LEARNED: Any = jax.tree.map(
    lambda x: np.zeros(x.shape, x.dtype),
    jax.eval_shape(lambda: AGENT.init(jax.random.key(0), AGENT.hyper)).learned,
)
PARTS = {"run": {"earlier": [LEARNED], "last": [], "evolution": ()}, "shard-0000": {"rest": np.arange(4)}}


def write_whole_run(path: Path) -> Path:
    """Records of three generations, checkpoints of two, a champion, and a result."""
    write_run(path, population=4, generations=3)
    result = (path / "result.json").read_bytes()
    best = Candidate(LEARNED, 1, 2, 30.0, {name: float(x) for name, x in AGENT.hyper._asdict().items()})
    with at_work(path) as staging:
        files = RunDirectory(path, 3, staging)
        files.reopen(tiny(), {}, 3, Candidate(), SPEC)
        files.provenance.write([provenance(make_closed_plan(tiny()), 1, 0)])
        for generation in (1, 2):
            files.save(
                generation,
                PARTS,
                asdict(
                    Totals(
                        3.5,
                        1.5,
                        512,
                        [best.manifest()],
                        [],
                        SmoothedFitness(30.0),
                        3,
                        Trend([30.0]),
                        60.0,
                        [0, 1, 2, 3],
                    )
                ),
                2,
                best,
                SPEC,
            )
        files.close()
    (path / "result.json").write_bytes(result)
    return path
