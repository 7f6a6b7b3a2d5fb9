"""The adapter for Stable-Baselines3, held to the conformance kit and to SB3 itself."""

from __future__ import annotations

import importlib.util
import itertools
import json
import os
import pickle
import shutil
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
from safetensors.numpy import load_file
from support.runs import shoal
from support.trainees import member

from shoal.core.errors import BadField
from shoal.core.spec import Discrete, MultiDiscrete, Spec
from shoal.experiment.experiment import Experiment
from shoal.rl.masks import ActionMask
from shoal.rl.networks import choice
from shoal.run.champion import load_champion
from shoal.run.members import read_members
from shoal.run.train import train
from shoal.testing import TrainerContract
from shoal.trainers.process import Recipe, TrainerProcess, limited
from shoal.trainers.trainers import own_folders

PYTHON = os.environ.get("SHOAL_TRAINERS_PYTHON", sys.executable)
here = importlib.util.find_spec("stable_baselines3") is not None
pytestmark = pytest.mark.skipif(
    not here and "SHOAL_TRAINERS_PYTHON" not in os.environ,
    reason="Stable-Baselines3 is not installed here, and SHOAL_TRAINERS_PYTHON names no interpreter that has it",
)

SMALL = {"policy_kwargs": {"net_arch": [16]}, "device": "cpu"}
REPLAY = {**SMALL, "learning_starts": 20, "batch_size": 8, "buffer_size": 150, "train_freq": 2}
QUANTILES = {"net_arch": [16], "n_quantiles": 5}
EPSILON = {**REPLAY, "exploration_steps": 2000, "target_update_interval": 23, "max_grad_norm": 1.0}


class Contract(TrainerContract):
    python = PYTHON


class TestPPO(Contract):
    trainer, env, steps = "sb3:PPO", "gym:CartPole-v1", 64
    config = SMALL | {"n_envs": 2, "n_steps": 16, "batch_size": 16, "learning_rate": 0.01, "normalize": True}
    config |= {"n_epochs": 4, "clip_range_vf": 0.2}
    values = {"clip_range": 0.01, "clip_range_vf": 0.001, "max_grad_norm": 0.05}  # noqa: RUF012


@pytest.mark.slow
class TestPPOContinuous(Contract):
    trainer, env, steps = "sb3:PPO", "gym:Pendulum-v1", 128
    config = SMALL | {"n_steps": 64, "batch_size": 16, "learning_rate": 0.01, "use_sde": True, "target_kl": 0.5}
    values = {"clip_range": 0.01, "target_kl": 1e-5, "max_grad_norm": 0.05}  # noqa: RUF012


@pytest.mark.slow
class TestA2C(Contract):
    trainer, env, steps = "sb3:A2C", "gym:Pendulum-v1", 60
    config = SMALL | {"n_envs": 3, "gae_lambda": 0.9, "normalize": {"norm_reward": False}}


class TestSAC(Contract):
    """With returns of three steps, and a temperature that is given."""

    trainer, env, steps = "sb3:SAC", "gym:Pendulum-v1", 60
    config = REPLAY | {"n_steps": 3, "ent_coef": 0.1, "normalize": True}


@pytest.mark.slow
class TestSACThatLearnsItsTemperature(Contract):
    trainer, env, steps = "sb3:SAC", "gym:Pendulum-v1", 60
    config = REPLAY | {"target_entropy": -1.0, "noise_type": "ornstein-uhlenbeck", "noise_std": 0.3}


@pytest.mark.slow
class TestTD3(Contract):
    trainer, env, steps = "sb3:TD3", "gym:Pendulum-v1", 60
    config = REPLAY | {"n_envs": 2, "noise_type": "normal", "policy_delay": 3}


class TestDQN(Contract):
    trainer, env, steps = "sb3:DQN", "gym:CartPole-v1", 60
    config = EPSILON
    values = {"exploration_final_eps": 1.0, "max_grad_norm": 0.001}  # noqa: RUF012


@pytest.mark.slow
class TestTQC(Contract):
    trainer, env, steps = "sb3:TQC", "gym:Pendulum-v1", 60
    config = REPLAY | {"policy_kwargs": QUANTILES}


