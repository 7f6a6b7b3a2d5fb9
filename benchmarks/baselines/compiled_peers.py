"""Compiled peers at work: PureJaxRL, rejax and EvoRL training PPO on gymnax's CartPole with the same settings.

What is measured: training steps per second of a whole population on this machine, compilation left out. Every peer runs
its own code with 4 environments x 128 steps per member, 4 epochs x 4 minibatches and 64-64 tanh networks. PureJaxRL and
rejax train independent seeds under vmap and evaluate nothing. EvoRL runs its population-based training with its own
evaluation and exchange: their time counts, their steps do not. All normalise advantages; PureJaxRL and rejax share the
learning rate and the gradient clip of PureJaxRL's ppo.py; everything else is the peer's default.

    python benchmarks/baselines/compiled_peers.py --rejax --purejaxrl CHECKOUT --evorl CHECKOUT

Each peer and population gives one line of JSON: the rates of the repeats, and how many seconds the first call took
longer than the fastest repeat. PureJaxRL (github.com/luchris429/purejaxrl) and EvoRL (github.com/EMI-Group/evorl) are
imported from checkouts, which stay as they are; where they expect an older gymnax, lack an option or would hang, they
are adapted at run time.
Needs jax, flax, optax, distrax and gymnax; for EvoRL also brax, orbax-checkpoint, pandas, hydra-core and wandb.
"""

import argparse
import contextlib
import functools
import importlib.util
import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import MagicMock

COPIES, ROLLOUT, EPOCHS, MINIBATCHES, HIDDEN = 4, 128, 4, 4, [64, 64]
BATCH = COPIES * ROLLOUT
RATE, CLIP_NORM = 2.5e-4, 0.5


class OldStep:
    """A gymnax environment whose step returns five values, as before gymnax 1.0, and only its info of that time."""

    def __init__(self, env):
        self.env = env

    def __getattr__(self, name: str):
        if name == "env":  # not there yet: this object is being copied
            raise AttributeError(name)
        return getattr(self.env, name)

    def step(self, key, state, action, params=None):
        """Step with automatic reset: observation, state, reward, done, info."""
        observation, state, reward, *ends, info = self.env.step(key, state, action, params)
        done = functools.reduce(lambda terminated, truncated: terminated | truncated, ends)
        return observation, state, reward, done, {"discount": info["discount"]}


def cartpole(*_):
    """What gymnax.make gave before gymnax 1.0: environment and parameters."""
    import gymnax

    env, params = gymnax.make("CartPole-v1")
    return OldStep(env), params


def orthogonal(scale: float) -> Callable:
    """The initialiser of that name, one member after another: jaxlib 0.10 can hang in batched QR on few cores."""
    import jax

    draw = jax.nn.initializers.orthogonal(scale)

    def initialise(key, shape, dtype):
        return jax.custom_batching.sequential_vmap(lambda key: draw(key, shape, dtype))(key)

    return initialise


def vmapped(train: Callable, population: int) -> Callable[[int], Any]:
    """A compiled run of independent seeds."""
    import jax

    compiled = jax.jit(jax.vmap(train))
    return lambda repeat: compiled(jax.random.split(jax.random.PRNGKey(repeat), population))


@contextlib.contextmanager
def stand_ins(*names: str):
    """Let modules import packages that what we run of them does not need."""
    absent = {name: MagicMock() for name in names if name not in sys.modules}
    sys.modules.update(absent)
    try:
        yield
    finally:
        for name in absent:
            del sys.modules[name]


def purejaxrl(population: int, updates: int, checkout: Path) -> Callable[[int], Any]:
    """PureJaxRL's ppo.py; its wrappers import other environments' packages, which CartPole does not need."""
    sys.path.insert(0, str(checkout / "purejaxrl"))
    with stand_ins("brax", "brax.envs", "brax.envs.wrappers", "brax.envs.wrappers.training", "navix"):
        import ppo

    ppo.orthogonal = orthogonal
    ppo.gymnax = SimpleNamespace(make=cartpole)
    config = {
        "ENV_NAME": "CartPole-v1", "TOTAL_TIMESTEPS": updates * BATCH, "DEBUG": False,
        "NUM_ENVS": COPIES, "NUM_STEPS": ROLLOUT, "UPDATE_EPOCHS": EPOCHS, "NUM_MINIBATCHES": MINIBATCHES,
        "LR": RATE, "ANNEAL_LR": True, "MAX_GRAD_NORM": CLIP_NORM, "ACTIVATION": "tanh",
        "GAMMA": 0.99, "GAE_LAMBDA": 0.95, "CLIP_EPS": 0.2, "ENT_COEF": 0.01, "VF_COEF": 0.5,
    }  # fmt: skip
    return vmapped(ppo.make_train(config), population)


