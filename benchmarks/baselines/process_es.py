"""One process per perturbation: evolution strategies the way of pytorch-es (github.com/atgambardella/pytorch-es).

In every generation the master perturbs its policy, in pairs of a direction and its opposite, starts a fresh process for
each perturbed policy and one for the policy itself, waits until all have played an episode and said their return through
a queue, draws the noise again from its seeds, and takes a step. The scheme is theirs, the code is not.

Policies are 64-64 tanh in PyTorch, the environment is gymnasium's CartPole-v1 with thresholds that are out of reach: as
on the other side of `benchmarks/evolution_strategies.py`, which calls this, every episode lasts 500 steps.

    python benchmarks/baselines/process_es.py [--population 40]

Prints one line of JSON: generations per second. Needs torch and gymnasium.
"""

import argparse
import json
import statistics
import time
from typing import Any

import gymnasium
import numpy as np
import torch
import torch.multiprocessing as multiprocessing
from torch import nn

STD, RATE = 0.05, 0.01


def make_policy() -> nn.Module:
    policy = nn.Sequential(nn.Linear(4, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 2))
    return policy.requires_grad_(False)


def make_environment() -> gymnasium.Env:
    """CartPole that ends after 500 steps and not before."""
    environment = gymnasium.make("CartPole-v1")
    environment.unwrapped.x_threshold = environment.unwrapped.theta_threshold_radians = float("inf")
    return environment


def play(number: int, policy: nn.Module, environment: gymnasium.Env, returns: Any) -> None:
    """What a process does: one episode."""
    obs, _ = environment.reset()
    total, done = 0.0, False
    while not done:
        action = int(policy(torch.from_numpy(obs).view(1, -1)).argmax(1))
        obs, reward, terminated, truncated, _ = environment.step(action)
        total, done = total + reward, terminated or truncated
    returns.put((number, total))


def noise(seed: int, policy: nn.Module) -> list[torch.Tensor]:
    """The direction of a seed."""
    draw = np.random.default_rng(seed)
    return [torch.from_numpy(draw.standard_normal(tuple(p.shape), np.float32)) for p in policy.parameters()]


def perturbed(policy: nn.Module, seed: int, sign: int) -> nn.Module:
    other = make_policy()
    other.load_state_dict(policy.state_dict())
    for p, direction in zip(other.parameters(), noise(seed, policy), strict=True):
        p.add_(direction, alpha=sign * STD)
    return other


def generation(policy: nn.Module, population: int, environment: gymnasium.Env) -> float:
    """One update of the policy, from as many perturbations; its own return."""
    seeds = np.random.randint(2**30, size=population // 2).repeat(2)
    signs = np.tile([1, -1], population // 2)
    policies = [perturbed(policy, s, sign) for s, sign in zip(seeds, signs, strict=True)]
    queue = multiprocessing.SimpleQueue()
    processes = [
        multiprocessing.Process(target=play, args=(i, member, environment, queue))
        for i, member in enumerate([*policies, policy])
    ]
    for process in processes:
        process.start()
    returns = dict(queue.get() for _ in processes)
    for process in processes:
        process.join()
    ranks = np.argsort(np.argsort([returns[i] for i in range(population)]))
    weights = RATE / (population * STD) * signs * (ranks / (population - 1) - 0.5)
    for seed, weight in zip(seeds, weights, strict=True):
        for p, direction in zip(policy.parameters(), noise(seed, policy), strict=True):
            p.add_(direction, alpha=float(weight))
    return returns[population]


def measure(population: int, generations: int) -> dict[str, float]:
    torch.set_num_threads(1)  # of each process: there are more of them than cores
    multiprocessing.set_start_method("fork")
    policy, environment, times = make_policy(), make_environment(), []
    for _ in range(generations + 1):
        start = time.perf_counter()
        assert generation(policy, population, environment) == 500
        times.append(time.perf_counter() - start)
    rate = 1 / statistics.median(times[1:])
    return {"population": population, "generations_per_second": rate, "best": 1 / min(times[1:])}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--population", type=int, default=40, help="perturbations, even (default: %(default)s)")
    parser.add_argument("--generations", type=int, default=10, help="to be measured (default: %(default)s)")
    options = parser.parse_args()
    print(json.dumps(measure(options.population, options.generations)))


if __name__ == "__main__":
    main()