@pytest.mark.slow
class TestQRDQN(Contract):
    trainer, env, steps = "sb3:QRDQN", "gym:CartPole-v1", 60
    config = EPSILON | {"policy_kwargs": QUANTILES}
    values = {"exploration_final_eps": 1.0, "max_grad_norm": 0.001}  # noqa: RUF012


@pytest.mark.slow
class TestRecurrentPPO(Contract):
    """Its recurrent state begins anew with every episode, in evaluations too."""

    trainer, env, steps = "sb3:RecurrentPPO", "gym:CartPole-v1", 64
    config = SMALL | {"policy_kwargs": {"net_arch": [8], "lstm_hidden_size": 8}}
    config |= {"n_envs": 2, "n_steps": 16, "batch_size": 16, "learning_rate": 0.01, "n_epochs": 4, "normalize": True}
    values = {"clip_range": 0.01, "max_grad_norm": 0.05}  # noqa: RUF012


@pytest.mark.slow
class TestMaskablePPO(Contract):
    """With masks in training and in evaluations: an illegal action is an error of the environment."""

    trainer, env, steps = "sb3:MaskablePPO", "support.masked:Masked", 64
    config = SMALL | {"n_envs": 2, "n_steps": 16, "batch_size": 16, "learning_rate": 0.01, "n_epochs": 4}
    values = {"clip_range": 0.01, "max_grad_norm": 0.05}  # noqa: RUF012


# ------------------------------------------------------------------------------------ beyond the kit


@pytest.fixture
def start(process_of):
    """Processes of an SB3 trainer."""

    def start(algorithm, env="gym:CartPole-v1", **config):
        return process_of(PYTHON, Recipe(f"sb3:{algorithm}", env, config=SMALL | config))

    return start


BARE = """
import sys, gymnasium, numpy as np, stable_baselines3 as sb3
from stable_baselines3.common.vec_env import DummyVecEnv, VecNormalize
env = VecNormalize(DummyVecEnv([lambda: gymnasium.make("CartPole-v1")] * 2), gamma=0.95)
model = sb3.PPO("MlpPolicy", env, n_steps=32, gamma=0.95, seed=1, policy_kwargs={"net_arch": [16]}, device="cpu")
model.set_random_seed(2)
model.set_logger(sb3.common.logger.Logger(None, []))
model.learn(128, log_interval=None)
np.savez(sys.argv[1], mean=env.obs_rms.mean, **{k: x.numpy() for k, x in model.policy.state_dict().items()})
"""


def test_it_trains_as_sb3_does(start, tmp_path):
    """The first interval, against a bare model with the same seeds."""
    subprocess.run([PYTHON, "-c", BARE, str(tmp_path / "bare.npz")], check=True, env=os.environ | limited(1))
    trained = member(start("PPO", n_envs=2, n_steps=32, normalize=True), gamma=0.95)
    assert trained.train(2, 128).report.steps == 128
    bare = dict(np.load(tmp_path / "bare.npz"))
    assert trained.state.learned["normalize/obs/mean"].tobytes() == bare.pop("mean").tobytes()
    assert {f"policy/{name}" for name in bare} == {name for name in trained.state.learned if name.startswith("policy/")}
    for name, x in bare.items():
        assert trained.state.learned[f"policy/{name}"].tobytes() == x.tobytes(), name


def test_returns_are_raw(start):
    """A step of CartPole is worth 1; normalised rewards are not integers."""
    trained = member(start("PPO", n_envs=2, n_steps=64, normalize=True))
    result = trained.train(2, 256)
    returns = [*result.report.returns, *trained.evaluate([1, 2, 2, *range(17)])]
    assert len(result.report.returns) > 3
    assert all(x == int(x) and x >= 8 for x in returns)
    assert sum(result.report.returns) <= 256
    assert trained.evaluation_steps == sum(returns[-20:])
    assert returns[-19] == returns[-18] == returns[-15]  # the same seed, in another batch of episodes too


