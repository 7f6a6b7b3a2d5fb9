"""One rank of the exchange's contract: `mpiexec -n R python exchange_rank.py DIR`; each writes what it has."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
from stub_shard import KIND, POPULATION, StubShard, decide, key_of

from shoal.distributed.mpi import Mpi
from shoal.distributed.synchronous import Synchronous


def main(folder: Path) -> None:
    exchange = Mpi(60.0, lambda: None, print)
    uid = np.array_split(np.arange(POPULATION), exchange.size)[exchange.rank]
    shard = StubShard(uid)
    crew = Synchronous(exchange, KIND, shard)
    last = exchange.rank == exchange.size - 1
    reported = "other" if last and exchange.rank else "loss"  # a trainer may report what the first one does not know
    shared = crew.share({reported: np.float32(uid) / 9}, last, 100.0 + exchange.rank)
    evolved = crew.evolve(shared, decide)
    stats, learned = shared.stats, evolved.learned([POPULATION - 1, 0])
    (folder / f"{exchange.rank}.json").write_text(
        json.dumps(
            {
                "rank": exchange.rank,
                "uid": stats.uid.tolist(),
                "fitness": [repr(x) for x in stats.fitness.tolist()],
                "rate": stats.hyper["rate"].tolist(),
                "metrics": {name: x.tolist() for name, x in shared.metrics.items()},
                "evaluation_steps": shared.evaluation_steps,
                "stop": shared.stop,
                "seconds": shared.seconds,
                "states": [key_of(state).hex() for state in shard.states],
                "own_rate": shard.hyper["rate"].tolist(),
                "learned": [None if one is None else key_of((one, ())).hex() for one in learned],
                "said": exchange.broadcast(f"from {exchange.rank}: é" * 1000)[:9],
            }
        )
    )


if __name__ == "__main__":
    main(Path(sys.argv[1]))
