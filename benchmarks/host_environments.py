"""How fast environments on the host step, without an agent: random actions, the suites taken in turn. And what it saves that
copies whose episode has been measured rest until the longest one ends.

python benchmarks/host_environments.py
"""

import argparse
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

# Where one episode of every copy is played, as when fitness is measured: ids, and how many copies.
MEASURED, COPIES = ("gym:LunarLander-v3", "envpool:LunarLander-v3", "gym:Hopper-v5", "envpool:Hopper-v5"), 64


class Stepped:
    """Copies of an environment that take random actions."""

    def __init__(self, env: str, options: dict, copies: int):
        from shoal.environments import registry, suites
        from shoal.environments.spaces import to_bounds

        environment = registry.make(suites.resolve(env), options)
        space, rng = environment.spec.action, np.random.default_rng(0)
        shape = (16, copies, *space.shape)
        drawn = rng.uniform(-1, 1, shape) if space.dtype == "float32" else rng.integers(space.n, size=shape)
        self._actions = to_bounds(space, drawn.astype(space.dtype))
        self._copies, self._vector, self._time = copies, environment.open(copies), 0
        self._vector.reset(list(range(copies)))

    def rate(self, seconds: float) -> float:
        """Steps per second of all copies together."""
        start, count = time.perf_counter(), 0
        while not count or time.perf_counter() - start < seconds:
            self._vector.step(self._actions[self._time % len(self._actions)])
            self._time, count = self._time + 1, count + self._copies
        return count / (time.perf_counter() - start)

    def episodes(self, resting: bool) -> tuple[float, int]:
        """Seconds until an episode of every copy has ended, and the steps of these episodes.

        resting: copies whose episode has ended rest, in place of playing on
        """
        start, alive, lengths = time.perf_counter(), np.ones(self._copies, bool), np.zeros(self._copies, int)
        self._vector.reset(list(range(self._copies)))
        while alive.any():
            step, _ = self._vector.step(self._actions[lengths.max() % len(self._actions)])
            lengths += alive
            done = step.terminated | step.truncated
            alive &= ~done
            if resting and done.any():
                self._vector.mark_unused(~alive)
        return time.perf_counter() - start, int(lengths.sum())

    def close(self) -> None:
        self._vector.close()


def _there(env: str) -> bool:
    from shoal.environments.suites import installed

    return installed(env.partition(":")[0])


def measure(envs: list[str], repeats: int) -> None:
    """Print how long whole episodes take, in turn where all copies play on and where those that have ended rest."""
    rows = []
    for env in envs:
        stepped = Stepped(env, {}, COPIES)
        pairs = [(stepped.episodes(False), stepped.episodes(True)) for _ in range(repeats + 1)][1:]  # one to warm up
        (on, _), (rested, _) = (zip(*one, strict=True) for one in zip(*pairs, strict=True))
        times = sorted(before / after for before, after in zip(on, rested, strict=True))
        cells = [f"{statistics.median(x):.2f}" for x in (on, rested, times)]
        rows.append([env, f"{pairs[0][0][1]:,}", *cells, f"{times[0]:.2f}-{times[-1]:.2f}"])
        stepped.close()
    heads = ["environment", "steps of them", "s, all play on", "s, the ended rest", "times as fast", "range"]
    table(f"One episode of each of {COPIES} copies, random actions", heads, rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=3, help="of each measurement")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--only", choices=[*PAIRS, *MEASURED], nargs="*", default=[*PAIRS, *MEASURED])
    options = parser.parse_args()
    rows = []
    for task in filter(PAIRS.__contains__, options.only):
        copies, suites = PAIRS[task]
        suites = [(env, o) for env, o in suites if _there(env)]
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
    if rows:
        table(title, ["environment", "copies", "steps/s", "range", "times the first"], rows)
    measured = [env for env in MEASURED if env in options.only and _there(env)]
    if measured:
        measure(measured, options.repeats)


if __name__ == "__main__":
    main()