def test_it_leaves_no_folders(process_of, tmp_path):
    """SB3's default logger makes one for every call of `learn`."""
    (tmp_path / "temporary").mkdir()
    recipe = Recipe("sb3:PPO", "gym:CartPole-v1", config=SMALL | {"n_steps": 32})
    trained = member(process_of(PYTHON, recipe, TMPDIR=str(tmp_path / "temporary")))
    for seed in range(2):
        trained.train(seed, 32)
    assert trained.state.learned["num_timesteps"] == 64
    made = {path.name.split("_")[0] for path in (tmp_path / "temporary").iterdir()}
    assert made <= {"torchinductor"}, "PyTorch's own cache at most"


def test_episodes_that_do_not_end_are_measured_for_so_long(process_of, tmp_path):
    short = "from shoal_trainers import sb3\nsb3.LONGEST = 20\nPPO = sb3.trainer('PPO')\n"
    (tmp_path / "short.py").write_text(short)
    recipe = Recipe("short:PPO", "gym:Pendulum-v1", {"max_episode_steps": -1}, SMALL, [str(tmp_path)])
    trained = member(process_of(PYTHON, recipe))
    assert np.isfinite(trained.evaluate([1, 2])).all() and trained.evaluation_steps == 40


def test_the_file_that_it_has_written(start, tmp_path):
    """SB3 completes a name without an ending."""
    trained = member(start("PPO", normalize=True))
    for name, whole in (("a", "a.zip"), ("b.zip", "b.zip"), ("c.model", "c.model")):
        written = trained.export(tmp_path / name)
        statistics = tmp_path / f"{whole.removesuffix('.zip')}.vecnormalize.pkl"
        assert written == [str(tmp_path / whole), str(statistics)]
        assert (tmp_path / whole).is_file() and statistics.is_file()


@pytest.mark.slow
def test_what_it_tells_and_takes(start):
    described = start("PPO", ent_coef=0.01, n_epochs=5).description
    assert described["hyper"]["ent_coef"] == 0.01 and described["hyper"]["n_epochs"] == 5.0
    assert set(described["space"]) == {"learning_rate", "gamma", "gae_lambda", "clip_range", "ent_coef"}
    assert described["limits"]["gamma"] == [0, 1]
    assert described["spec"]["obs_shape"] == [4]
    assert described["spec"]["action"] == {"kind": "discrete", "n": 2, "start": 0}
    assert "target_kl" not in described["hyper"]  # there is no number to start from
    fixed = described["fixed"]
    assert (fixed["target_kl"], fixed["n_envs"]) == ("", "1") and "env" not in fixed
    assert not fixed.keys() & described["hyper"].keys()
    td3 = start("TD3", "Pendulum-v1", noise_type="normal", noise_std=0.3).description
    assert td3["hyper"]["noise_std"] == 0.3 and "noise_std" in td3["space"]
    assert td3["spec"]["action"] == {"kind": "continuous", "low": [-2.0], "high": [2.0]}
    assert "ent_coef" not in start("SAC", "Pendulum-v1").description["hyper"]  # it is learned


def test_exploration_falls_once_not_in_every_interval(start):
    trained = member(
        start("DQN", exploration_steps=200, learning_starts=10, buffer_size=500), exploration_final_eps=0.1
    )
    rates = [trained.train(seed, 80).report.metrics["rollout/exploration_rate"] for seed in range(4)]
    np.testing.assert_allclose(rates, [1 - 0.9 * 0.4, 1 - 0.9 * 0.8, 0.1, 0.1])


def test_returns_of_several_steps_end_where_an_interval_does(start):
    """The last step of an interval is followed in the replay buffer by the first one of another episode."""
    trained = member(start("DQN", n_steps=3, learning_starts=10, buffer_size=500))
    trained.train(0, 41)
    made = int(trained.state.learned["num_timesteps"])
    before = trained.state.replay_buffer["timeouts"][:, 0]
    trained.train(1, 40)
    after = trained.state.replay_buffer["timeouts"][:made, 0]
    np.testing.assert_array_equal(np.flatnonzero(after != before), [made - 1])


@pytest.mark.slow
def test_divergence_is_a_result(start):
    trained = member(start("PPO", n_steps=64), learning_rate=1e30)
    result = trained.train(2, 128)
    assert not result.finite and np.isnan(trained.evaluate([1])).all()


