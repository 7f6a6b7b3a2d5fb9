"""Champions as files: another program computes the same actions from them."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import onnx
import pytest
import yaml
from support.cases import others_slow
from support.champions import champion_of, made, of_ppo, session_of
from support.messages import Said
from support.runs import shoal, tiny
from support.tiny import kinds

from shoal.agents.ppo import ppo
from shoal.core.errors import BadInput
from shoal.core.extras import install
from shoal.core.spec import ActionSpace, Box, Discrete, Spec
from shoal.export import onnx_file
from shoal.export.onnx_file import write_onnx
from shoal.export.program import program_of, write_npz
from shoal.run.champion import Champion, load_champion
from shoal.run.train import train

IMAGE = (36, 40, 3)
DTYPES = {"tensor(float)": np.float32, "tensor(bool)": np.bool_}


def same_actions(file: Path, champion: Champion, tolerance: float = 1e-5) -> None:
    """Assert that a file acts as a champion does, in episodes of one and of seven environments."""
    session, random = session_of(file), np.random.default_rng(5)
    assert champion.spec is not None
    outputs = [x.name for x in session.get_outputs()]
    seen = set()
    for batch in (1, 7):
        state = None
        memory = {x.name: np.zeros((batch, *x.shape[1:]), DTYPES[x.type]) for x in session.get_inputs()[1:]}
        for _ in range(3):
            shape, dtype = (batch, *champion.spec.obs_shape), champion.spec.obs_dtype
            obs = random.integers(0, 256, shape) if dtype == "uint8" else random.normal(size=shape)
            obs = obs.astype(dtype)
            found = dict(zip(outputs, session.run(outputs, {"obs": obs} | memory), strict=True))
            memory, action = {name: found[f"next_{name}"] for name in memory}, found["action"]
            expected, state = champion.predict(obs, state)
            assert action.dtype == expected.dtype
            np.testing.assert_allclose(action, expected, rtol=tolerance, atol=tolerance)
            seen |= set(np.round(found.get("logits", action), 4).reshape(-1).tolist())
    assert len(seen) > 9, "whatever is seen, the action is the same"


CASES: dict[str, dict[str, Any]] = {
    f"{name}-{actions}": {"name": name, "actions": actions} for name, actions in kinds()
}
CASES |= {
    "es-discrete": {"name": "policy", "actions": "discrete"},
    "lstm-continuous": {"name": "policy", "actions": "continuous", "lstm_hidden_size": 5},
    "ppo with lstm": {"name": "ppo", "actions": "continuous", "lstm_hidden_size": 5},
    "frames": {"name": "ppo", "actions": "discrete", "frame_stack": 3},
    "minatar": {"name": "ppo", "actions": "discrete", "obs": (4, 5, 2), "network": "minatar"},
    "nature_cnn": {"name": "dqn", "actions": "discrete", "obs": IMAGE, "dtype": "uint8", "network": "nature_cnn"},
    "channels first": {"name": "policy", "actions": "discrete", "obs": (2, 36, 36), "network": "nature_cnn"},
}
QUICK = ("ppo-discrete", "ppo-continuous", "dqn-discrete", "es-discrete", "lstm-continuous", "frames", "nature_cnn")
CASES |= {
    f"{name} {network}": {"name": name, "actions": "discrete", "obs": IMAGE, "dtype": "uint8", "network": network}
    for name, network in (("ppo", "nature_cnn"), ("ppo", "impala"), ("dqn", "impala"), ("policy", "impala"))
}
CASES |= {"lstm-multi_discrete": {"name": "policy", "actions": "multi_discrete", "lstm_hidden_size": 5}}
CASES |= {x: {"name": "ppo", "actions": "continuous", "activation": x} for x in ("relu", "elu", "swish", "gelu")}


@pytest.mark.parametrize("case", others_slow(CASES, *QUICK))
def test_a_file_acts_as_its_champion(tmp_path: Path, case: str) -> None:
    champion, file = made(**CASES[case]), tmp_path / "policy.onnx"
    assert write_onnx(champion, file) <= 1e-5
    same_actions(file, champion)
    model = onnx.load(file)
    assert [(x.domain, x.version) for x in model.opset_import] == [("", 17)]
    assert {x.type.tensor_type.shape.dim[0].dim_param for x in [*model.graph.input, *model.graph.output]} == {"batch"}


@pytest.mark.parametrize(
    "action",
    [
        Box((-100.0, 0.0, -np.inf), (50.0, np.inf, np.inf)),
        Box((-1.0, 0.0), (1.0, 1.0), native="float64"),
        Box((0.0,), (255.0,), native="uint8"),
        Discrete(4, start=-2),
    ],
    ids=lambda action: f"{type(action).__name__}-{action.native}",
)
def test_actions_are_those_of_the_environment(tmp_path: Path, action: ActionSpace) -> None:
    champion, file = of_ppo(action), tmp_path / "policy.onnx"
    write_onnx(champion, file)
    same_actions(file, champion)


def test_actions_are_held_to_their_range(tmp_path: Path) -> None:
    """Rounding of a wide range is no difference, and in a narrow one another policy is."""
    low, high = (-1e5,) * 40 + (-1e30,) * 40 + (1e6,) + (0.0,) * 2, (1e5,) * 40 + (1e30,) * 40 + (np.inf, 1e5, 0.0)
    assert write_onnx(of_ppo(Box(low, high)), tmp_path / "wide.onnx") <= 1e-5
    champion, file = of_ppo(Box((0.0,), (1e-6,))), tmp_path / "narrow.onnx"
    write_onnx(champion, file)
    assert champion.spec is not None
    other = champion_of(ppo(champion.spec, layers=(8,), normalize_observations=False), champion.spec)
    assert onnx_file.compare(file.read_bytes(), program_of(champion), other) > 0.1


def by_hand(champion: Champion, arrays: Any, obs: np.ndarray) -> np.ndarray:
    """The mean of a policy of PPO's with one hidden layer, from its named arrays."""
    std = np.sqrt(arrays["observations.variance"] + 1e-8)
    x = np.clip((obs - arrays["observations.mean"]) / std, -10, 10)
    layer = "params.policy.params.MLP_0.Dense_{}.{}".format
    x = np.tanh(x @ arrays[layer(0, "kernel")] + arrays[layer(0, "bias")])
    return x @ arrays[layer(1, "kernel")] + arrays[layer(1, "bias")]


