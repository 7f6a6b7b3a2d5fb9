"""The adapter for rl_games, held to the conformance kit and to rl_games itself."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import numpy as np
import pytest
import yaml
from support.trainees import member

from shoal.core.errors import BadField
from shoal.testing import TrainerContract
from shoal.trainers.process import Raised, Recipe, TrainerProcess, limited
from shoal.trainers.remote import RemoteTrainer

PYTHON = os.environ.get("SHOAL_TRAINERS_PYTHON", "")
pytestmark = pytest.mark.skipif(not PYTHON, reason="SHOAL_TRAINERS_PYTHON names no interpreter that has rl_games")

ROOT = Path(__file__).parents[2]
TASKS = ROOT / "tests" / "support" / "rl_games"


class Contract(TrainerContract):
    python = PYTHON


class TestDiscrete(Contract):
    """With a constant learning rate."""

    trainer, env, steps = f"rl_games:{TASKS}/cartpole.yaml", "gym:CartPole-v1", 64
    values = {"e_clip": 0.01, "grad_norm": 0.05}  # noqa: RUF012


@pytest.mark.slow
class TestContinuous(Contract):
    """With an adaptive learning rate, normalised observations and values."""

    trainer, env, steps = f"rl_games:{TASKS}/pendulum.yaml", "gym:Pendulum-v1", 64
    values = {"e_clip": 0.01, "grad_norm": 0.05}  # noqa: RUF012


@pytest.mark.slow
class TestOwnEnvironments(Contract):
    """Registered by a module, with a recurrent policy, a critic of its own, a rate that falls, and a curriculum."""

    trainer, env, steps, path = f"rl_games:{TASKS}/reach.yaml", "reach", 64, (str(TASKS),)
    config, seeded = {"imports": ["reach"]}, False
    values = {"e_clip": 0.001, "grad_norm": 0.05}  # noqa: RUF012


# ------------------------------------------------------------------------------------ beyond the kit


@pytest.fixture
def start(process_of, tmp_path):
    """Processes of a task's file, in which `change` has been made, nested as there."""

    def start(task, env, change=None, **config):
        params = yaml.safe_load((TASKS / f"{task}.yaml").read_text())["params"]
        for path, value in (change or {}).items():
            *above, last = path.split(".")
            place = params
            for part in above:
                place = place[part]
            if value is None:
                del place[last]
            else:
                place[last] = value
        file = tmp_path / f"{task}.yaml"
        file.write_text(yaml.safe_dump({"params": params}))
        recipe = Recipe(f"rl_games:{file}", env, config=config, path=[str(TASKS)])
        return process_of(PYTHON, recipe, 120.0)

    return start


BARE = """
import random, sys
import gymnasium, numpy as np, torch, yaml
from rl_games.common import env_configurations, vecenv
from rl_games.common.ivecenv import IVecEnv
from rl_games.torch_runner import Runner

class Two(IVecEnv):
    def __init__(self, name, num_actors, **options):
        self.envs = [gymnasium.make("Pendulum-v1") for _ in range(num_actors)]
    def get_env_info(self):
        return {"observation_space": self.envs[0].observation_space, "action_space": self.envs[0].action_space}
    def reset(self):
        return np.stack([env.reset(seed=2 + i)[0] for i, env in enumerate(self.envs)])
    def step(self, actions):
        obs, rewards, ends, cuts, _ = zip(*(env.step(a) for env, a in zip(self.envs, actions)))
        obs = [env.reset()[0] if end or cut else o for env, o, end, cut in zip(self.envs, obs, ends, cuts)]
        time_outs = np.array(cuts, np.float32)
        return np.stack(obs), np.array(rewards, np.float32), np.array(cuts) | np.array(ends), {"time_outs": time_outs}

vecenv.register("TWO", Two)
env_configurations.register("Pendulum-v1", {"vecenv_type": "TWO", "env_creator": None})

def seed(n):
    random.seed(n), np.random.seed(n), torch.manual_seed(n)

params = yaml.safe_load(open(sys.argv[1]))["params"]
params["config"] |= {"max_epochs": 8, "device": "cpu", "train_dir": sys.argv[2], "gamma": 0.9}
params |= {"seed": 0, "torch_threads": 0}
runner = Runner()
seed(1)
runner.load_config(params)
algo = runner.algo_factory.create(runner.algo_name, base_name="run", params=runner.params)
seed(2)
algo.train()
np.savez(sys.argv[2] + "/bare.npz", last_lr=algo.last_lr, **{k: x.numpy() for k, x in algo.model.state_dict().items()})
"""