@pytest.mark.slow
def test_a_diverged_member_learns_on_with_what_it_copies(start):
    """Transitions that it stored while it diverged are gone from its replay buffer."""
    process = start("TD3", "gym:Pendulum-v1", learning_starts=10, batch_size=8)
    sound, lost = member(process), member(process, learning_rate=1e30)
    sound.train(2, 200)
    assert not lost.train(2, 200).finite
    lost.state = lost.state._replace(learned=sound.state.learned)
    lost.hyper = sound.hyper
    assert lost.train(3, 200).finite and np.isfinite(lost.evaluate([1])).all()


@pytest.mark.slow
def test_networks_by_name(start):
    kwargs = {"net_arch": {"pi": [8], "vf": [12]}, "activation_fn": "nn.ReLU", "optimizer_class": "SGD"}
    trained = member(start("PPO", n_steps=32, policy_kwargs=kwargs))
    trained.train(2, 32)
    assert trained.state.learned["policy/mlp_extractor.value_net.0.weight"].shape == (12, 4)
    assert not any(name.startswith("policy.optimizer/") for name in trained.state.learned)  # SGD has no moments


def test_an_environment_that_is_not_registered(start):
    """A class by its place: the same as the registered one, whose time limit no episode reaches here."""
    own = "gymnasium.envs.classic_control.cartpole:CartPoleEnv"
    returns = []
    for env in (own, "gym:CartPole-v1"):
        trained = member(start("PPO", env, n_steps=32))
        trained.train(2, 64)
        returns.append(trained.evaluate([1, 2, 3]))
    np.testing.assert_array_equal(*returns)
    assert returns[0].max() < 500


COUNTING = """
import gymnasium, numpy as np

class Counting(gymnasium.Env):
    observation_space = gymnasium.spaces.Box(0, 5, (1,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def __init__(self):
        self.x = np.zeros(1, np.float32)

    def reset(self, *, seed=None, options=None):
        self.x[:] = 0
        return self.x, {}

    def step(self, action):
        self.x += 1
        return self.x, 0.0, False, bool(self.x[0] == 5), {}
"""


def test_the_last_observation_of_an_episode_stays_as_it_is(process_of, tmp_path):
    """Of an environment that changes its observation in place, and is truncated after five steps."""
    (tmp_path / "counting.py").write_text(COUNTING)
    recipe = Recipe("sb3:DQN", "counting:Counting", config=SMALL | {"buffer_size": 20}, path=[str(tmp_path)])
    trained = member(process_of(PYTHON, recipe))
    trained.train(1, 12)
    np.testing.assert_array_equal(
        trained.state.replay_buffer["next_observations"].ravel()[:12], [1, 2, 3, 4, 5] * 2 + [1, 2]
    )


BAD = [
    ("PPP", "CartPole-v1", {}, "agent: 'PPP' does not exist; did you mean PPO?"),
    ("PPO", "CartPole-v1", {"gama": 0.9}, "config: 'gama' does not exist; did you mean gamma?"),
    ("PPO", "CartPole-v1", {"learning_rate": "lin_0.001"}, "config.learning_rate: must be a number: schedules"),
    ("DQN", "CartPole-v1", {"exploration_fraction": 0.2}, "config: exploration_fraction cannot be given: it would"),
    ("PPO", "CartPole-v1", {"noise_type": "normal"}, "config: 'noise_type' does not exist"),
    ("PPO", "CartPol-v1", {}, "env: gym:CartPol-v1 cannot be made: "),
    ("SAC", "CartPole-v1", {}, "config: SAC does not take it: The algorithm only supports"),
    ("PPO", "CartPole-v1", {"policy": "MlpPolic"}, "config: Policy MlpPolic unknown"),
    ("PPO", "CartPole-v1", {"policy_kwargs": {"activation_fn": "ReLUU"}}, "config: PPO does not take it: module"),
    ("HER", "CartPole-v1", {}, "agent: HER cannot be a member: hindsight experience replay is a buffer"),
    ("HerReplayBuffer", "CartPole-v1", {}, "agent: HerReplayBuffer cannot be a member: hindsight experience"),
    ("MaskablePPO", "CartPole-v1", {}, "env: gym:CartPole-v1 has no action masks: no method action_masks, and no"),
    ("PPO", "CartPole-v1", {"normalize": {"gamma": 0.9}}, "config: PPO does not take it: "),
]