def test_against_the_same_by_hand(tmp_path: Path) -> None:
    """Normalised and clipped observations, tanh, and bounds from -3 to 1; from the arrays alone, too."""
    champion = of_ppo(Box((-3.0,), (1.0,)))
    write_onnx(champion, tmp_path / "policy.onnx")
    write_npz(champion, tmp_path / "policy.npz")
    with np.load(tmp_path / "policy.npz") as file:
        arrays = dict(file)
    obs = np.random.default_rng(2).normal(size=(9, 3)).astype(np.float32)
    expected = np.clip(2 * by_hand(champion, arrays, obs) - 1, -3, 1)
    (action,) = session_of(tmp_path / "policy.onnx").run(["action"], {"obs": obs})
    np.testing.assert_allclose(action, expected, rtol=1e-5, atol=1e-5)
    assert np.ptp(action) > 0.1
    assert not [name for name in arrays if "critic" in name or "optimizer" in name]  # what nobody acts with


def test_one_input_for_each_array_that_the_policy_sees(tmp_path: Path) -> None:
    """Of observations that are dictionaries; nothing is left of what only the critic saw."""
    shapes = {"state": (2,), "privileged_state": (3,), "bytes": (4,)}
    spec = Spec(shapes, dict.fromkeys(shapes, "float32") | {"bytes": "uint8"}, Box((-1.0,), (2.0,)))
    agent = ppo(spec, layers=(8,), normalize_observations=True, actor=["state", "bytes"])
    champion = champion_of(agent, spec)
    assert write_onnx(champion, tmp_path / "policy.onnx") <= 1e-5
    session, random = session_of(tmp_path / "policy.onnx"), np.random.default_rng(2)
    obs = {
        "bytes": random.integers(0, 256, (9, 4), np.uint8),
        "state": random.normal(size=(9, 2)).astype(np.float32),
    }
    (action,) = session.run(["action"], {f"obs.{key}": x for key, x in obs.items()})
    assert {x.name for x in session.get_inputs()} == {"obs.state", "obs.bytes"} and np.ptp(action) > 0.1
    np.testing.assert_allclose(action, champion.predict(obs)[0], rtol=1e-5, atol=1e-5)
    told = json.loads(session.get_modelmeta().custom_metadata_map["observation"])
    assert list(told) == ["state", "bytes"]  # in the order in which they stand before the first layer
    assert told["bytes"] == {"name": "obs.bytes", "shape": [4], "dtype": "uint8"}
    write_npz(champion, tmp_path / "policy.npz")
    with np.load(tmp_path / "policy.npz") as file:
        assert "observations.state.mean" in file and not [x for x in file if "privileged" in x or "critic" in x]


