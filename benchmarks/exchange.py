"""What it costs that processes see each other: Shoal's exchange over MPI against gathering everything in one place.

A generation's exchange is: stats to everybody, one decision (truncation and perturbation, in every process), the states
of parents to the processes of their children. The baseline is EVO's scheme: every rank sends the pickled states of all
of its members to rank 0, which decides and broadcasts the states of the donors to all. Both under the same mpiexec, with the
same states (random numbers, as large as PPO's parameters and its optimiser's moments), in the same call, in turns.

    python benchmarks/exchange.py [--ranks 2 4 8 --populations 8 16 64 --networks mlp cnn --generations 10]

Seconds are those of the slowest rank. On one machine messages go through memory; ranks beyond the number of cores wait
for each other. The model at the end is fitted to these figures; what it says of networks comes with its own constants.
"""

import argparse
import json
import pickle
import subprocess
import sys
import time

import numpy as np
from common import mpiexec, table

SIZES = {"mlp": 3 * (2 * (4 * 64 + 64 * 64 + 2 * 64) + 64 * 3) * 4, "cnn": 3 * 1_690_000 * 4}  # bytes of one state
HYPER = 8


def rank_main(population: int, size: int, generations: int) -> None:
    """One rank: seconds and bytes of each scheme, printed by rank 0."""
    from mpi4py import MPI

    from shoal.core.population import PopulationStats
    from shoal.core.space import Range, SearchSpace
    from shoal.distributed.mpi import Mpi
    from shoal.distributed.rows import from_rows, routes, to_rows
    from shoal.methods.explore import Perturb
    from shoal.methods.pbt import Pbt
    from shoal.methods.select import Truncation

    comm, rng = MPI.COMM_WORLD, np.random.default_rng(0)
    rank, ranks = comm.Get_rank(), comm.Get_size()
    each = population // ranks
    uid = np.arange(population)
    mine, owner = uid[rank * each : (rank + 1) * each], uid // each
    states = {int(u): np.random.default_rng(int(u)).integers(0, 255, size, np.uint8) for u in mine}
    packed = {uid: state.tobytes() for uid, state in states.items()}
    space = {f"h{i}": Range(0.1, 10.0, "log") for i in range(HYPER)}
    evolver = Pbt(select=Truncation(), explore=Perturb()).evolver(SearchSpace(space, {}, {}), population)
    evolution, hyper = evolver.init((0,), uid)

    def cards_of(rows: np.ndarray, fitness: np.ndarray) -> PopulationStats:
        n = len(rows)
        whole = np.zeros(n, np.int64)
        values = {name: x[rows] for name, x in hyper.items()}
        return PopulationStats(rows, whole, whole, fitness[rows], np.ones(n), whole + 8, values)

    def shoal(exchange: Mpi, generation: int, fitness: np.ndarray) -> dict[str, float]:
        begin = time.perf_counter()
        stats = cards_of(mine, fitness)
        rows = to_rows(stats, {}, [])
        every, _, _ = from_rows(exchange.gather(rows), stats, {})
        shared = time.perf_counter()
        _, decision = evolver.decide((generation,), evolution, every, uid)
        decided = time.perf_counter()
        wanted = routes(decision.parents, owner, ())
        exchange.move(wanted, {r.row: packed[r.row] for r in wanted if r.source == rank})
        done = time.perf_counter()
        children = int((decision.parents != uid).sum())
        return {
            "share": shared - begin,
            "decide": decided - shared,
            "move": done - decided,
            "bytes": rows.nbytes * ranks * (ranks - 1) + len(wanted) * size,
            "bound": children * size,
        }

    def evo(_: None, generation: int, fitness: np.ndarray) -> dict[str, float]:
        begin = time.perf_counter()
        message = pickle.dumps([(int(u), float(fitness[u]), states[int(u)]) for u in mine])
        gathered = comm.gather(message, 0)
        sent = len(message) * (rank != 0)
        donors = None
        if rank == 0:
            members = sorted((m for part in gathered for m in pickle.loads(part)), key=lambda m: -m[1])
            donors = pickle.dumps(members[: max(1, population // 4)])
            sent += len(donors) * (ranks - 1)
        pickle.loads(comm.bcast(donors, 0))
        return {"share": 0.0, "decide": 0.0, "move": time.perf_counter() - begin, "bytes": comm.allreduce(sent)}

    schemes = {
        "point to point": (shoal, Mpi(60.0, lambda: None, print)),
        "gather and broadcast": (evo, None),
    }
    results: dict[str, list] = {name: [] for name in schemes}
    for generation in range(generations + 2):
        fitness = rng.normal(size=population)
        for name, (scheme, exchange) in schemes.items():
            comm.Barrier()
            measured = scheme(exchange, generation, fitness)
            slowest = {k: comm.allreduce(v, MPI.MAX) if k not in ("bytes", "bound") else v for k, v in measured.items()}
            if generation >= 2:  # the first ones open connections
                results[name].append(slowest)
    if rank == 0:
        print(json.dumps({n: {k: float(np.median([r[k] for r in rs])) for k in rs[0]} for n, rs in results.items()}))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=int, nargs="+", default=[2, 4, 8])
    parser.add_argument("--populations", type=int, nargs="+", default=[8, 16, 64])
    parser.add_argument("--networks", nargs="+", default=list(SIZES), choices=list(SIZES))
    parser.add_argument("--generations", type=int, default=10)
    arguments = parser.parse_args()
    rows, fitted = [], []
    for network in arguments.networks:
        for population in arguments.populations:
            for ranks in arguments.ranks:
                command = [*mpiexec(ranks), sys.executable, __file__, "rank", str(population)]
                command += [str(SIZES[network]), str(arguments.generations)]
                output = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
                found = json.loads(output.strip().splitlines()[-1])
                whole = {name: sum(x[k] for k in ("share", "decide", "move")) for name, x in found.items()}
                base = found["gather and broadcast"]
                for name, x in found.items():
                    rows.append([
                        f"{network} {population} on {ranks}",
                        name,
                        f"{x['share'] * 1e3:.2f}" if name in list(found)[:2] else "",
                        f"{x['decide'] * 1e3:.2f}" if name in list(found)[:2] else "",
                        f"{x['move'] * 1e3:.2f}",
                        f"{x['bytes'] / 1e6:.3g}",
                        f"{x['bound'] / 1e6:.3g}" if "bound" in x else "",
                        f"{base['bytes'] / x['bytes']:.1f}",
                        f"{whole['gather and broadcast'] / whole[name]:.1f}",
                    ])  # fmt: skip
                fitted.append((ranks, population, found["point to point"], SIZES[network]))
    columns = [
        "states",
        "scheme",
        "share ms",
        "decide ms",
        "move ms",
        "MB sent",
        "children MB",
        "fewer bytes",
        "faster",
    ]
    table("Exchange of one generation (median)", columns, rows)
    model(fitted)


def model(fitted: list[tuple[int, int, dict[str, float], int]]) -> None:
    """share = a + b x ranks; decide = c x members; move = d + bytes that one rank sends or takes / rate."""
    ranks, members = (np.array([f[i] for f in fitted], float) for i in (0, 1))
    share, decide, move, sent = (np.array([f[2][k] for f in fitted]) for k in ("share", "decide", "move", "bytes"))
    a, b = np.linalg.lstsq(np.stack([np.ones(len(ranks)), ranks], 1), share, rcond=None)[0]
    c = float((members @ decide) / (members @ members))
    d, e = np.linalg.lstsq(np.stack([np.ones(len(ranks)), sent], 1), move, rcond=None)[0]
    print(f"share = {a * 1e3:.2f} ms + {b * 1e6:.0f} us x ranks; decide = {c * 1e6:.1f} us x members; ", end="")
    print(f"move = {d * 1e3:.2f} ms + {e * 1e9:.2f} ms per MB in all")
    for count in (1_000, 10_000):
        population = 8 * count
        card = 8 * (7 + HYPER) * population
        # A network: 10 us per message, 10 GB/s per node; a ring moves (ranks - 1) / ranks of all stats past each node.
        network = np.log2(count) * 10e-6 + card / 10e9
        print(
            f"{count:6d} ranks x 8 members: stats {card / 1e6:.3g} MB to each, {network * 1e3:.2g} ms on a network of "
            f"10 GB/s; deciding for all {population} in every rank {c * population * 1e3:.3g} ms; "
            f"each rank takes about 2 states, whatever the number of ranks"
        )


if __name__ == "__main__":
    if sys.argv[1:2] == ["rank"]:
        rank_main(*map(int, sys.argv[2:5]))
    else:
        main()
