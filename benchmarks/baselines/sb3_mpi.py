"""Population-based training as processes: Stable-Baselines3 PPO agents on MPI ranks, exchanging through rank 0.

What is measured: training steps per second of the whole population (the time of evaluation and exchange counts, the
steps of evaluation do not), and the seconds from the start of this program until the mean fitness of the population
reaches a target, imports included.

The scheme is the one of EVO: every agent trains for an interval and is judged by greedy episodes, rank 0 gathers all
states, the lower quarter is replaced by copies of agents drawn from the upper quarter, and every copy has its learning
rate perturbed. Here the learning rate does take effect: it is a schedule that reads the agent's current value.

    mpiexec -n 4 python -m mpi4py benchmarks/baselines/sb3_mpi.py --population 8 --generations 5

Needs stable-baselines3, torch, gymnasium, and mpi4py with mpich. Rank 0 prints one line of JSON at the end.
"""

import argparse
import json
import math
import time
from random import Random
from statistics import fmean

STARTED = time.perf_counter()  # torch and its company are imported later: their imports are part of the time to target


class Agent:
    """One PPO model with its own environments for training and for evaluation."""

    def __init__(self, uid: int, options: argparse.Namespace):
        from stable_baselines3 import PPO
        from stable_baselines3.common.env_util import make_vec_env

        self.random = Random(f"{options.seed}/{uid}")
        low, high = options.learning_rate[0], options.learning_rate[-1]
        self.learning_rate = math.exp(self.random.uniform(math.log(low), math.log(high)))
        self.interval, self.episodes = options.interval, options.episodes
        seed = self.random.getrandbits(31)
        self.model = PPO(
            "MlpPolicy",
            make_vec_env(options.environment, options.copies, seed),
            learning_rate=lambda remaining: self.learning_rate,  # a schedule: read again before every update
            n_steps=options.rollout,
            batch_size=options.minibatch,
            n_epochs=options.epochs,
            seed=seed,
            device="cpu",
        )
        self.judge = make_vec_env(options.environment, 1, seed + 1)

    def generation(self) -> float:
        """Train for one interval, then return the mean return of the greedy policy."""
        from stable_baselines3.common.evaluation import evaluate_policy

        self.model.learn(self.interval, log_interval=None, reset_num_timesteps=False)
        return float(evaluate_policy(self.model, self.judge, self.episodes)[0])

    def state(self) -> dict:
        """All that a copy of this agent needs: weights, optimiser and learning rate."""
        return {"parameters": self.model.get_parameters(), "learning_rate": self.learning_rate}

    def become(self, parent: dict) -> None:
        """Copy a parent and perturb its learning rate, which the next update writes into the copied optimiser."""
        self.model.set_parameters(parent["parameters"])
        self.learning_rate = parent["learning_rate"] * self.random.triangular(0.9, 1.2, 0.95)


def truncation(fitness: dict[int, float], random: Random) -> dict[int, int]:
    """The parent of each child: the lower quarter copies agents drawn from the upper quarter. Ties fall by chance."""
    ranked = sorted(fitness, key=lambda uid: (fitness[uid], random.random()))
    count = min(max(1, len(ranked) // 4), len(ranked) // 2)
    return {child: random.choice(ranked[-count:]) for child in ranked[:count]}


def meet(world) -> None:
    """Wait for the other ranks asleep: MPI waits by spinning, which slows those that still train on a shared core."""
    meeting = world.Ibarrier()
    while not meeting.Test():
        time.sleep(1e-3)


def main(options: argparse.Namespace) -> None:
    """Train this rank's share of the population; rank 0 decides and reports."""
    import torch
    from mpi4py import MPI

    torch.set_num_threads(1)
    world, random = MPI.COMM_WORLD, Random(options.seed)
    agents = {uid: Agent(uid, options) for uid in range(options.population)[world.rank :: world.size]}
    meet(world)
    began = time.perf_counter()
    for generation in range(1, options.generations + 1):
        mine = {uid: (agent.generation(), agent.state()) for uid, agent in agents.items()}
        meet(world)
        gathered = world.gather(mine)
        decision = None
        if world.rank == 0:
            everyone = {uid: card for part in gathered for uid, card in part.items()}
            fitness = {uid: score for uid, (score, _) in everyone.items()}
            mean = fmean(fitness.values())
            reached = options.target is not None and mean >= options.target
            late = time.perf_counter() - began >= options.seconds
            stop = reached or late or generation == options.generations
            parents = {} if stop else truncation(fitness, random)
            decision = stop, {child: everyone[parent][1] for child, parent in parents.items()}
        stop, copies = world.bcast(decision)
        for child in agents.keys() & copies.keys():
            agents[child].become(copies[child])
        if stop:
            break
    ended = time.perf_counter()
    steps = world.reduce(sum(agent.model.num_timesteps for agent in agents.values()))
    if world.rank == 0:
        figures = {
            "steps": steps,
            "seconds": round(ended - began, 3),
            "steps_per_second": round(steps / (ended - began), 1),
            "mean_fitness": round(mean, 2),
            "reached": reached,
            "seconds_to_target": round(ended - STARTED, 3) if reached else None,
        }
        print(json.dumps(figures), flush=True)


def arguments() -> argparse.Namespace:
    """The command line. PPO's defaults are Stable-Baselines3's own, the others are EVO's."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("--environment", default="CartPole-v1", metavar="ID", help="of gymnasium (default: %(default)s)")
    add("--population", type=int, default=8, help="agents, split over the ranks (default: %(default)s)")
    add("--generations", type=int, default=250, help="at most (default: %(default)s)")
    add("--interval", type=int, default=2048, help="steps, in whole rollouts (default: %(default)s)")
    add("--episodes", type=int, default=5, help="per agent and evaluation (default: %(default)s)")
    rate = add("--learning-rate", type=float, nargs="+", default=[1e-4, 1e-3], metavar="RATE")
    rate.help = "one for all, or the two bounds of a log-uniform start (default: 1e-4 1e-3)"
    add("--copies", type=int, default=1, help="training environments per agent (default: %(default)s)")
    add("--rollout", type=int, default=2048, metavar="STEPS", help="per environment (default: %(default)s)")
    add("--epochs", type=int, default=10, help="per rollout (default: %(default)s)")
    add("--minibatch", type=int, default=64, help="samples (default: %(default)s)")
    add("--seconds", type=float, default=math.inf, help="stop after the generation that passes this (default: never)")
    add("--target", type=float, metavar="FITNESS", help="stop once the population's mean fitness is this high")
    add("--seed", type=int, default=0, help="(default: %(default)s)")
    return parser.parse_args()


if __name__ == "__main__":
    main(arguments())
