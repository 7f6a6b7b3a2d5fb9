"""TD3, SAC and DQN in PyTorch, one agent or many stacked ones, with the losses of Shoal's.

Written for speed within eager PyTorch: stacked weights and batched products, both critics in one of them, one backward
pass per set of parameters, nothing differentiated that is not asked for, fused Adam and foreach updates of targets.
An agent on its own is the same code with one row, which is as fast as layers of its own. Batches are given, and the
noise may be, so that another implementation can be compared to the last digits (`same_losses.py`).

    python benchmarks/baselines/torch_agents.py --cell JSON

measures one cell of `benchmarks/update_step.py`, which calls it.
"""

import argparse
import copy
import json
import os
from collections.abc import Callable
from itertools import pairwise
from typing import Any, NamedTuple

import torch
from cell import Cell, alone, parse, peak, together
from torch import Tensor, nn

OBSERVATIONS, ACTIONS, LAYERS = 17, 6, (256, 256)
IMAGE, CHOICES, HIDDEN = (84, 84, 4), 14, 256
FILTERS = ((32, 8, 4), (64, 4, 2), (64, 3, 1))  # of the Nature CNN: filters, size, stride
BATCH = {"td3": 256, "sac": 256, "dqn": 32}


class Batch(NamedTuple):
    """Transitions; every leaf is [N, batch, ...]."""

    obs: Tensor
    action: Tensor
    reward: Tensor
    next_obs: Tensor
    bootstrap: Tensor


class Dense(nn.Module):
    """E layers side by side: [E, batch, inputs] -> [E, batch, outputs]."""

    def __init__(self, rows: int, inputs: int, outputs: int, device: str):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(rows, inputs, outputs, device=device) / inputs**0.5)
        self.bias = nn.Parameter(torch.zeros(rows, 1, outputs, device=device))

    def forward(self, x: Tensor) -> Tensor:
        return torch.baddbmm(self.bias, x, self.weight)

    def frozen(self, x: Tensor, rows: int) -> Tensor:
        """Of the first `rows`, whose weights are not differentiated."""
        return torch.baddbmm(self.bias[:rows].detach(), x, self.weight[:rows].detach())


class MLP(nn.Module):
    """E networks side by side, with relu between the layers."""

    def __init__(self, rows: int, sizes: tuple[int, ...], device: str):
        super().__init__()
        self.layers = nn.ModuleList(Dense(rows, a, b, device) for a, b in pairwise(sizes))

    def forward(self, x: Tensor, frozen: int = 0) -> Tensor:
        """frozen: take the first rows only, and no gradient of their weights."""
        for i, layer in enumerate(self.layers):
            x = torch.relu(x) if i else x
            x = layer.frozen(x, frozen) if frozen else layer(x)
        return x


def adam(groups: list[tuple[nn.Module | list, float]]) -> torch.optim.Adam:
    """Fused Adam over groups of parameters with their learning rates. Elementwise, so rows stay apart."""
    named = [{"params": [*g.parameters()] if isinstance(g, nn.Module) else g, "lr": rate} for g, rate in groups]
    return torch.optim.Adam(named, fused=True)


def follow(target: nn.Module, online: nn.Module, tau: float) -> None:
    """Target parameters move by the share `tau`."""
    with torch.no_grad():
        torch._foreach_lerp_([*target.parameters()], [*online.parameters()], tau)


def backward(loss: Tensor, *modules: nn.Module, others: tuple[Tensor, ...] = ()) -> None:
    """Gradients of the parameters of these modules and no others."""
    params = [p for module in modules for p in module.parameters()] + [*others]
    for p in params:
        p.grad = None
    loss.backward(inputs=params)  # lays gradients out as their parameters are, which fused Adam takes for granted


class ActorCritic:
    """What TD3 and SAC share: N policies, and 2 N critics, all first ones before all second ones."""

    def __init__(self, members: int, device: str, outputs: int):
        self.members = members
        self.policy = MLP(members, (OBSERVATIONS, *LAYERS, outputs), device)
        self.critics = MLP(2 * members, (OBSERVATIONS + ACTIONS, *LAYERS, 1), device)
        self.target_critics = copy.deepcopy(self.critics)

    def values(self, critics: MLP, obs: Tensor, action: Tensor, frozen: int = 0) -> Tensor:
        """[critics per member, N, batch]"""
        heads = (frozen or 2 * self.members) // self.members
        x = torch.cat([obs, action], -1)
        x = x if heads == 1 else x.expand(heads, *x.shape).flatten(0, 1)
        return critics(x, frozen).view(heads, self.members, -1)


