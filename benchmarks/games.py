"""Moves per second of uniformly random legal play in games, against pgx; and the share of stepping in self-play.

Both sides play as many games side by side in one compiled function (vmap, scan), draw their actions alike, begin a new game
where one is over by their own automatic reset, and observe every position. They take turns, each measurement in a process of
its own, and the ratio is the median of those of the turns. Moves per game show that both play by the same rules.

Self-play is training with PPO as the experiments that ship have it: 8 members, 16 environments each. The share of stepping
is the time of random play in as many games, of the time of training.

Every process is bound to one core, and seconds are those of the processor, so that other work on the machine hardly counts.

    python benchmarks/games.py --peer PYTHON [--batches 64 1024] [--only kuhn leduc]

PYTHON is an interpreter that has pgx, which may be this one; without it Shoal is measured alone.
"""

import argparse
import json
import statistics
import sys
import time
from functools import partial
from pathlib import Path
from typing import Any

from baselines.pgx_games import NAMES, on_one_core, random_play
from common import COMPILING, last_json, table

PEER = Path(__file__).with_name("baselines") / "pgx_games.py"
GAMES = (*NAMES, "liars_dice", "connect")
MEMBERS, ENVIRONMENTS, ROLLOUT, MINIBATCHES = 8, 16, 128, 4


def of_shoal(game: str, batch: int, seconds: float) -> dict[str, float]:
    """Random play of one of Shoal's games."""
    import jax

    from shoal.core.spec import MASK
    from shoal.environments.device import auto_reset
    from shoal.environments.games.environment import make_game

    environment = make_game(game, {})

    def step(key: jax.Array, position: tuple, action: jax.Array) -> tuple[Any, ...]:
        luck, again = jax.random.split(key)
        state, now = auto_reset(environment, luck, position[1], action, environment.reset(again))
        return (now.obs, state), now.reward, now.terminated

    return random_play(environment.reset, step, lambda position: position[0][MASK] > 0, batch, seconds)


def training(game: str, seconds: float) -> dict[str, float]:
    """Moves per second of self-play and of random play in as many games, on one core."""
    from shoal.experiment.experiment import Experiment
    from shoal.experiment.plan import make_plan
    from shoal.members.devices import prepare

    on_one_core()
    prepare()
    config = {"num_envs": ENVIRONMENTS, "rollout_length": ROLLOUT, "num_minibatches": MINIBATCHES}
    interval = 3 * ENVIRONMENTS * ROLLOUT
    experiment = Experiment(env=f"game:{game}", population=MEMBERS, interval=interval, method="pbt", config=config)
    plan = make_plan(experiment)
    shard, times = plan.kind.shard(plan.members(), plan.setup), []
    shard.begin(plan.evolver.init((0, 0, 0), shard.uid)[1])
    while len(times) < COMPILING + 3 or sum(times[COMPILING:]) < seconds:
        began = time.process_time()
        shard.train(len(times), plan.iterations, plan.iterations)
        times.append(time.process_time() - began)
    shard.close()
    return {
        "training": MEMBERS * interval / statistics.median(times[COMPILING:]),
        "stepping": of_shoal(game, MEMBERS * ENVIRONMENTS, seconds)["moves_per_second"],
    }


def compare(game: str, batch: int, options: argparse.Namespace) -> list[str]:
    """A row of the table of random play."""
    arguments = ["--game", game, "--batch", str(batch), "--seconds", str(options.seconds)]
    own, peer = [sys.executable, __file__, *arguments], [options.peer, str(PEER), *arguments]
    turns = [
        (last_json(own), last_json(peer) if options.peer and game in NAMES else {}) for _ in range(options.repeats)
    ]
    sides = [[found for found in side if found] for side in zip(*turns, strict=True)]
    rates, length, compiling = (
        [f"{statistics.median(x[name] for x in side):{form}}" if side else "" for side in sides]
        for name, form in (("moves_per_second", ",.0f"), ("moves_per_game", ".2f"), ("compile", ".1f"))
    )
    times = sorted(a["moves_per_second"] / b["moves_per_second"] for a, b in turns if b)
    ratio = [f"{statistics.median(times):.2f}", f"{times[0]:.2f}-{times[-1]:.2f}"] if times else ["", ""]
    return [game, str(batch), *rates, *ratio, *length, *compiling]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("--peer", metavar="PYTHON", help="interpreter that has pgx")
    add("--only", nargs="+", choices=GAMES, default=GAMES, help="(default: all)")
    add("--batches", nargs="+", type=int, default=[1, 64, 1024, 4096], metavar="N", help="games side by side")
    add("--repeats", type=int, default=3, help="turns (default: %(default)s)")
    add("--seconds", type=float, default=3, help="of each measurement (default: %(default)s)")
    add("--game", choices=GAMES, help=argparse.SUPPRESS)
    add("--batch", type=int, help=argparse.SUPPRESS)  # 0: training
    options = parser.parse_args()
    if options.game:
        measure = partial(of_shoal, batch=options.batch) if options.batch else training
        print(json.dumps(measure(options.game, seconds=options.seconds)))
        return
    rows = [compare(game, batch, options) for game in options.only for batch in options.batches]
    heads = ["game", "side by side", "Shoal, moves/s", "pgx, moves/s", "times", "range"]
    heads += [f"{side}, {what}" for what in ("moves per game", "compiling, s") for side in ("Shoal", "pgx")]
    table("Random play on one core", heads, rows)
    rows = []
    for game in options.only:
        own = [sys.executable, __file__, "--game", game, "--batch", "0", "--seconds", str(options.seconds)]
        found = [last_json(own) for _ in range(options.repeats)]
        train, step = (statistics.median(x[name] for x in found) for name in ("training", "stepping"))
        share = statistics.median(x["training"] / x["stepping"] for x in found)
        rows.append([game, f"{train:,.0f}", f"{step:,.0f}", f"{share:.1%}"])
    heads = ["game", "training, moves/s", f"random play in {MEMBERS * ENVIRONMENTS}, moves/s", "share of stepping"]
    table(f"Self-play of {MEMBERS} members on one core", heads, rows)


if __name__ == "__main__":
    main()