@pytest.mark.parametrize(
    "algorithm, env, config, message",
    [pytest.param(*row, marks=pytest.mark.slow if i > 1 else ()) for i, row in enumerate(BAD)],
)
def test_bad_input_gets_one_line(start, algorithm, env, config, message):
    with pytest.raises(BadField) as caught:
        member(start(algorithm, f"gym:{env}", **config)).train(1, 1)
    assert str(caught.value).startswith(message) and "\n" not in str(caught.value)


@pytest.mark.slow
def test_an_environment_of_several_agents(process_of):
    with pytest.raises(BadField) as caught:
        member(process_of(PYTHON, Recipe("sb3:PPO", "support.masked:Several", path=own_folders()))).train(1, 1)
    assert str(caught.value).startswith("env: support.masked:Several cannot be made: it has several agents")


@pytest.mark.slow
def test_an_interpreter_without_it(tmp_path):
    """One that has NumPy but not SB3: none of its own packages, and those that are left of this one."""
    hide = tmp_path / "stable_baselines3.py"
    hide.write_text("raise ModuleNotFoundError(\"No module named 'stable_baselines3'\", name='stable_baselines3')\n")
    process = TrainerProcess(PYTHON, Recipe("sb3:PPO", "gym:CartPole-v1", path=[str(tmp_path)]), tmp_path / "log")
    with pytest.raises(BadField, match=f"python = {PYTHON}: lacks a package: No module named 'stable_baselines3'"):
        process.description  # noqa: B018
    process.kill()
    process.close()


@pytest.mark.parametrize(
    "where", ["info", *(pytest.param(x, marks=pytest.mark.slow) for x in ("observation", "method"))]
)
def test_masks_in_a_run(where, tmp_path):
    """Wherever the environment has them, no member makes an illegal choice, which would be an error."""
    config = (
        SMALL | {"n_steps": 16, "batch_size": 16} | ({"policy": "MultiInputPolicy"} if where == "observation" else {})
    )
    settings = {"env": "support.masked:Masked", "env_options": {"where": where}, "agent": "sb3:MaskablePPO"}
    settings |= {"python": PYTHON, "population": 2, "generations": 1, "interval": 64, "final_episodes": 4}
    result = train(Experiment(**settings, config=config, run_dir=str(tmp_path / "r")))
    assert result.summary["champion"]["evaluation"]["episodes"] == 4


DISTRIBUTION = """
import json, sys, torch
from sb3_contrib.common.maskable.distributions import MaskableCategoricalDistribution, MaskableMultiCategoricalDistribution
sizes, logits, masks, actions = json.loads(sys.argv[1])
kind = MaskableMultiCategoricalDistribution(sizes) if len(sizes) > 1 else MaskableCategoricalDistribution(sizes[0])
distribution = kind.proba_distribution(torch.tensor(logits))
distribution.apply_masking(torch.tensor(masks).bool().numpy())
likely = [distribution.log_prob(torch.tensor(action)).exp().tolist() for action in actions]
print(json.dumps([likely, distribution.entropy().tolist(), distribution.mode().tolist()]))
"""