class TD3(ActorCritic):
    """Fujimoto et al. 2018."""

    def __init__(self, members: int, device: str = "cpu", rate: float = 1e-3):
        super().__init__(members, device, ACTIONS)
        self.target_policy = copy.deepcopy(self.policy)
        self.policy_optimizer, self.critic_optimizer = adam([(self.policy, rate)]), adam([(self.critics, rate)])
        self.updates = 0

    def update(self, batch: Batch, noise: Tensor | None = None) -> Tensor:
        """One update; returns the loss of the critics [N]. noise: standard normal, [N, batch, actions]."""
        with torch.no_grad():
            noise = torch.randn_like(batch.action) if noise is None else noise
            next_action = self.target_policy(batch.next_obs).tanh_().add_((noise * 0.2).clamp_(-0.5, 0.5)).clamp_(-1, 1)
            next_value = self.values(self.target_critics, batch.next_obs, next_action).amin(0)
            target = batch.reward + batch.bootstrap * next_value
        loss = (self.values(self.critics, batch.obs, batch.action) - target).square().mean(-1).sum(0)
        backward(loss.sum(), self.critics)
        self.critic_optimizer.step()
        self.updates += 1
        if self.updates % 2 == 0:
            action = self.policy(batch.obs).tanh()
            value = self.values(self.critics, batch.obs, action, frozen=self.members)
            backward(-value.mean(-1).sum(), self.policy)
            self.policy_optimizer.step()
            follow(self.target_policy, self.policy, 0.005)
            follow(self.target_critics, self.critics, 0.005)
        return loss.detach()


class SAC(ActorCritic):
    """Haarnoja et al. 2018, with a learned temperature."""

    def __init__(self, members: int, device: str = "cpu", rate: float = 3e-4):
        super().__init__(members, device, 2 * ACTIONS)
        self.log_temperature = torch.zeros(members, 1, device=device, requires_grad=True)
        self.optimizer = adam([(self.policy, rate), (self.critics, rate), ([self.log_temperature], rate)])

    def sample(self, obs: Tensor, noise: Tensor) -> tuple[Tensor, Tensor]:
        """Actions and their log-densities."""
        mean, log_std = self.policy(obs).chunk(2, -1)
        log_std = log_std.clamp(-20, 2)
        x = torch.addcmul(mean, log_std.exp(), noise)
        normal = -0.5 * noise.square() - log_std - 0.9189385332046727  # log(2 pi) / 2
        slope = 2 * (0.6931471805599453 - x - nn.functional.softplus(-2 * x))
        return x.tanh(), (normal - slope).sum(-1)

    def update(self, batch: Batch, noise: Tensor | None = None) -> Tensor:
        """One update of all from the same weights; returns the loss of the critics [N]. noise: [2, N, batch, actions],
        for the next actions and the present ones."""
        noise = torch.randn(2, *batch.action.shape, device=batch.action.device) if noise is None else noise
        with torch.no_grad():
            temperature = self.log_temperature.exp()
            next_action, next_log_prob = self.sample(batch.next_obs, noise[0])
            next_value = self.values(self.target_critics, batch.next_obs, next_action).amin(0)
            target = batch.reward + batch.bootstrap * (next_value - temperature * next_log_prob)
        critic_loss = 0.5 * (self.values(self.critics, batch.obs, batch.action) - target).square().mean(-1).sum(0)
        action, log_prob = self.sample(batch.obs, noise[1])
        value = self.values(self.critics, batch.obs, action, frozen=2 * self.members).amin(0)
        policy_loss = (temperature * log_prob - value).mean(-1)
        surplus = ACTIONS - log_prob.detach().mean(-1, keepdim=True)  # entropy above its target, minus the actions
        loss = (critic_loss + policy_loss).sum() + (self.log_temperature.exp() * surplus).sum()
        backward(loss, self.policy, self.critics, others=(self.log_temperature,))
        self.optimizer.step()
        follow(self.target_critics, self.critics, 0.005)
        return critic_loss.detach()


class NatureCNN(nn.Module):
    """E networks over images: [E, batch, 84, 84, 4] of 8 bits -> [E, batch, choices]."""

    def __init__(self, rows: int, device: str):
        super().__init__()
        channels, self.kernels, self.biases, side = IMAGE[2], nn.ParameterList(), nn.ParameterList(), IMAGE[0]
        for filters, size, stride in FILTERS:
            kernel = torch.randn(rows, filters, channels, size, size, device=device) / (channels * size**2) ** 0.5
            self.kernels.append(nn.Parameter(kernel))
            self.biases.append(nn.Parameter(torch.zeros(rows, filters, device=device)))
            channels, side = filters, (side - size) // stride + 1
        self.head = MLP(rows, (channels * side**2, HIDDEN, CHOICES), device)

    def forward(self, obs: Tensor) -> Tensor:
        if obs.is_cuda:
            return self.head(self._grouped(obs))
        # On a CPU a grouped convolution takes several times as long as one convolution after another.
        kernels, biases = [k.unbind() for k in self.kernels], [b.unbind() for b in self.biases]
        seen = []
        for i, images in enumerate(obs):
            x = images.permute(0, 3, 1, 2).float().div_(255)
            for kernel, bias, (_, _, stride) in zip(kernels, biases, FILTERS, strict=True):
                x = torch.relu(nn.functional.conv2d(x, kernel[i], bias[i], stride))
            seen.append(x.permute(0, 2, 3, 1).flatten(1))
        return self.head(torch.stack(seen))

    def _grouped(self, obs: Tensor) -> Tensor:
        rows, batch = obs.shape[:2]
        x = obs.permute(1, 0, 4, 2, 3).flatten(1, 2).float().div_(255)
        for kernel, bias, (_, _, stride) in zip(self.kernels, self.biases, FILTERS, strict=True):
            x = torch.relu(nn.functional.conv2d(x, kernel.flatten(0, 1), bias.flatten(), stride, groups=rows))
        return x.unflatten(1, (rows, -1)).permute(1, 0, 3, 4, 2).reshape(rows, batch, -1)


