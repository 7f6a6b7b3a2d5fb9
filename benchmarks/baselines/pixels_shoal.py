"""Shoal's part of `benchmarks/pixels.py`: seconds per image of acting, and of an epoch of PPO.

python benchmarks/baselines/pixels_shoal.py --cell JSON
"""

import jax
import jax.numpy as jnp
import numpy as np
from cell import answer, best

from shoal.agents.ppo import ppo
from shoal.core.keys import member_keys
from shoal.core.spec import Discrete, Spec
from shoal.core.types import Rollout
from shoal.members.devices import MEMBERS, OF_POPULATION, DeviceLayout, prepare
from shoal.rl.independent import independent


def measure(cell: dict) -> dict[str, float]:
    """Seconds per image and member of acting and of an update, the best of all calls; CPU seconds of the update."""
    prepare()
    n, shape = cell["population"], (cell["population"], cell["rollout_length"], cell["num_envs"])
    layers = (512,) if cell["network"] == "nature_cnn" else ()
    settings = {"network": cell["network"], "layers": layers, "activation": "relu", "num_minibatches": 8}
    settings["precision"] = cell.get("precision", "float32")
    agent = ppo(
        Spec(tuple(cell["shape"]), "uint8", Discrete(cell["choices"])),
        **settings,
        num_envs=cell["num_envs"],
        rollout_length=cell["rollout_length"],
    )
    learner, layout, rng = independent(agent), DeviceLayout(n), np.random.default_rng(0)
    uid = layout.place(np.arange(n, dtype=np.uint32))
    hyper = layout.place(jax.tree.map(lambda x: np.full(n, x, np.float32), agent.hyper._replace(epochs=1)))
    obs = rng.integers(0, 256, (*shape, *cell["shape"]), np.uint8)
    key = jax.random.key(0)

    def begin(uid, hyper):
        return learner.init(key, uid, hyper)

    def act(population, obs, uid):
        return learner.act(population, obs, (), member_keys(key, uid))

    def update(population, rollout, uid):
        return learner.update(population, rollout, member_keys(key, uid))

    population = layout.program(begin, MEMBERS, MEMBERS, out=OF_POPULATION)(uid, hyper)
    acting = layout.program(act, OF_POPULATION, MEMBERS, MEMBERS)
    now = layout.place(obs[:, 0])
    action, _, extras = acting(population, now, uid)
    action, extras = jax.tree.map(lambda x: np.repeat(np.asarray(x)[:, None], shape[1], 1), (action, extras))
    reward, none = rng.normal(size=shape).astype(np.float32), np.zeros(shape, bool)
    ended = rng.random(shape) < 0.01
    rollout = layout.place(Rollout(obs, action, reward, (), ended, none, extras, np.zeros(shape, np.float32)))
    learning = layout.program(update, OF_POPULATION, MEMBERS, MEMBERS, out=(OF_POPULATION, MEMBERS))

    act_time, _ = best(lambda: jax.block_until_ready(acting(population, now, uid)), cell["seconds"])
    update_time, cpu = best(lambda: jax.block_until_ready(learning(population, rollout, uid)), cell["seconds"])
    images = int(np.prod(shape))
    assert jnp.isfinite(learning(population, rollout, uid)[1]["loss/value"]).all()
    return {"act": act_time / (n * shape[2]), "update": update_time / images, "cpu": cpu / images}


if __name__ == "__main__":
    answer(measure, __doc__)
