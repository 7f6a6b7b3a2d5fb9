"""MuJoCo Playground's robots as environments of Shoal: against MuJoCo itself, which computes in C and in float64."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support.tiny import same

from shoal.core.errors import BadInput
from shoal.core.spec import Box, Spec
from shoal.environments import registry, suites
from shoal.environments.device import auto_reset, quiet, with_values

pytest.importorskip("mujoco_playground")
with quiet():
    from mujoco_playground import dm_control_suite, locomotion, manipulation


def test_all_of_its_environments_are_listed() -> None:
    there = dm_control_suite.ALL_ENVS + locomotion.ALL_ENVS + manipulation.ALL_ENVS
    assert sorted(suites.names("playground")) == sorted(there)
    assert suites.resolve("CheetahRun") == "playground:CheetahRun"


@pytest.mark.slow
def test_cartpole_moves_as_in_mujoco_and_ends_at_its_time_limit() -> None:
    """In three worlds, one of which is that of its model, with one program."""
    import mujoco

    environment = registry.make("playground:CartpoleBalance", {"episode_length": 3})
    assert environment.spec == Spec((5,), "float32", Box((-1.0,), (1.0,))) and not environment.fresh_resets

    @jax.jit
    def play(gravity: jax.Array, mass: jax.Array) -> Any:
        own = with_values(environment, {"gravity": gravity, "mass": mass})
        first, start = (own.reset(jax.random.key(i)) for i in range(2))

        def step(state: Any, action: jax.Array) -> Any:
            state, now = auto_reset(own, jax.random.key(2), state, action, start)
            return state, (now, state[0].data.qpos)

        return first[1][0].data, start[0], jax.lax.scan(step, first[1], jnp.array([[1.0], [-0.5], [0.25], [0.0]]))[1]

    for gravity, mass in ((9.81, 1.0), (4.0, 1.0), (9.81, 2.5)):
        data, restarted, (now, qpos) = play(jnp.float32(gravity), jnp.float32(mass))
        model = dm_control_suite.load("CartpoleBalance", config_overrides={"impl": "jax"}).mj_model
        model.opt.gravity[2] = -gravity
        model.body_mass *= mass
        model.body_inertia *= mass
        there = mujoco.MjData(model)
        there.qpos, there.qvel = np.asarray(data.qpos), np.asarray(data.qvel)
        for t, push in enumerate((1.0, -0.5)):
            there.ctrl = push
            mujoco.mj_step(model, there)
            np.testing.assert_allclose(qpos[t], there.qpos, atol=2e-6)
            np.testing.assert_allclose(now.final_obs[t, 0], there.qpos[0], atol=2e-6)
        assert now.truncated.tolist() == [False, False, True, False] and not now.terminated.any()
        assert same(now.obs[2], restarted) and not same(now.final_obs[2], restarted)
        assert now.reward.shape == (4,) and (now.reward > 0).all() and (now.reward <= 1).all()


def test_numbers_of_a_configuration_are_env_parameters() -> None:
    """Also where a function that was chosen when the environment was made reads them; that environment keeps its own."""
    from mujoco_playground._src.dm_control_suite import cartpole

    class Weighed(cartpole.Balance):
        def __init__(self, *arguments: Any, **options: Any):
            super().__init__(False, False, *arguments, **options)
            self._get_reward = self._weighed

        def _weighed(self, *_: Any) -> Any:
            return self._config.reward_config.scales.upright

    def config() -> Any:
        made = cartpole.default_config()
        made.reward_config = {"scales": {"upright": 0.5}}
        return made

    dm_control_suite.register_environment("Weighed", Weighed, config)
    try:
        made = registry.make("playground:Weighed", {"reward_config": {"scales": {"upright": 0.75}}})
    finally:
        # Private to the package, which has no way to take back what is registered.
        del dm_control_suite._envs["Weighed"], dm_control_suite._cfgs["Weighed"]
    assert made.env_parameters["reward_config.scales.upright"] == 0.75 and "ctrl_dt" not in made.env_parameters
    changed = made.with_env_parameters({"reward_config.scales.upright": 2.0})  # type: ignore[misc]
    other, env = (environment.step.args[0] for environment in (changed, made))  # type: ignore[attr-defined]
    assert (other._get_reward(), env._get_reward()) == (2.0, 0.75)  # as a step of Playground asks


def test_critics_see_more_where_there_is_more() -> None:
    """As in Playground's own settings, for every robot that shows both."""
    from mujoco_playground._src.dm_control_suite import cartpole

    class Told(cartpole.Balance):
        def __init__(self, *arguments: Any, **options: Any):
            super().__init__(False, False, *arguments, **options)

        def _get_obs(self, data: Any, info: Any) -> Any:
            state = super()._get_obs(data, info)
            return {"state": state, "privileged_state": jnp.concatenate([state, data.qvel])}

    dm_control_suite.register_environment("Told", Told, cartpole.default_config)
    try:
        spec = registry.make("playground:Told", {}).spec
    finally:
        # Private to the package, which has no way to take back what is registered.
        del dm_control_suite._envs["Told"], dm_control_suite._cfgs["Told"]
    assert spec.obs_shape == {"state": (5,), "privileged_state": (7,)}
    assert (spec.actor, spec.critic) == (("state",), ("privileged_state",))


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        (
            "Go1JoystickFlatTerrain",
            {},
            "needs the robots of MuJoCo's menagerie, which are not at .*none; pip install .*.envpool.'.* git clone",
        ),
        ("CartpoleBalance", {"episode_lenght": 3}, "did you mean episode_length"),
        ("CartpoleBalance", {"impl": "fast"}, "does not accept env_options"),
        ("CartpoleBalanc", {}, "did you mean playground:CartpoleBalance"),
    ],
)
def test_bad_input(
    name: str, options: dict[str, Any], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MENAGERIE_ROOT", str(tmp_path / "none"))
    with pytest.raises(BadInput, match=message):
        registry.make(suites.resolve(f"playground:{name}"), options)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["Go1JoystickFlatTerrain", "T1JoystickFlatTerrain", "AeroCubeRotateZAxis"])
def test_robots_that_come_with_envpool(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of either of its packages, and one whose configuration has no `impl`."""
    pytest.importorskip("envpool")
    monkeypatch.delenv("MENAGERIE_ROOT", raising=False)
    spec = registry.make(f"playground:{name}", {}).spec
    assert (spec.actor, spec.critic) == (("state",), ("privileged_state",))
