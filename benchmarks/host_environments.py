"""How fast environments on the host step, without an agent: random actions, the suites taken in turn.

python benchmarks/host_environments.py
"""

import argparse
import importlib.util
import statistics
import time

import numpy as np
from common import table

# What is compared, with how many copies: id, options.
PAIRS = {
    "HalfCheetah-v5": (8, [("gym:HalfCheetah-v5", {}), ("envpool:HalfCheetah-v5", {})]),
    "Hopper-v5": (8, [("gym:Hopper-v5", {}), ("envpool:Hopper-v5", {})]),
    "Pong": (
        16,
        [
            ("gym:ALE/Pong-v5", {"frame_stack": 4, "vectorization": "sync"}),
            ("gym:ALE/Pong-v5", {"frame_stack": 4}),
            ("envpool:Pong-v5", {}),
        ],
    ),
    "Procgen, easy": (64, [(f"envpool:{game}", {"distribution_mode": "easy"}) for game in ("bigfish", "coinrun")]),
}


class Stepped:
    """Copies of an environment that take random actions."""

    def __init__(self, env: str, options: dict, copies: int):
        from shoal.environments import registry
        from shoal.environments.spaces import to_bounds

        environment = registry.make(registry.resolve(env), options)
        space, rng = environment.spec.action, np.random.default_rng(0)
        shape = (16, copies, *space.shape)
        drawn = rng.uniform(-1, 1, shape) if space.dtype == "float32" else rng.integers(space.n, size=shape)
        self._actions = to_bounds(space, drawn.astype(space.dtype))
        self._copies, self._vector, self._time = copies, environment.open(copies, None), 0
        self._vector.reset(list(range(copies)))

    def rate(self, seconds: float) -> float:
        """Steps per second of all copies together."""
        start, count = time.perf_counter(), 0
        while not count or time.perf_counter() - start < seconds:
            self._vector.step(self._actions[self._time % len(self._actions)])
            self._time, count = self._time + 1, count + self._copies
        return count / (time.perf_counter() - start)

    def close(self) -> None:
        self._vector.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=3, help="of each measurement")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--only", choices=PAIRS, nargs="*", default=list(PAIRS))
    options = parser.parse_args()
    rows = []
    for task in options.only:
        copies, suites = PAIRS[task]
        suites = [(env, o) for env, o in suites if not env.startswith("envpool") or importlib.util.find_spec("envpool")]
        stepped = [Stepped(env, o, copies) for env, o in suites]
        rates = [[x.rate(options.seconds) for x in stepped] for _ in range(options.repeats + 1)][1:]  # one to warm up
        for (env, o), x, its in zip(suites, stepped, zip(*rates, strict=True), strict=True):
            times = statistics.median(rate / first for rate, (first, *_) in zip(its, rates, strict=True))
            named = f"{env} ({', '.join(f'{k} {v}' for k, v in o.items())})" if o else env
            rows.append(
                [
                    named,
                    f"{copies}",
                    f"{statistics.median(its):,.0f}",
                    f"{min(its):,.0f}-{max(its):,.0f}",
                    f"{times:.2f}",
                ]
            )
            x.close()
    title = "Environment steps per second, random actions"
    table(title, ["environment", "copies", "steps/s", "range", "times the first"], rows)


if __name__ == "__main__":
    main()