@pytest.mark.parametrize("space", [Discrete(4), MultiDiscrete((3, 2))], ids=["discrete", "multi-discrete"])
def test_shoals_own_masks_are_those_of_sb3_contrib(space):
    """Probabilities of all actions, entropies and the greedy action, of eight rows of logits and masks."""
    random, sizes = np.random.default_rng(0), [*getattr(space, "nvec", [getattr(space, "n", 0)])]
    logits = random.normal(size=(8, sum(sizes))).astype(np.float32)
    masks = random.integers(0, 2, (8, sum(sizes)))
    for start, size in zip(np.cumsum([0, *sizes]), sizes, strict=False):
        masks[range(8), start + random.integers(0, size, 8)] = 1  # something is legal
    every = list(itertools.product(*map(range, sizes)))
    actions = [[action if len(sizes) > 1 else action[0]] * 8 for action in every]
    given = json.dumps([sizes, logits.tolist(), masks.tolist(), actions])
    done = subprocess.run(
        [PYTHON, "-c", DISTRIBUTION, given], capture_output=True, text=True, env=os.environ | limited(1)
    )
    assert done.returncode == 0, done.stderr
    likely, entropy, mode = json.loads(done.stdout)
    spec = Spec({"action_mask": (sum(sizes),)}, "float32", space)
    own = choice(space, ActionMask(spec).apply({"action_mask": masks}, logits))
    mine = [np.exp(own.log_prob(np.array(action))) for action in actions]
    np.testing.assert_allclose(mine, likely, atol=1e-6)
    np.testing.assert_allclose(own.entropy(), entropy, atol=1e-5)
    np.testing.assert_array_equal(own.mode(), mode)


SAVED = """
import sys, gymnasium, stable_baselines3 as sb3
from stable_baselines3.common.vec_env import DummyVecEnv, VecNormalize
small, folder = {"net_arch": [16]}, sys.argv[1]
def save(name, algorithm, env, normalize=False, policy_kwargs=small, **options):
    env = DummyVecEnv([lambda: gymnasium.make(env)])
    env = VecNormalize(env) if normalize else env
    model = getattr(sb3, algorithm)("MlpPolicy", env, policy_kwargs=dict(policy_kwargs), device="cpu", seed=1, **options)
    model.learn(64)
    model.save(f"{folder}/{name}.zip")
    if normalize:
        env.save(f"{folder}/{name}.vecnormalize.pkl")
save("ppo", "PPO", "CartPole-v1", n_steps=32)
save("normalized", "PPO", "CartPole-v1", normalize=True, n_steps=32)
save("a2c", "A2C", "CartPole-v1")
save("acrobot", "PPO", "Acrobot-v1", n_steps=32)
save("wide", "PPO", "CartPole-v1", n_steps=32, policy_kwargs={"net_arch": [32]})
save("sac", "SAC", "Pendulum-v1", learning_starts=8)
"""


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """Models of SB3, by name, as people have them."""
    folder = tmp_path_factory.mktemp("saved")
    subprocess.run([PYTHON, "-c", SAVED, folder], check=True, env=os.environ | limited(1))
    (folder / "text.zip").write_text("no zip")
    for name in ("armed", "text_beside"):
        shutil.copy(folder / "normalized.zip", folder / f"{name}.zip")
    (folder / "armed.vecnormalize.pkl").write_bytes(pickle.dumps(Armed(folder / "ran")))
    (folder / "text_beside.vecnormalize.pkl").write_text("no pickle")
    return folder


class Armed:
    """Pickled as a call that makes a folder; whoever unpickles it as Python does has run it."""

    def __init__(self, folder):
        self.folder = folder

    def __reduce__(self):
        return os.mkdir, (str(self.folder),)


@pytest.mark.slow
@pytest.mark.parametrize(
    "algorithm, env, config, name, steps",
    [
        ("PPO", "gym:CartPole-v1", {"n_steps": 64}, "ppo", 64),
        ("PPO", "gym:CartPole-v1", {"n_steps": 64, "normalize": True}, "normalized", 64),
        ("SAC", "gym:Pendulum-v1", {"learning_starts": 8, "batch_size": 8}, "sac", 16),
    ],
)
def test_a_model_of_sb3_goes_on(start, saved, algorithm, env, config, name, steps):
    """With weights, optimiser, counters and statistics; but with hyperparameters of its own."""
    process = start(algorithm, env, **config)
    state = member(process).load(saved / f"{name}.zip")
    assert state.learned["num_timesteps"] == 64
    assert any("optimizer" in part for part in state.learned)
    if name == "normalized":
        assert state.learned["normalize/obs/count"] > 60
    goes_on = member(process, uid=1, learning_rate=0.005)
    goes_on.state = state
    result = goes_on.train(2, steps)
    assert result.finite and goes_on.state.learned["num_timesteps"] == 64 + steps