def rejax(population: int, updates: int) -> Callable[[int], Any]:
    """The installed rejax, its evaluation left out."""
    from rejax import PPO

    env, params = cartpole()
    algorithm = PPO.create(
        env=env,
        env_params=params,
        num_envs=COPIES,
        num_steps=ROLLOUT,
        num_epochs=EPOCHS,
        num_minibatches=MINIBATCHES,
        agent_kwargs={"hidden_layer_sizes": HIDDEN, "activation": "tanh"},
        learning_rate=RATE,
        max_grad_norm=CLIP_NORM,
        total_timesteps=updates * BATCH,
        eval_freq=updates * BATCH,
        skip_initial_evaluation=True,
    ).replace(eval_callback=lambda algorithm, state, key: ())
    return vmapped(algorithm.train, population)


def evorl(population: int, updates: int, checkout: Path, interval: int, episodes: int) -> Callable[[int], Any]:
    """EvoRL's PBT on PPO, which trains on from call to call: `interval` updates, an evaluation, an exchange, again."""
    sys.path.insert(0, str(checkout))
    import flax.linen as nn
    import hydra
    import jax
    from evorl.algorithms import ppo
    from evorl.networks import make_policy_network, make_v_network

    ppo.make_policy_network = functools.partial(make_policy_network, activation=nn.tanh)  # no option sets it
    ppo.make_v_network = functools.partial(make_v_network, activation=nn.tanh)
    settings = {
        "num_envs": COPIES, "rollout_length": ROLLOUT, "minibatch_size": BATCH // MINIBATCHES,
        "reuse_rollout_epochs": EPOCHS, "normalize_gae": "true", "num_eval_envs": episodes, "eval_episodes": episodes,
        "agent_network.actor_hidden_layer_sizes": HIDDEN, "agent_network.critic_hidden_layer_sizes": HIDDEN,
    }  # fmt: skip
    overrides = [f"target_workflow.{name}={value}" for name, value in settings.items()]
    overrides += ["agent=pbt-ppo", "env=gymnax/CartPole-v1"]
    overrides += [f"pop_size={population}", f"workflow_steps_per_iter={interval}"]
    with hydra.initialize_config_dir(str((checkout / "configs").resolve()), version_base=None):
        config = hydra.compose("config", overrides)
    kind = hydra.utils.get_class(config.workflow_cls)
    workflow = type(kind.__name__, (kind,), {}).build_from_config(config)  # a subclass: building jits its methods
    state = workflow.init(jax.random.PRNGKey(0))

    def run(repeat: int):
        nonlocal state
        for _ in range(updates // interval):
            _, state = workflow.step(state)
        return state

    return run


def measure(prepare: Callable, population: int, steps: int, repeats: int, **options) -> None:
    """Time one peer, prepared by a function above, at one population and print its line."""
    import jax

    whole = options.get("interval", 1)  # updates come in whole intervals
    updates = max(1, steps // (population * BATCH * whole)) * whole
    with contextlib.redirect_stdout(sys.stderr):  # some packages greet on import
        run = prepare(population, updates, **options)
        seconds = []
        for repeat in range(repeats + 1):
            began = time.perf_counter()
            jax.block_until_ready(run(repeat))
            seconds.append(time.perf_counter() - began)
    first, *later = seconds
    figures = {
        "peer": prepare.__name__,
        "population": population,
        "steps_per_second": [round(population * BATCH * updates / each) for each in later],
        "compile_seconds": round(first - min(later), 2),
    }
    print(json.dumps(figures), flush=True)


def main() -> None:
    """Measure the peers that are asked for, one after another."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--purejaxrl", type=Path, metavar="CHECKOUT", help="measure PureJaxRL, 8 seeds")
    parser.add_argument("--rejax", action="store_true", help="measure rejax, 8 seeds; it must be installed")
    parser.add_argument("--evorl", type=Path, metavar="CHECKOUT", help="measure EvoRL, populations of 8 and 64")
    parser.add_argument("--steps", type=int, default=2**21, help="of the population, per repeat (default: %(default)s)")
    parser.add_argument("--repeats", type=int, default=3, help="after the first, which compiles (default: %(default)s)")
    parser.add_argument("--interval", type=int, default=5, help="EvoRL: updates per generation (default: %(default)s)")
    parser.add_argument("--episodes", type=int, default=16, help="EvoRL: per evaluation (default: %(default)s)")
    options = parser.parse_args()
    if not (options.purejaxrl or options.rejax or options.evorl):
        parser.error("no peer to measure: give --purejaxrl, --rejax or --evorl")
    if options.rejax and importlib.util.find_spec("rejax") is None:
        parser.error("--rejax: rejax is not installed")
    for name, inside in (("purejaxrl", "purejaxrl/ppo.py"), ("evorl", "configs/agent/pbt-ppo.yaml")):
        checkout = getattr(options, name)
        if checkout and not (checkout / inside).is_file():
            parser.error(f"--{name}: {checkout} holds no {inside}")

    shared = {"steps": options.steps, "repeats": options.repeats}
    if options.purejaxrl:
        measure(purejaxrl, 8, **shared, checkout=options.purejaxrl)
    if options.rejax:
        measure(rejax, 8, **shared)
    if options.evorl:
        for population in (8, 64):
            own = {"checkout": options.evorl, "interval": options.interval, "episodes": options.episodes}
            measure(evorl, population, **shared, **own)


if __name__ == "__main__":
    main()
