"""What learning from images costs: acting and updating of PPO with a network for images, against PyTorch, channels last.

IMPALA on images of 64 x 64 x 3, as Procgen has them, and the Nature CNN on 84 x 84 x 4, as Atari has them; one network for
policy and critic, images of 8 bits, random numbers that are there already. Each of two figures comes from a process of its
own, Shoal's and PyTorch's in turn, `--repeats` times; the median counts, the range stands beside it.

- act: distribution, sample, log-probability and value of one image in each of 64 environments;
- update: one epoch over a rollout, in 8 minibatches: forwards, backwards, Adam.

Figures are microseconds per image and member, and environment steps per second of a run with 3 epochs: 1 / (act + 3 update).
CPU time per image tells how much of it was spent waiting for a core that somebody else used. The floor is the arithmetic
of convolutions and dense layers over the rate of large float32 products in the same call (`update_cell.py --rate`).

    python benchmarks/pixels.py --peer PYTHON

PYTHON is the interpreter of an environment with torch; without it only Shoal is measured. DQN's update on images is a part
of `update_step.py --agents dqn`.
"""

import argparse
import json
import statistics
import sys
from pathlib import Path

from common import last_json, table

HERE = Path(__file__).parent
EPOCHS = 3
IMAGES = {"impala": (64, 64, 3), "nature_cnn": (84, 84, 4)}
CHOICES = 15


def operations(network: str) -> tuple[float, float]:
    """Operations per image forwards, and forwards and backwards: two per multiply-add; nothing goes back into the image."""
    side, _, channels = IMAGES[network]
    layers = []
    if network == "impala":
        for features in (16, 32, 32):
            layers.append(side**2 * 9 * channels * features)
            side, channels = -(-side // 2), features
            layers += [side**2 * 9 * features**2] * 4
    else:
        for features, size, stride in ((32, 8, 4), (64, 4, 2), (64, 3, 1)):
            side = (side - size) // stride + 1
            layers.append(side**2 * size**2 * channels * features)
            channels = features
    layers.append(side**2 * channels * (256 if network == "impala" else 512))
    forward = 2 * sum(layers)
    return forward, 3 * forward - 2 * layers[0]


def measure(options: argparse.Namespace) -> list[list[str]]:
    """A row of the table for each network, population and library."""
    rate = last_json([sys.executable, str(HERE / "update_cell.py"), "--rate", str(options.seconds)])["rate"]
    scripts = {"Shoal": [sys.executable, str(HERE / "baselines" / "pixels_shoal.py")]}
    if options.peer:
        scripts["PyTorch"] = [options.peer, str(HERE / "baselines" / "torch_pixels.py")]
    rows = []
    for network in options.networks:
        forward, learning = operations(network)
        floor = (forward + EPOCHS * learning) / rate
        for population in options.populations:
            cell = {"network": network, "shape": IMAGES[network], "choices": CHOICES, "population": population}
            cell |= {"num_envs": options.environments, "rollout_length": options.rollout, "seconds": options.seconds}
            found: dict[str, list[dict]] = {name: [] for name in scripts}
            for _ in range(options.repeats):
                for name, command in scripts.items():
                    found[name].append(last_json([*command, "--cell", json.dumps(cell)]))
            whole = {name: [x["act"] + EPOCHS * x["update"] for x in figures] for name, figures in found.items()}
            for name, figures in found.items():
                times = whole[name]
                middle = {part: statistics.median(x[part] for x in figures) for part in figures[0]}
                ratio = statistics.median(a / b for a, b in zip(whole.get("PyTorch", times), times, strict=True))
                rows.append(
                    [
                        f"{name}, {network}",
                        str(population),
                        f"{middle['act'] * 1e6:,.0f}",
                        f"{middle['update'] * 1e6:,.0f}",
                        f"{middle['cpu'] * 1e6:,.0f}",
                        f"{1 / statistics.median(times):,.0f}",
                        f"{1 / max(times):,.0f} to {1 / min(times):,.0f}",
                        f"{floor / statistics.median(times):.0%}",
                        f"{ratio:.2f}" if options.peer and name == "Shoal" else "",
                    ]
                )
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("--peer", metavar="PYTHON", help="interpreter with torch")
    add("--networks", nargs="+", choices=IMAGES, default=list(IMAGES))
    add("--populations", nargs="+", type=int, default=[1, 4], metavar="N")
    add("--environments", type=int, default=64, metavar="B", help="of each member (default: %(default)s)")
    add("--rollout", type=int, default=32, metavar="T", help="steps in each (default: %(default)s)")
    add("--repeats", type=int, default=3, help="pairs of measurements (default: %(default)s)")
    add("--seconds", type=float, default=5, help="of each part of a measurement (default: %(default)s)")
    options = parser.parse_args()
    columns = ["", "population", "act µs", "update µs", "CPU µs of an update", "steps/s", "least to most"]
    columns += ["of the floor", "× PyTorch"]
    rows = measure(options)
    table(f"PPO on images, {options.environments} environments x {options.rollout} steps, 8 minibatches", columns, rows)


if __name__ == "__main__":
    main()