def test_it_trains_as_rl_games_does(start, tmp_path):
    """The first interval, longer than an episode, against rl_games' own loop with the same seeds."""
    file = TASKS / "pendulum.yaml"
    subprocess.run([PYTHON, "-c", BARE, str(file), str(tmp_path)], check=True, env=os.environ | limited(1))
    trained = member(start("pendulum", "gym:Pendulum-v1"), gamma=0.9)
    assert trained.train(2, 8 * 64).report.steps == 8 * 64
    bare = dict(np.load(tmp_path / "bare.npz"))
    assert trained.state.learned["last_lr"] == bare.pop("last_lr") != 0.003
    assert {f"model/{name}" for name in bare} == {name for name in trained.state.learned if name.startswith("model/")}
    for name, x in bare.items():
        assert trained.state.learned[f"model/{name}"].tobytes() == x.tobytes(), name


def test_returns_are_raw(start):
    """A step of CartPole is worth 1; shaped rewards are a tenth of that."""
    trained = member(start("cartpole", "gym:CartPole-v1"))
    result = trained.train(2, 256)
    returns = [*result.report.returns, *trained.evaluate([1, 2, 2, 5, 1])]
    assert len(result.report.returns) > 3 and sum(result.report.returns) <= 256
    assert all(x == int(x) and x >= 8 for x in returns)
    assert trained.evaluation_steps == sum(returns[-5:])
    assert returns[-5] == returns[-1] and returns[-4] == returns[-3]  # the same seed, in another batch too


def test_half_done_episodes_are_dropped(start):
    """Nothing of them is in the returns of the next interval."""
    process = start("pendulum", "Pendulum-v1")
    goes_on, begins = member(process), RemoteTrainer(process, 1, process.description["hyper"], 1)
    goes_on.train(1, 128)
    begins.state = goes_on.state
    returns = goes_on.train(2, 448).report.returns  # an episode has 200 steps
    assert len(returns) == 2 and returns == begins.train(2, 448).report.returns


def test_an_adaptive_schedule_has_no_rate_to_set(start):
    described = start("pendulum", "gym:Pendulum-v1").description
    assert "kl_threshold" in described["space"] and "learning_rate" not in described["hyper"]
    assert described["spec"]["action"] == {"kind": "continuous", "low": [-2.0], "high": [2.0]}
    assert described["spec"]["obs_shape"] == [3] and described["act"]


@pytest.mark.slow
def test_what_a_constant_schedule_tells(start):
    described = start("cartpole", "gym:CartPole-v1").description
    assert described["hyper"]["learning_rate"] == 0.01 and "kl_threshold" not in described["hyper"]
    assert described["limits"]["gamma"] == [0, 1]
    assert described["spec"]["action"] == {"kind": "discrete", "n": 2, "start": 0}
    trained = member(start("cartpole", "gym:CartPole-v1"))
    assert trained.act(np.zeros((5, 4), np.float32)).shape == (5,)


@pytest.mark.slow
@pytest.mark.parametrize(
    "task, env, key, low, high",
    [("reach", "reach", "episode.Curriculum/level", 1.01, 3.0), ("cartpole", "CartPole-v1", "time_outs", 0.0, 0.0)],
)
def test_an_objective_is_used_instead_of_the_return(start, task, env, key, low, high):
    imports = ["reach"] if task == "reach" else []
    trained = member(start(task, env, objective=key, imports=imports))
    returns = [*trained.train(2, 256).report.returns, *trained.evaluate([1, 2, 3])]
    assert len(returns) > 6 and all(low <= x <= high for x in returns)
    with pytest.raises(Raised, match="there is no missing of the objective missing"):
        member(start(task, env, objective="missing", imports=imports)).train(2, 256)


