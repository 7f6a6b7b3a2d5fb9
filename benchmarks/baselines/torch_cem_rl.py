"""The joint update of CEM-RL in PyTorch: actors with policies of their own and one pair of critics, TD3's losses.

One update: the critics' loss on the batch of each actor, bootstrapped through that actor's own target policy, their mean,
one step of Adam; then each policy's step against the first critic; then all targets follow. Actors come in groups of some
rows: of one row, they are taken one after another; of all, their policies are stacked and their batches are the critics'
one large batch. Eager PyTorch as in torch_agents.py, batches given.

    python benchmarks/baselines/torch_cem_rl.py --cell JSON | --compare FILE

measures a cell of `benchmarks/cem_rl.py`, which calls it, or says how far it is from what Shoal has computed.
"""

import argparse
import copy
import json
import os
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from cell import Cell, alone, parse, peak
from torch import Tensor, nn
from torch_agents import ACTIONS, LAYERS, MLP, OBSERVATIONS, Batch, adam, backward, follow, random_batches

TAU = 0.005


class SharedCritics:
    """Actors in groups of `rows`; critics with two rows."""

    def __init__(self, actors: int, rows: int, device: str = "cpu", rate: float = 1e-3):
        assert actors % rows == 0
        self.policies = [MLP(rows, (OBSERVATIONS, *LAYERS, ACTIONS), device) for _ in range(actors // rows)]
        self.target_policies = copy.deepcopy(self.policies)
        self.critics = MLP(2, (OBSERVATIONS + ACTIONS, *LAYERS, 1), device)
        self.target_critics = copy.deepcopy(self.critics)
        self.policy_optimizers = [adam([(policy, rate)]) for policy in self.policies]
        self.critic_optimizer = adam([(self.critics, rate)])

    def values(self, critics: MLP, obs: Tensor, action: Tensor, first: bool = False) -> Tensor:
        """[critics, rows * batch]"""
        x = torch.cat([obs, action], -1).flatten(0, 1)[None]
        return critics(x, 1)[..., 0] if first else critics(x.expand(2, -1, -1))[..., 0]

    def update(self, batches: list[Batch], noise: list[Tensor] | None = None) -> Tensor:
        """One joint update; returns the critics' loss. batches, noise (standard normal): one of each group."""
        losses = []
        for i, (batch, target_policy) in enumerate(zip(batches, self.target_policies, strict=True)):
            with torch.no_grad():
                drawn = torch.randn_like(batch.action) if noise is None else noise[i]
                smooth = (drawn * 0.2).clamp_(-0.5, 0.5)
                next_action = target_policy(batch.next_obs).tanh_().add_(smooth).clamp_(-1, 1)
                next_value = self.values(self.target_critics, batch.next_obs, next_action).amin(0)
                target = batch.reward.flatten() + batch.bootstrap.flatten() * next_value
            value = self.values(self.critics, batch.obs, batch.action)
            losses.append((value - target).square().mean(-1).sum(0))
        loss = torch.stack(losses).mean()
        backward(loss, self.critics)
        self.critic_optimizer.step()
        for batch, policy, optimizer in zip(batches, self.policies, self.policy_optimizers, strict=True):
            value = self.values(self.critics, batch.obs, policy(batch.obs).tanh(), first=True)
            backward(-value.unflatten(1, batch.reward.shape).mean(-1).sum(), policy)
            optimizer.step()
        for target, policy in zip(self.target_policies, self.policies, strict=True):
            follow(target, policy, TAU)
        follow(self.target_critics, self.critics, TAU)
        return loss.detach()


def caller(cell: Cell, device: str) -> Callable[[], None]:
    """A call: `cell.steps` updates."""
    rows = cell.population if cell.method == "vectorised" else 1
    learner = SharedCritics(cell.population, rows, device)
    batches = [
        list(step)
        for step in zip(
            *(random_batches("td3", rows, cell.steps, device) for _ in range(cell.population // rows)), strict=True
        )
    ]

    def call() -> None:
        for step in batches:
            learner.update(step)
        if device == "cuda":
            torch.cuda.synchronize()

    return call


def measure(cell: Cell) -> dict[str, Any]:
    """Run one cell, with the threads of all cores."""
    device = "cuda" if torch.accelerator.device_count() else "cpu"
    torch.set_num_threads(len(os.sched_getaffinity(0)))
    return {**alone(caller(cell, device), cell), "memory_mb": peak()}


def compare(path: str) -> dict[str, dict[str, float]]:
    """The largest relative errors of loss and weights after the updates that a file holds, in groups of one and of all."""
    data = {name: torch.from_numpy(x) for name, x in np.load(path).items()}
    actors, updates = data["1/batch/reward"].shape[0], max(int(name.split("/")[0]) for name in data)
    found = {}
    for method, rows in (("sequential", 1), ("vectorised", actors)):
        learner, worst = SharedCritics(actors, rows), {"loss": 0.0, "weights": 0.0}
        groups = [[*range(i, i + rows)] for i in range(0, actors, rows)]
        with torch.no_grad():
            for own, name, group in _networks(learner, groups):
                for mine, theirs in zip(_tensors(own), _arrays(data, 0, name, group), strict=True):
                    mine.copy_(theirs.reshape(mine.shape))
        for i in range(1, updates + 1):
            batches = [Batch(*(data[f"{i}/batch/{field}"][group] for field in Batch._fields)) for group in groups]
            loss = learner.update(batches, [data[f"{i}/noise"][group] for group in groups])
            worst["loss"] = max(worst["loss"], _error(loss, data[f"{i}/loss"]))
            for own, name, group in _networks(learner, groups):
                a, b = (
                    torch.cat([x.detach().flatten() for x in xs])
                    for xs in (_tensors(own), _arrays(data, i, name, group))
                )
                worst["weights"] = max(worst["weights"], _error(a, b))
        found[method] = worst
    return found


def _networks(learner: SharedCritics, groups: list[list[int]]) -> list[tuple[nn.Module, str, list[int]]]:
    """Every network, its name in Shoal, and which rows there it stands for."""
    policies = zip(learner.policies, groups, strict=True)
    targets = zip(learner.target_policies, groups, strict=True)
    return [
        *((network, "policy", group) for network, group in policies),
        *((network, "target_policy", group) for network, group in targets),
        (learner.critics, "critics", [0, 1]),
        (learner.target_critics, "target_critics", [0, 1]),
    ]


def _tensors(network: Any) -> list[Tensor]:
    return [x for layer in network.layers for x in (layer.weight, layer.bias)]


def _arrays(data: dict[str, Tensor], update: int, name: str, rows: list[int]) -> list[Tensor]:
    """The same of Shoal's, in that order."""
    layers = range(len(LAYERS) + 1)
    return [data[f"{update}/{name}/{i}/{kind}"][rows] for i in layers for kind in ("kernel", "bias")]


def _error(a: Tensor, b: Tensor) -> float:
    return float((a - b).norm() / b.norm())


def main() -> None:
    """Print one line of JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cell", type=parse, metavar="JSON")
    parser.add_argument("--compare", metavar="FILE")
    options = parser.parse_args()
    print(json.dumps(compare(options.compare) if options.compare else measure(options.cell)))


if __name__ == "__main__":
    main()