def test_an_lstm_asks_for_what_the_policy_remembers(tmp_path: Path) -> None:
    """And not for what the critic does, which sees something else."""
    spec = Spec({"state": (2,), "privileged_state": (3,)}, "float32", Box((-1.0,), (2.0,)))
    sees: dict[str, Any] = {
        "share_features_extractor": False,
        "actor": ["state"],
        "critic": ["state", "privileged_state"],
    }
    champion, file = champion_of(ppo(spec, layers=(8,), lstm_hidden_size=5, **sees), spec), tmp_path / "policy.onnx"
    assert write_onnx(champion, file) <= 1e-5
    session, random = session_of(file), np.random.default_rng(2)
    carry = {"state.0.0", "state.0.1"}
    assert {x.name for x in session.get_inputs()} == {"obs.state"} | carry
    assert {x.name for x in session.get_outputs()} == {"action"} | {f"next_{name}" for name in carry}
    memory = {name: np.zeros((3, 5), np.float32) for name in carry}
    state = None
    for _ in range(3):
        obs = {"state": random.normal(size=(3, 2)).astype(np.float32)}
        told = session.run(None, {"obs.state": obs["state"]} | memory)
        found = dict(zip((x.name for x in session.get_outputs()), told, strict=True))
        action, state = champion.predict(obs, state)
        np.testing.assert_allclose(found["action"], action, rtol=1e-5, atol=1e-5)
        memory = {name: found[f"next_{name}"] for name in carry}
    assert all(x.any() for x in memory.values())


def test_logits_say_what_a_choice_is_the_largest_of(tmp_path: Path) -> None:
    champion = made("ppo", "multi_discrete")
    write_onnx(champion, tmp_path / "policy.onnx")
    assert champion.spec is not None
    obs = np.random.default_rng(2).normal(size=(9, 3)).astype(np.float32)
    action, logits = session_of(tmp_path / "policy.onnx").run(["action", "logits"], {"obs": obs})
    parts = np.split(logits, np.cumsum(champion.spec.action.nvec)[:-1], -1)  # type: ignore[union-attr]
    np.testing.assert_array_equal(action, np.stack([part.argmax(-1) for part in parts], -1))
    for part in parts:  # logarithms of probabilities
        np.testing.assert_allclose(np.exp(part).sum(-1), 1, rtol=1e-5)


def test_a_file_that_acts_otherwise_is_not_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    honest = onnx_file.model_of

    def wrong(*arguments: Any) -> onnx.ModelProto:
        model = honest(*arguments)
        bias = next(x for x in model.graph.initializer if x.name.endswith("Dense_1.bias"))
        bias.CopyFrom(onnx.numpy_helper.from_array(onnx.numpy_helper.to_array(bias) + np.float32(1e-4), bias.name))
        return model

    monkeypatch.setattr(onnx_file, "model_of", wrong)
    with pytest.raises(BadInput, match="actions in onnxruntime differ by"):
        write_onnx(made("td3", "continuous"), tmp_path / "policy.onnx")
    assert not list(tmp_path.iterdir())


# -------------------------------------------------------------------------------- networks of one's own


class Own(nn.Module):
    """Layers that Shoal has not."""

    @nn.compact
    def __call__(self, obs: jax.Array) -> jax.Array:
        x = nn.LayerNorm()(nn.Conv(4, (3, 3), (2, 2), "SAME")(obs))
        x = nn.silu(nn.DenseGeneral(5, axis=(-2, -1))(x)) * obs[..., :3, :1, 0]
        return jnp.einsum("...hc,...hd->...cd", x, x).reshape(*x.shape[:-2], -1)


class Sorting(nn.Module):
    """A sort, which no layer makes."""

    def __call__(self, obs: jax.Array) -> jax.Array:
        return jnp.sort(obs, -1)


def test_a_network_of_ones_own(tmp_path: Path) -> None:
    champion = made("ppo", "discrete", (6, 5, 2), network=lambda spec: Own())
    assert write_onnx(champion, tmp_path / "policy.onnx") <= 1e-5
    same_actions(tmp_path / "policy.onnx", champion)


