"""The machine's float32 matrix rate under JAX: the ceiling that any training of small networks is held against.

What is measured: GFLOP/s (two operations per multiply-add) of chains of dependent matrix products inside one compiled
loop, so that the cost of calling a compiled function does not count; the best of several calls. The sizes are a large
square, a minibatch through one layer of a 64-64 network, the same for eight members at once, as vmap makes of it, and one
observation of each of 32 members, which is bound by reading their weights from the cache.
Every number of threads gets a fresh process that is bound to as many cores, because JAX sizes its pool once.

    python benchmarks/baselines/matrix_rate.py --threads 1 2 [--seconds 3]
"""

import argparse
import json
import os
import subprocess
import sys
import time

SIZES = {  # name: shapes of the two factors, products per call
    "square 2048": ((2048, 2048), (2048, 2048), 2),
    "layer [128,64] x [64,64]": ((128, 64), (64, 64), 20_000),
    "8 layers [8,128,64] x [8,64,64]": ((8, 128, 64), (8, 64, 64), 2_500),
    "32 members [32,1,64] x [32,64,64]": ((32, 1, 64), (32, 64, 64), 20_000),
}


def measure(least: float) -> dict[str, float]:
    """GFLOP/s of every size, with the cores that this process may use."""
    import jax
    import jax.numpy as jnp

    rates = {}
    for name, (left, right, count) in SIZES.items():
        x = jax.random.normal(jax.random.key(0), left, jnp.float32)
        w = jax.random.normal(jax.random.key(1), right, jnp.float32) / right[-1] ** 0.5  # keeps the chain's scale

        @jax.jit
        def chain(x, w, count=count):
            return jax.lax.fori_loop(0, count, lambda _, y: y @ w, x)

        chain(x, w).block_until_ready()
        seconds: list[float] = []
        while not seconds or sum(seconds) < least:
            began = time.perf_counter()
            chain(x, w).block_until_ready()
            seconds.append(time.perf_counter() - began)
        rates[name] = 2 * x.size * right[-1] * count / min(seconds) / 1e9
    return rates


def matrix_rate(threads: tuple[int, ...] = (1, 2), seconds: float = 3) -> dict[int, dict[str, float]]:
    """GFLOP/s by number of threads and size; numbers of threads beyond the machine's cores are left out."""
    rates = {}
    for number in threads:
        if number <= len(os.sched_getaffinity(0)):
            command = [sys.executable, __file__, "--measure", str(number), "--seconds", str(seconds)]
            environment = {**os.environ, "JAX_PLATFORMS": "cpu"}
            result = subprocess.run(command, env=environment, check=True, stdout=subprocess.PIPE)
            rates[number] = json.loads(result.stdout)
    return rates


def main() -> None:
    """Print a table, sizes by threads."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2], help="to be compared (default: 1 2)")
    parser.add_argument("--seconds", type=float, default=3, help="per size, of which the best call counts (default: 3)")
    parser.add_argument("--measure", type=int, metavar="THREADS", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.measure:
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[: options.measure])
        print(json.dumps(measure(options.seconds)))
        return
    rates = matrix_rate(tuple(options.threads), options.seconds)
    print(f"{'GFLOP/s, float32':34}" + "".join(f"{f'{number} thread(s)':>14}" for number in rates))
    for name in SIZES:
        print(f"{name:34}" + "".join(f"{rate[name]:14.1f}" for rate in rates.values()))


if __name__ == "__main__":
    main()