class DQN:
    """Mnih et al. 2015, with double targets."""

    def __init__(self, members: int, device: str = "cpu", rate: float = 1e-3, period: int = 200):
        self.online = NatureCNN(members, device)
        self.target = copy.deepcopy(self.online)
        self.optimizer, self.updates, self.period = adam([(self.online, rate)]), 0, period

    def update(self, batch: Batch, noise: None = None) -> Tensor:
        """One update; returns the loss [N]."""
        with torch.no_grad():
            chosen = self.online(batch.next_obs).argmax(-1, keepdim=True)
            after = self.target(batch.next_obs).gather(-1, chosen).squeeze(-1)
            target = batch.reward + batch.bootstrap * after
        value = self.online(batch.obs).gather(-1, batch.action[..., None]).squeeze(-1)
        loss = nn.functional.huber_loss(value, target, reduction="none").mean(-1)
        backward(loss.sum(), self.online)
        self._clip(10.0)
        self.optimizer.step()
        self.updates += 1
        if self.updates % self.period == 0:
            with torch.no_grad():
                torch._foreach_copy_([*self.target.parameters()], [*self.online.parameters()])
        return loss.detach()

    def _clip(self, limit: float) -> None:
        """Each member's gradient, over all of its parameters, to a norm of at most `limit`."""
        gradients = [p.grad for p in self.online.parameters()]
        norms = torch.stack([torch.linalg.vector_norm(g.flatten(1), dim=1) for g in gradients])
        scale = (limit / torch.linalg.vector_norm(norms, dim=0)).clamp_(max=1)
        torch._foreach_mul_(gradients, [scale.view(-1, *[1] * (g.ndim - 1)) for g in gradients])


AGENTS: dict[str, Any] = {"td3": TD3, "sac": SAC, "dqn": DQN}


def random_batches(agent: str, members: int, steps: int, device: str) -> list[Batch]:
    """A batch for each step."""
    shape = (members, BATCH[agent])

    def one() -> Batch:
        reward, bootstrap = torch.randn(shape, device=device), torch.full(shape, 0.99, device=device)
        if agent == "dqn":
            images = [torch.randint(0, 256, (*shape, *IMAGE), dtype=torch.uint8, device=device) for _ in range(2)]
            return Batch(images[0], torch.randint(0, CHOICES, shape, device=device), reward, images[1], bootstrap)
        obs, next_obs = (torch.randn(*shape, OBSERVATIONS, device=device) for _ in range(2))
        return Batch(obs, torch.rand(*shape, ACTIONS, device=device) * 2 - 1, reward, next_obs, bootstrap)

    return [one() for _ in range(steps)]


def caller(cell: Cell, members: int, agents: int, device: str) -> Callable[[], None]:
    """A call: `cell.steps` updates of each of some agents of `members` rows."""
    learners = [AGENTS[cell.agent](members, device) for _ in range(agents)]
    batches = [random_batches(cell.agent, members, cell.steps, device) for _ in range(agents)]

    def call() -> None:
        for learner, mine in zip(learners, batches, strict=True):
            for batch in mine:
                learner.update(batch)
        if device == "cuda":
            torch.cuda.synchronize()

    return call


def measure(cell: Cell) -> dict[str, Any]:
    """Run one cell."""
    device = "cuda" if torch.accelerator.device_count() else "cpu"

    def prepare(number: int) -> tuple[Callable, Callable]:
        torch.set_num_threads(max(1, len(os.sched_getaffinity(0)) // cell.population))
        return caller(cell, 1, 1, device), lambda: _device_memory(device)

    if cell.method == "parallel":
        return together(prepare, cell)
    many = cell.method == "vectorised"
    result = alone(caller(cell, *((cell.population, 1) if many else (1, cell.population)), device), cell)
    return {**result, "memory_mb": peak(), **_device_memory(device)}


def _device_memory(device: str) -> dict[str, float]:
    return {"memory_mb": torch.cuda.max_memory_allocated() / 2**20} if device == "cuda" else {}


def main() -> None:
    """Print one line of JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cell", required=True, type=parse, metavar="JSON")
    print(json.dumps(measure(parser.parse_args().cell)))


if __name__ == "__main__":
    main()