def test_what_a_file_cannot_hold(tmp_path: Path, said: Said) -> None:
    with pytest.raises(BadInput) as error:
        write_onnx(made("ppo", "discrete", network=lambda spec: Sorting()), tmp_path / "policy.onnx")
    said(error.value)
    assert not list(tmp_path.iterdir())


# ----------------------------------------------------------------------------------------- the command


@pytest.fixture
def run(tmp_path: Path) -> Path:
    train(tiny(tmp_path / "run", generations=1))
    return tmp_path / "run"


def test_the_command_writes_what_other_programs_read(run: Path, tmp_path: Path) -> None:
    done = shoal("export", run, tmp_path / "policy.onnx")
    assert (done.code, done.err) == (0, "")
    assert "policy.onnx (run by onnxruntime" in done.out
    told = {x.key: x.value for x in onnx.load(tmp_path / "policy.onnx").metadata_props}
    assert json.loads(told["observation"]) == {"name": "obs", "shape": [4], "dtype": "float32"}
    action = {"name": "action", "shape": [], "kind": "Discrete", "dtype": "int32", "n": 2, "start": 0}
    assert json.loads(told["action"]) == action
    assert told["experiment"] == (run / "experiment.yaml").read_text()
    assert json.loads(told["champion"])["generation"] == 0
    assert shoal("export", run, tmp_path / "policy.npz").code == 0
    with np.load(tmp_path / "policy.npz") as arrays:
        assert str(arrays["about.experiment"]) == told["experiment"]


@pytest.mark.parametrize("env", others_slow(["gymnax:CartPole-v1", "gymnax:Pendulum-v1"], "gymnax:CartPole-v1"))
def test_one_of_bfloat16_computes_in_float32(tmp_path: Path, env: str) -> None:
    """Its weights are float32, and the programs that read the file know nothing else. What is told of it is its difference
    to the champion that was measured."""
    run = train(tiny(tmp_path / "run", env=env, generations=1)).run_dir
    shown = yaml.safe_load((run / "experiment.yaml").read_text())
    shown["config"]["precision"] = "bfloat16"
    (run / "experiment.yaml").write_text(yaml.safe_dump(shown))
    done = shoal("export", run, tmp_path / "policy.onnx")
    assert (done.code, done.err) == (0, "")
    assert "where layers compute in bfloat16 instead of float32" in done.out
    if env.endswith("Pendulum-v1"):
        champion, random = load_champion(run), np.random.default_rng(0)
        obs = random.normal(size=(500, 3)).astype(np.float32)
        (action,) = session_of(tmp_path / "policy.onnx").run(["action"], {"obs": obs})
        apart = np.abs(action - champion.predict(obs)[0]).max()
        told = float(re.search(r"by at most (\S+?),", done.out)[1])  # type: ignore[index]
        assert apart / 10 < told < apart * 10 and told > 1e-5
    else:
        assert re.search(r"[\d.]+% of its choices differ", done.out)
    told = {x.key: x.value for x in onnx.load(tmp_path / "policy.onnx").metadata_props}
    assert "bfloat16" in told["experiment"]
    kinds = {x.data_type for x in onnx.load(tmp_path / "policy.onnx").graph.initializer}
    assert onnx.TensorProto.FLOAT in kinds and onnx.TensorProto.BFLOAT16 not in kinds


def test_an_ending_may_be_in_capitals(run: Path, tmp_path: Path) -> None:
    assert shoal("export", run, tmp_path / "POLICY.NPZ").code == 0
    assert shoal("export", run, tmp_path / "Policy.Onnx").code == 0
    with np.load(tmp_path / "POLICY.NPZ") as arrays:
        assert "about.experiment" in arrays
    assert onnx.load_model(tmp_path / "Policy.Onnx", format="protobuf").graph.output[0].name == "action"


def test_what_cannot_be_written_is_told_in_one_line(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from shoal.commands import export

    def refused(file: Path) -> str:
        done = shoal("export", run, file)
        assert done.code == 2 and len(done.err.splitlines()) == 1
        return done.err

    assert "must end in .onnx" in refused(run / "policy.pt")
    assert "there is no folder" in refused(run / "nowhere" / "policy.onnx")
    monkeypatch.setattr(export.importlib.util, "find_spec", lambda name: None)
    assert f"needs the package onnx: {install('onnx')}" in refused(run / "policy.onnx")
