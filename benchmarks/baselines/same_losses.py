"""Do Shoal's agents and the PyTorch baselines compute the same? From equal weights, on equal batches with equal noise.

Some members with different weights make two updates, in Shoal and in PyTorch, there both stacked and one at a time. What
is compared are the losses of the critics and the weights afterwards, by the relative error |a - b| / |b| of the worst
network (policy, critics, targets) and member. Beside it stands the error of how far the weights moved, which divides by
something smaller: the first steps of Adam are as long for a weight whose gradient is all rounding as for any other. The
second update of TD3 is one with a step of the policy, that of DQN one that copies the target.

    python benchmarks/baselines/same_losses.py --peer PYTHON

PYTHON is the interpreter of an environment with torch. Exits with 1 when losses or weights differ by more than --limit.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

MEMBERS, UPDATES = 3, 2
HYPER = {
    "td3": {"policy_learning_rate": 1e-3, "critic_learning_rate": 1e-3, "policy_delay": 2.0, "tau": 0.005},
    "sac": {
        "policy_learning_rate": 3e-4,
        "critic_learning_rate": 3e-4,
        "temperature_learning_rate": 3e-4,
        "tau": 0.005,
    },
    "dqn": {"learning_rate": 1e-3, "target_update_interval": 2.0},
}
PARTS = {  # of what an agent has learned: the attribute in PyTorch
    "td3": {
        "policy": "policy",
        "critics": "critics",
        "target_policy": "target_policy",
        "target_critics": "target_critics",
    },
    "sac": {"policy": "policy", "critics": "critics", "target_critics": "target_critics"},
    "dqn": {"params": "online", "target": "target"},
}

# --------------------------------------------------------------------------------------------- Shoal


def export(agent_name: str, path: Path) -> None:
    """Weights before and after each update, batches, noise and losses of all members, as one file of arrays."""
    import jax
    import jax.numpy as jnp

    sys.path.insert(0, str(Path(__file__).parents[1]))
    from update_cell import filled, make_agent, random_rollout

    from shoal.rl import replay_buffer as ring

    agent = make_agent(agent_name, 1)
    hyper = jax.tree.map(jnp.float32, agent.hyper._replace(update_ratio=1.0, **HYPER[agent_name]))
    slots = jax.eval_shape(agent.init, jax.random.key(0), hyper).replay_buffer.steps.reward.shape[0]
    steps = jax.tree.map(jnp.asarray, random_rollout(agent_name, slots, 0))
    batch_size = 32 if agent_name == "dqn" else 256
    update, arrays = jax.jit(agent.update), {}
    for m in range(MEMBERS):
        member = filled(agent, jax.random.key(m), hyper, steps)
        _put(arrays, f"{m}/0", _weights(agent_name, member.learned))
        for i in range(1, UPDATES + 1):
            rollout, key = random_rollout(agent_name, 1, 100 * m + i), jax.random.key(1000 + 100 * m + i)
            member, metrics = update(member, hyper, rollout, key)
            # What shoal.rl.off_policy did with the key: this batch, and this noise.
            batch_key, learn_key = jax.random.split(key)
            batch = ring.sample(member.replay_buffer, batch_key, (1, batch_size), 1, hyper.discount)
            key_of_update = jax.random.fold_in(learn_key, 0)
            shape = batch.action.shape[1:]
            keys = jax.random.split(key_of_update) if agent_name == "sac" else [key_of_update]
            if agent_name != "dqn":
                _put(arrays, f"{m}/{i}/noise", {"": jnp.stack([jax.random.normal(k, shape) for k in keys])})
            _put(arrays, f"{m}/{i}/batch", {k: v[0] for k, v in batch._asdict().items()})
            _put(arrays, f"{m}/{i}", {**_weights(agent_name, member.learned), "loss": metrics["loss/critic"]})
    np.savez(path, **arrays)


def _weights(agent_name: str, learned) -> dict:
    """Arrays by part and by layer: kernels and biases in the order in which they act."""
    import jax

    found = {}
    for part in PARTS[agent_name]:
        tree = getattr(learned, part)
        tree = [tree["features"], tree["head"]] if agent_name == "dqn" else [tree]
        for j, piece in enumerate(tree):
            for path, x in jax.tree_util.tree_leaves_with_path(piece):
                layer, kind = (str(p.key) for p in path[-2:])
                found[f"{part}/{'ch'[j] if len(tree) > 1 else 'h'}{layer.split('_')[1]}/{kind}"] = x
    if agent_name == "sac":
        found["log_temperature"] = learned.log_temperature
    return found


def _put(arrays: dict, prefix: str, values: dict) -> None:
    arrays.update({f"{prefix}/{k}".rstrip("/"): np.asarray(x) for k, x in values.items()})


# ------------------------------------------------------------------------------------------- PyTorch


def compare(agent_name: str, path: Path, members: list[int]) -> dict[str, float]:
    """The largest errors when these members learn as one stack."""
    import torch
    from torch_agents import AGENTS, Batch

    data = np.load(path)
    names = [k.removeprefix("0/0/") for k in data.files if k.startswith("0/0/")]

    def stacked(place: str) -> torch.Tensor:
        return torch.from_numpy(np.stack([data[f"{m}/{place}"] for m in members]))

    learner = AGENTS[agent_name](len(members), **({"period": 2} if agent_name == "dqn" else {}))
    with torch.no_grad():
        for name in names:
            own = _tensor(agent_name, learner, name)
            own.copy_(_arranged(name, stacked(f"0/{name}"), own))
    worst = {"loss": 0.0, "weights": 0.0, "moved": 0.0}
    for i in range(1, UPDATES + 1):
        batch = Batch(*(stacked(f"{i}/batch/{k}") for k in Batch._fields))
        if agent_name == "dqn":
            loss = learner.update(batch._replace(action=batch.action.long()))
        else:
            noise = stacked(f"{i}/noise").transpose(0, 1)
            loss = learner.update(batch, noise if agent_name == "sac" else noise[0])
        worst["loss"] = max(worst["loss"], _error(loss, stacked(f"{i}/loss")))
        for m in range(len(members)):
            for part in dict.fromkeys(name.split("/")[0] for name in names):
                inside = [name for name in names if name.split("/")[0] == part]
                own = [_tensor(agent_name, learner, name).detach() for name in inside]
                theirs, start = (
                    [_arranged(name, stacked(f"{k}/{name}"), x) for name, x in zip(inside, own, strict=True)]
                    for k in (i, 0)
                )
                a, b, c = (torch.cat([_of(m, len(members), x).flatten() for x in xs]) for xs in (own, theirs, start))
                if part != "log_temperature":  # which starts from 0
                    worst["weights"] = max(worst["weights"], _error(a, b))
                worst["moved"] = max(worst["moved"], _error(a - c, b - c) if (b != c).any() else float((a != c).any()))
    return worst


def _tensor(agent_name: str, learner, name: str):
    if name == "log_temperature":
        return learner.log_temperature
    part, layer, kind = name.split("/")
    network, number = getattr(learner, PARTS[agent_name][part]), int(layer[1:])
    if layer[0] == "c":
        return (network.kernels if kind == "kernel" else network.biases)[number]
    dense = (network.head if agent_name == "dqn" else network).layers[number]
    return dense.weight if kind == "kernel" else dense.bias


def _arranged(name: str, x, own):
    """Shoal's array [N, ...] in the order of a tensor of PyTorch's."""
    if "/c" in name and name.endswith("kernel"):  # [N, size * size * channels, filters]
        n, filters, channels, size, _ = own.shape
        return x.view(n, size, size, channels, filters).permute(0, 4, 3, 1, 2)
    if "critics/" in name:  # [N, 2, ...]: all first critics come before all second ones
        x = x.transpose(0, 1).flatten(0, 1)
    return x.reshape(own.shape)


def _of(member: int, members: int, x):
    """The rows of one member."""
    return x.unflatten(0, (-1, members))[:, member]


def _error(a, b) -> float:
    return float((a - b).norm() / b.norm())


# ---------------------------------------------------------------------------------------------- both


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--peer", metavar="PYTHON", help="interpreter with torch")
    parser.add_argument("--agents", nargs="+", choices=PARTS, default=list(PARTS))
    parser.add_argument("--limit", type=float, default=1e-4, help="of a relative error (default: %(default)s)")
    parser.add_argument("--part", nargs=2, metavar=("export|compare", "FILE"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.part:
        what, path, agent = options.part[0], Path(options.part[1]), options.agents[0]
        if what == "export":
            export(agent, path)
        else:
            sets = {"stacked": [*range(MEMBERS)]} | {f"member {m}": [m] for m in range(MEMBERS)}
            print(json.dumps({name: compare(agent, path, members) for name, members in sets.items()}))
        return
    if not options.peer:
        parser.error("--peer is needed")
    sys.path.insert(0, str(Path(__file__).parents[1]))
    from common import last_json, table

    rows, agree = [], True
    for agent in options.agents:
        with tempfile.TemporaryDirectory() as folder:
            path = str(Path(folder) / "shoal.npz")
            subprocess.run([sys.executable, __file__, "--agents", agent, "--part", "export", path], check=True)
            results = last_json([options.peer, __file__, "--agents", agent, "--part", "compare", path])
        for name, errors in results.items():
            fine = errors["loss"] <= options.limit and errors["weights"] <= options.limit
            agree &= fine
            rows.append([f"{agent}, {name}", *(f"{errors[k]:.1e}" for k in errors), "yes" if fine else "NO"])
    title = f"Relative errors between Shoal and PyTorch over {UPDATES} updates, at most {options.limit:g} allowed"
    table(title, ["", "loss", "weights", "movement", "agree"], rows)
    raise SystemExit(0 if agree else 1)


if __name__ == "__main__":
    main()
