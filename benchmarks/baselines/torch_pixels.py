"""PyTorch's part of `benchmarks/pixels.py`: the same networks and loss, channels last, on all threads; members in turn.

python benchmarks/baselines/torch_pixels.py --cell JSON
"""

import torch
from cell import answer, best
from torch import Tensor, nn
from torch.nn import functional


class Residual(nn.Module):
    """x + conv(relu(conv(relu(x))))"""

    def __init__(self, channels: int):
        super().__init__()
        self.first, self.second = (nn.Conv2d(channels, channels, 3, padding=1) for _ in range(2))

    def forward(self, x: Tensor) -> Tensor:
        return x + self.second(torch.relu(self.first(torch.relu(x))))


def make(network: str, shape: tuple[int, ...], choices: int) -> nn.ModuleDict:
    """One network, with the heads of policy and critic."""
    side, _, channels = shape
    layers: list[nn.Module] = []
    if network == "impala":
        for features in (16, 32, 32):
            layers += [nn.Conv2d(channels, features, 3, padding=1), nn.MaxPool2d(3, 2, padding=1)]
            layers += [Residual(features), Residual(features)]
            side, channels = -(-side // 2), features
        heads = [[nn.Linear(256, outputs)] for outputs in (choices, 1)]
        layers += [nn.ReLU(), nn.Flatten(), nn.Linear(channels * side**2, 256), nn.ReLU()]
    else:
        for features, size, stride in ((32, 8, 4), (64, 4, 2), (64, 3, 1)):
            layers += [nn.Conv2d(channels, features, size, stride), nn.ReLU()]
            side, channels = (side - size) // stride + 1, features
        layers.append(nn.Flatten())
        flat = channels * side**2
        heads = [[nn.Linear(flat, 512), nn.ReLU(), nn.Linear(512, outputs)] for outputs in (choices, 1)]
    made = nn.ModuleDict({"features": nn.Sequential(*layers)})
    made.update({name: nn.Sequential(*head) for name, head in zip(("policy", "critic"), heads, strict=True)})
    return made.to(memory_format=torch.channels_last)


def forward(made: nn.ModuleDict, obs: Tensor) -> tuple[torch.distributions.Categorical, Tensor]:
    """obs [K, C, H, W] of 8 bits, channels last."""
    x = made["features"](obs.float().div_(255))
    logits = made["policy"](x)
    return torch.distributions.Categorical(logits=logits, validate_args=False), made["critic"](x)[:, 0]


def measure(cell: dict) -> dict[str, float]:
    """Seconds per image and member of acting and of an update, the best of all calls; CPU seconds of the update."""
    members, copies, images = cell["population"], cell["num_envs"], cell["num_envs"] * cell["rollout_length"]
    height, width, channels = cell["shape"]
    agents = [make(cell["network"], cell["shape"], cell["choices"]) for _ in range(members)]
    optimisers = [torch.optim.Adam(agent.parameters(), 3e-4, eps=1e-5, fused=True) for agent in agents]
    obs = torch.randint(0, 256, (images, height, width, channels), dtype=torch.uint8).permute(0, 3, 1, 2)
    action, advantage = torch.randint(0, cell["choices"], (images,)), torch.randn(images)
    log_prob, value = torch.full((images,), -2.7), torch.randn(images)

    def act() -> None:
        with torch.no_grad():
            for agent in agents:
                distribution, _ = forward(agent, obs[:copies])
                distribution.log_prob(distribution.sample())

    def update() -> None:
        for agent, optimizer in zip(agents, optimisers, strict=True):
            for rows in torch.randperm(images).chunk(8):
                distribution, new = forward(agent, obs[rows])
                ratio = (distribution.log_prob(action[rows]) - log_prob[rows]).exp()
                gain = advantage[rows]
                gain = (gain - gain.mean()) / (gain.std() + 1e-8)
                surrogate = torch.minimum(ratio * gain, ratio.clamp(0.8, 1.2) * gain).mean()
                error = functional.mse_loss(new, value[rows] + advantage[rows])
                loss = 0.25 * error - surrogate - 0.01 * distribution.entropy().mean()
                optimizer.zero_grad()
                loss.backward()
                nn.utils.clip_grad_norm_(agent.parameters(), 0.5)
                optimizer.step()

    act_time, _ = best(act, cell["seconds"])
    update_time, cpu = best(update, cell["seconds"])
    return {
        "act": act_time / (members * copies),
        "update": update_time / (members * images),
        "cpu": cpu / (members * images),
    }


if __name__ == "__main__":
    answer(measure, __doc__)