@pytest.mark.slow
@pytest.mark.parametrize(
    "algorithm, config, name, message",
    [
        ("PPO", {}, "text", "text.zip is no model of Stable-Baselines3: File is not a zip file"),
        ("PPO", {}, "nowhere", "nowhere.zip is no model of Stable-Baselines3: "),
        ("PPO", {}, "a2c", "a2c.zip was not saved by PPO: it has no batch_size"),
        ("A2C", {}, "ppo", "ppo.zip was not saved by A2C: it has batch_size"),
        ("PPO", {}, "sac", "sac.zip was not saved by PPO: it has no clip_range"),
        ("PPO", {}, "acrobot", "acrobot.zip has another observation_space: shape is [6], here [4]"),
        ("PPO", {}, "wide", "wide.zip does not fit the networks of this PPO: Error(s) in loading state_dict for Actor"),
        (
            "A2C",
            {"use_rms_prop": False},
            "a2c",
            "a2c.zip does not fit the networks of this A2C: policy.optimizer is no",
        ),
        ("PPO", {"normalize": True}, "ppo", "ppo.vecnormalize.pkl, the statistics of the model, cannot be read"),
        (
            "PPO",
            {"normalize": True},
            "text_beside",
            "text_beside.vecnormalize.pkl, the statistics of the model, cannot be",
        ),
        ("PPO", {"normalize": True}, "armed", "armed.vecnormalize.pkl, the statistics of the model, cannot be read"),
        ("PPO", {}, "normalized", "normalized.vecnormalize.pkl; write normalize: true in config"),
        ("PPO", {"normalize": {"norm_obs": False}}, "normalized", "normalized.vecnormalize.pkl has statistics of "),
    ],
)
def test_a_model_that_does_not_fit_gets_one_line(start, saved, algorithm, config, name, message):
    with pytest.raises(BadField) as caught:
        member(start(algorithm, **config)).load(saved / f"{name}.zip")
    assert caught.value.field == "init_from" and message in str(caught.value) and "\n" not in str(caught.value)
    assert not (saved / "ran").exists()


LOADED = """
import sys
import numpy as np
from stable_baselines3 import PPO
from stable_baselines3.common.vec_env import DummyVecEnv, VecNormalize
import gymnasium
file, statistics, obs = sys.argv[1], sys.argv[2], np.load(sys.argv[3])
normalizer = VecNormalize.load(statistics, DummyVecEnv([lambda: gymnasium.make("CartPole-v1")]))
print(PPO.load(file).predict(normalizer.normalize_obs(obs), deterministic=True)[0].tolist())
"""


def test_a_champion_goes_back_to_sb3(tmp_path):
    """`PPO.load` gives a model that acts as the champion does."""
    run, config = tmp_path / "r", {"n_envs": 2, "n_steps": 32, "normalize": True}
    settings = {"env": "gym:CartPole-v1", "agent": "sb3:PPO", "python": PYTHON, "population": 2, "generations": 2}
    train(Experiment(**settings, interval=64, config=config, final_episodes=2, run_dir=str(run)))
    outcome = shoal("export", run, tmp_path / "model.zip", "--trust-code")
    assert outcome.code == 0, outcome.err
    obs = np.random.default_rng(0).normal(size=(32, 4)).astype(np.float32)
    np.save(tmp_path / "obs.npy", obs)
    files = [tmp_path / name for name in ("model.zip", "model.vecnormalize.pkl", "obs.npy")]
    done = subprocess.run([PYTHON, "-c", LOADED, *files], capture_output=True, text=True, env=os.environ | limited(1))
    assert done.returncode == 0, done.stderr
    expected = load_champion(run, trust_code=True).predict(obs)[0].tolist()
    assert json.loads(done.stdout) == expected and len(set(expected)) == 2
    second = tmp_path / "second"  # and from there into a population
    begun = Experiment(**settings | {"generations": 1}, interval=64, config=config, final_episodes=2)
    train(replace(begun, init_from=str(tmp_path / "model.zip"), run_dir=str(second)))
    steps = int(load_file(run / "champion" / "state.safetensors")["num_timesteps"])
    assert [x["num_timesteps"] for x in read_members(second).learned] == [steps + 64] * 2