@pytest.mark.slow
def test_params_win_over_the_file(start):
    process = start("cartpole", "CartPole-v1", params={"config": {"gamma": 0.8}, "network": {"mlp": {"units": [5]}}})
    assert process.description["hyper"]["gamma"] == 0.8 and process.description["hyper"]["tau"] == 0.9
    trained = member(process)
    trained.train(2, 32)
    assert trained.state.learned["model/a2c_network.actor_mlp.0.weight"].shape == (5, 4)


@pytest.mark.slow
def test_divergence_is_a_result(start):
    trained = member(start("cartpole", "CartPole-v1"), learning_rate=1e30)
    result = trained.train(2, 256)
    assert not result.finite and np.isnan(trained.evaluate([1])).all()


# As `mixed_precision` has it on a GPU; a scale of the CPU, which grows with every second update.
SCALED = """
import torch
from shoal_trainers import rl_games

class Scaled(rl_games.RlGames):
    def __init__(self, env, env_options, task, **config):
        super().__init__(rl_games.trainer(task).args[0], env, env_options, **config)

    def make(self, hyper, seed):
        super().make(hyper, seed)
        self.algo.scaler = torch.amp.GradScaler("cpu", init_scale=4.0, growth_interval=2)
"""


@pytest.mark.slow
def test_the_scale_of_gradients_is_part_of_the_state(process_of, tmp_path):
    (tmp_path / "scaled.py").write_text(SCALED)
    config = {"task": f"{TASKS}/cartpole.yaml"}
    process = process_of(PYTHON, Recipe("scaled:Scaled", "CartPole-v1", {}, config, [str(tmp_path)]), 120.0)
    goes_on, copies = member(process), member(process, uid=1)
    goes_on.train(1, 64)
    assert goes_on.state.learned["scaler/scale"] > 4.0
    copies.state = goes_on.state
    for trained in (goes_on, copies):
        trained.train(2, 64)
    assert goes_on.state.learned.keys() == copies.state.learned.keys()
    for name, x in goes_on.state.learned.items():
        assert x.tobytes() == copies.state.learned[name].tobytes(), name


# What experiments/isaac/isaac_task.py uses of Isaac Lab, around the environments of reach.py.
ISAAC = """
import sys, types
from unittest import mock
import gymnasium, reach

class Wrapper(reach.ReachVecEnv):
    num_envs = 4
    def __init__(self, env, device, clip_obs, clip_actions, obs_groups=None, concate_obs_group=True):
        assert (device, clip_obs) == ("cuda:0", 5.0)
        assert (obs_groups, concate_obs_group) in ((None, True), ({"obs": ["policy"]}, False))
        assert (obs_groups is None) == (env.length != 3)
        super().__init__("reach", -1, length=env.length)

def parse_env_cfg(task, device):
    assert task == "Isaac-Reach-v0"
    return types.SimpleNamespace(scene=types.SimpleNamespace(length=10))

gymnasium.make = lambda task, cfg: types.SimpleNamespace(length=cfg.scene.length)
sys.modules["isaaclab"] = sys.modules["isaaclab.app"] = types.SimpleNamespace(AppLauncher=mock.Mock())
sys.modules["isaaclab_rl"] = sys.modules["isaaclab_rl.rl_games"] = types.SimpleNamespace(RlGamesVecEnvWrapper=Wrapper)
sys.modules["isaaclab_tasks"] = types.ModuleType("isaaclab_tasks")
sys.modules["isaaclab_tasks.utils"] = types.SimpleNamespace(parse_env_cfg=parse_env_cfg)
"""


@pytest.mark.slow
@pytest.mark.parametrize("told", [1, 16])
def test_environments_say_themselves_how_many_they_are(start, told):
    """As Isaac Lab has it; its files for forge, factory, automate and drones tell another number."""
    change = {"config.num_actors": told}
    result = member(start("reach", "reach", change, imports=["reach"])).train(2, 64)
    assert result.report.steps == 64 and result.finite  # eight steps of four


@pytest.mark.slow
@pytest.mark.parametrize("length, ended", [(3, True), (80, False)])
def test_tasks_as_isaac_lab_registers_them(tmp_path, length, ended):
    """With the module of experiments/isaac and a stand-in for Isaac Lab."""
    (tmp_path / "stand_in.py").write_text(ISAAC)
    task = (TASKS / "reach.yaml").read_text().replace("env_name: reach", "env_name: rlgpu")
    (tmp_path / "task.yaml").write_text(task)
    options = {"task": "Isaac-Reach-v0", "clip_obs": 5.0, "scene.length": length}
    if length == 3:
        options |= {"obs_groups": {"obs": ["policy"]}, "concate_obs_groups": False}
    config = {"imports": ["stand_in", "isaac_task"]}
    folders = [str(tmp_path), str(TASKS), str(ROOT / "experiments" / "isaac")]
    recipe = Recipe(f"rl_games:{tmp_path}/task.yaml", "rlgpu", options, config, folders)
    process = TrainerProcess(PYTHON, recipe, tmp_path / "log", limited(1), 120.0)
    try:
        report = member(process).train(2, 128).report
    finally:
        process.kill()
        process.close()
    assert report.steps == 128 and bool(report.returns) == ended  # 32 steps in each of four environments


BAD = [
    ({}, "gym:Acrobot-v1", {}, "env: the task's file has env_name CartPole-v1; write env: CartPole-v1"),
    (
        {"algo.name": "sac"},
        "CartPole-v1",
        {},
        "agent: its params.algo.name: sac is not rl_games' PPO; choose from a2c_",
    ),
    ({"config.multi_gpu": True}, "CartPole-v1", {}, "agent: its params.config.multi_gpu: cannot be given: a member is"),
    (
        {"config.gamma": "${..x}"},
        "CartPole-v1",
        {},
        "agent: its params.config.gamma: only Hydra resolves ${..x}; write",
    ),
    ({"config.device": "cuda:0"}, "CartPole-v1", {}, "processes.gpus: the task's device is cuda:0, and its process"),
    ({"config.gamma": "high"}, "CartPole-v1", {}, "agent: a hyperparameter in its file is no number: could not"),
    ({"config.env_name": "CartPol-v1"}, "CartPol-v1", {}, "env: CartPol-v1 cannot be made: "),
    ({"config.minibatch_size": 5}, "CartPole-v1", {}, "agent: rl_games does not take its file: 'batch_size' (32)"),
    ({"config.clip_value": None}, "CartPole-v1", {}, "agent: rl_games does not take its file: 'clip_value' is missing"),
    ({}, "CartPole-v1", {"objectives": "x"}, "config: rl_games:"),
    ({}, "CartPole-v1", {"imports": ["nowhere"]}, "python = "),
]


@pytest.mark.parametrize(
    "change, env, config, message",
    [pytest.param(*row, marks=pytest.mark.slow if i > 1 else ()) for i, row in enumerate(BAD)],
)
def test_bad_input_gets_one_line(start, change, env, config, message):
    with pytest.raises(BadField) as caught:
        member(start("cartpole", env, change, **config)).train(1, 1)
    assert str(caught.value).startswith(message) and "\n" not in str(caught.value)


@pytest.mark.slow
@pytest.mark.parametrize(
    "text, message",
    [
        (None, "No such file"),
        ("- 1", "it has no `params`"),
        ("a: [", "is no YAML"),
        ("params: {}\ndefaults: [AntPPO]", "its defaults: only Hydra reads the files"),
    ],
)
def test_a_file_that_is_no_task(tmp_path, text, message):
    file = tmp_path / "task.yaml"
    if text is not None:
        file.write_text(text)
    process = TrainerProcess(PYTHON, Recipe(f"rl_games:{file}", "CartPole-v1"), tmp_path / "log", limited(1))
    with pytest.raises(BadField, match=f"^agent: .*{message}"):
        process.description  # noqa: B018
    process.kill()
    process.close()
