"""`shoal import isaac`: every key of Isaac Lab's PBT arrives where Shoal has it, or is said not to."""

from __future__ import annotations

from dataclasses import fields

import pytest
from support.messages import shown
from support.runs import shoal

from shoal import cli
from shoal.commands.import_isaac import translate
from shoal.commands.isaac_flags import IsaacFlags
from shoal.core.errors import BadInput
from shoal.core.space import Range
from shoal.core.yaml_text import parse
from shoal.experiment.files import from_dict
from shoal.methods.ranges import validate

AGENT = """\
params:
  env: {clip_observations: 5.0}
  algo: {name: a2c_continuous}
  config:
    env_name: rlgpu
    learning_rate: 5e-4
    lr_schedule: linear
    kl_threshold: 0.016
    gamma: 0.99
    entropy_coef: 0.0
    mini_epochs: 4
    grad_norm: 1.0
    truncate_grads: False
pbt:
  enabled: True
  policy_idx: 3
  num_policies: 6
  directory: /shared
  workspace: ws
  objective: episode.Curriculum/level
  interval_steps: 5000
  threshold_std: 0.2
  threshold_abs: 0.03
  mutation_rate: 0.4
  change_range: [1.2, 1.9]
  mutation:
    agent.params.config.learning_rate: "mutate_float"
    agent.params.config.gamma: "mutate_discount"
"""


@pytest.fixture
def file(tmp_path):
    (tmp_path / "agent.yaml").write_text(AGENT)
    return tmp_path / "agent.yaml"


def values(text):
    return parse(text)[0]


def test_every_key_arrives(file):
    made = values(translate(file))
    assert made["agent"] == f"rl_games:{file}" and made["env"] == "rlgpu"
    assert (made["population"], made["interval"]) == (6, 5000)
    assert made["method"]["select"] == {"name": "threshold", "threshold_std": 0.2, "threshold_abs": 0.03}
    assert made["method"]["explore"] == {"name": "mutate", "mutation_rate": 0.4, "change_range": [1.2, 1.9]}
    assert made["config"]["objective"] == "episode.Curriculum/level" and made["fitness"] == {"source": "training"}
    assert made["space"] == {
        "learning_rate": {"low": 5e-6, "high": 0.05, "scale": "log", "initial": 5e-4},
        "gamma": {"low": 0.9, "high": 0.999, "scale": "one_minus_log", "initial": 0.99},
    }
    assert "exchange" not in made and "generations" not in made


def test_defaults_are_those_of_isaac_lab(file):
    file.write_text(AGENT.partition("pbt:")[0] + "pbt: {mutation: {agent.params.config.gamma: mutate_discount}}\n")
    made = values(translate(file))
    assert made["method"]["select"] == {"name": "threshold", "threshold_std": 0.1, "threshold_abs": 0.05}
    assert made["method"]["explore"]["mutation_rate"] == 0.25
    assert (made["population"], made["interval"]) == (8, 100_000)


def test_workers_share_the_policies(file):
    made = values(translate(file, workers=3))
    assert (made["population"], made["exchange"]) == (2, {"name": "directory", "workspace": "/shared/ws"})


def test_overrides_win(file):
    given = [
        "agent.pbt.num_policies=4",
        "agent.params.config.gamma=0.9",
        "+agent.params.config.max_frames=12001",
        "agent.pbt.start_after=700",
        "agent.pbt.mutation.agent.params.config.mini_epochs=mutate_float",
        "env.scene.num_envs=64",
    ]
    made = values(translate(file, given, task="Isaac-Cartpole-v0"))
    assert made["population"] == 4 and made["method"]["burn_in"] == 700
    assert made["generations"] == 3  # 12001 frames in intervals of 5000
    assert made["space"]["gamma"]["initial"] == 0.9 and made["space"]["gamma"]["low"] == 0.0
    assert made["space"]["mini_epochs"] == {"low": 1, "high": 400, "scale": "log", "initial": 4, "integer": True}
    assert made["config"]["params"] == {"config": {"gamma": 0.9, "max_frames": 12001}}
    assert made["env_options"] == {"task": "Isaac-Cartpole-v0", "scene.num_envs": 64, "clip_obs": 5.0}
    assert made["config"]["imports"] == ["isaac_task"]


def test_what_the_wrapper_of_environments_takes_reaches_it(file):
    groups = "obs_groups: {obs: [policy], states: [critic]}, concate_obs_groups: False"
    file.write_text(AGENT.replace("env: {clip_observations: 5.0}", f"env: {{clip_actions: 2.0, {groups}, fps: 30}}"))
    text = translate(file, task="Isaac-Reach-v0")
    assert values(text)["env_options"] == {
        "task": "Isaac-Reach-v0",
        "clip_actions": 2.0,
        "obs_groups": {"obs": ["policy"], "states": ["critic"]},
        "concate_obs_groups": False,
    }
    lost = "# params.env.{} is left out: it does not reach the environments"
    assert lost.format("fps") in text and text.count("left out") == 1
    without = translate(file)
    assert "env_options" not in values(without)
    for name in ("clip_actions", "obs_groups", "concate_obs_groups", "fps"):
        assert lost.format(name) in without


def test_a_seed_is_said_to_be_left_out(file):
    assert "params.seed" not in translate(file)
    assert "# params.seed is left out" in translate(file, ["agent.params.seed=42"])


@pytest.mark.parametrize(
    "given, place",
    [
        ("agent.params.load_checkpoint=True", "params.load_checkpoint"),
        ("agent.params.config.score_to_win=20000", "params.config.score_to_win"),
        ("agent.params.config.num_actors=128", "params.config.num_actors"),
        ("agent.params.config.env_config.num_envs=8192", "params.config.env_config"),
        ("agent.seed=7", "agent.seed"),
    ],
)
def test_what_nothing_reads_is_said_to_be_left_out(file, given, place):
    note = f"# {place} is left out: "
    assert note not in translate(file, task="T")
    assert note in translate(file, [given], task="T")


def test_what_says_nothing_needs_no_note(file):
    """As most of Isaac Lab's files have them."""
    given = [f"agent.params.{x}" for x in ("load_checkpoint=False", "load_path=''", "config.num_actors=-1")]
    assert translate(file, given, task="T").count("is left out") == 0


def test_environments_of_isaac_lab_do_not_get_env_config(file):
    """There it reaches none; here it would be settings that a task has not."""
    made = values(translate(file, ["agent.params.config.env_config.num_envs=8192"], task="T"))
    assert made["config"]["params"]["config"]["env_config"] is None
    given = values(translate(file, ["agent.params.config.env_config.level=2"]))  # a module of one's own may take it
    assert given["config"]["params"]["config"]["env_config"] == {"level": 2}


def test_the_launcher_of_rl_games_is_the_interpreter_of_members(file):
    assert values(translate(file, ["agent.pbt.launcher=/isaac-sim/python.sh"]))["python"] == "/isaac-sim/python.sh"
    assert "python" not in values(translate(file, ["agent.pbt.launcher=''"]))


def test_a_file_may_compose_itself_alone(file):
    usual = translate(file)
    file.write_text("defaults: [_self_]\n" + AGENT)
    assert translate(file) == usual


def test_an_override_wins_over_an_interpolation(file):
    file.write_text(AGENT.replace("gamma: 0.99", "gamma: ${...gamma}"))
    assert values(translate(file, ["agent.params.config.gamma=0.9"]))["space"]["gamma"]["initial"] == 0.9


@pytest.mark.parametrize(
    "name, setting, note",
    [
        ("learning_rate", "lr_schedule=adaptive", "learning_rate is not tuned: the adaptive schedule sets it"),
        ("entropy_coef", "entropy_coef=0.0", "entropy_coef is not tuned: it is 0"),
        ("grad_norm", "truncate_grads=False", "grad_norm is not tuned: with these settings"),
    ],
)
def test_what_has_no_effect_is_said(file, name, setting, note):
    rule = f"agent.pbt.mutation.agent.params.config.{name}=mutate_float"
    text = translate(file, [rule, f"agent.params.config.{setting}"])
    assert f"# {note}" in text
    assert name not in values(text)["space"]


def test_what_comes_out_is_an_experiment(file):
    experiment = from_dict(values(translate(file, workers=2)))
    for name, r in experiment.space.items():
        validate(name, r if isinstance(r, Range) else Range(**r))


def test_an_agent_under_its_name(file, said):
    file.write_text("agent:\n" + "".join(f"  {line}\n" for line in AGENT.splitlines()))
    assert values(translate(file))["population"] == 6
    file.write_text(file.read_text().replace("num_policies: 6", "num_policies: six"))
    with pytest.raises(BadInput) as error:
        translate(file)
    said(error.value)


BAD = [
    ["agent.pbt.num_polices=4"],
    ["agent.pbt.mutation.agent.params.config.lr=mutate_float"],
    ["agent.pbt.mutation.agent.params.config.gamma=mutate"],
    ["agent.params.config.gamma=1.0"],
    ["agent.params.config.gamma=high"],
    ["agent.pbt.change_range=[2, 1]"],
    ["agent.pbt.num_policies=1"],
    ["--workers", "4"],
    ["num_policies=4"],
    ["~agent.pbt.mutation.agent.params.config.gamma"],
    ["agent.seeds=7"],
    ["agent.params.algo.name=sac"],
    ["agent.params.algo.name=null"],
    ["agent.params.config.multi_gpu=True"],
    ["agent.params.config.schedule_entropy=True"],
    ["agent.params.config.horizon_length=${.minibatch_size}"],
    ["agent.params.network.mlp.units=[64, '${.x}']"],
    ["agent.paramz.config.gamma=0.9"],
    ["agent.params=3"],
    ["agent.pbt=3"],
    ["agent.params.algo=x"],
    ["agent.pbt.mutation.agent.params.config.gamma=[1]"],
    ["agent.pbt.interval_steps=.inf"],
    ["agent.pbt.num_policies=[4"],
]


DOCUMENTED = """--seed=0 --task=Isaac-Dexsuite-Kuka-Allegro-Lift-v0 --num_envs=8192 --headless --track --wandb-name=idx0
    --wandb-entity=us --wandb-project-name=hands agent.pbt.enabled=True agent.pbt.num_policies=4 agent.pbt.policy_idx=0
    agent.pbt.workspace=lift agent.pbt.directory=/shared"""
MIXED = """agent.pbt.enabled=True --seed 0 agent.pbt.num_policies=4 --wandb-name idx0 --num_envs 8192 agent.pbt.policy_idx=0
    --task Isaac-Dexsuite-Kuka-Allegro-Lift-v0 --track agent.pbt.workspace=lift --headless --wandb-entity us
    --wandb-project-name hands agent.pbt.directory=/shared"""


def test_the_command_that_isaac_lab_documents(file, capsys):
    """As it stands there; and in any order, with values behind a space."""
    texts = []
    for told in (DOCUMENTED, MIXED):
        with pytest.raises(SystemExit) as stop:
            cli.main(["import", "isaac", str(file), *told.split()])
        said = capsys.readouterr()
        assert stop.value.code == 0, said.err
        texts.append(said.out)
    assert texts[0] == texts[1]
    made = values(texts[0])
    assert made["env_options"]["task"] == "Isaac-Dexsuite-Kuka-Allegro-Lift-v0" and made["population"] == 4
    assert made["env_options"]["scene.num_envs"] == 8192 and made["wandb"] == {
        "project": "hands",
        "name": "idx0",
        "entity": "us",
    }
    notes = [line for line in texts[0].splitlines() if line.startswith("# --")]
    assert [note.partition(" is left out: ")[0] for note in notes] == ["# --seed"]


@pytest.mark.parametrize(
    "given", ["--track", "--track True", "--track=yes", "--track false", "--track=0", "--track=no --track"]
)
def test_tracking_may_be_said_in_a_word(file, capsys, given):
    with pytest.raises(SystemExit) as stop:
        cli.main(["import", "isaac", str(file), *given.split(), "agent.pbt.num_policies=4"])
    told = capsys.readouterr()
    assert stop.value.code == 0, told.err
    assert ("wandb" in values(told.out)) == given.endswith(("track", "True", "yes"))


def test_the_flag_of_the_number_of_environments_wins(file):
    """As in Isaac Lab, which sets it once its overrides are read."""
    made = values(translate(file, ["env.scene.num_envs=128"], task="T", flags=IsaacFlags(num_envs=64)))
    assert made["env_options"]["scene.num_envs"] == 64


def test_flags_of_the_simulator_may_be_copied(file, capsys):
    """As people start Isaac Lab's own training."""
    given = ["--kit_args", "--enable omni.x --/app/y=1", "--rendering_mode", "quality", "--experience=my.kit", "--xr"]
    given += ["--viz", "kit,newton", "--verbose", "--info", "--max_visible_envs", "4", "--deterministic", "-rid", "3"]
    with pytest.raises(SystemExit) as stop:
        cli.main(["import", "isaac", str(file), "--task", "T", *given])
    told = capsys.readouterr()
    assert stop.value.code == 0, told.err
    left = {line.split()[1] for line in told.out.splitlines() if line.startswith("# --")}
    names = ("kit_args", "rendering_mode", "experience", "xr", "visualizer", "verbose", "info", "max_visible_envs")
    assert left == {f"--{name}" for name in (*names, "deterministic", "ray_proc_id")}


def test_a_file_that_is_written_may_have_an_equals_sign_in_its_name(file, tmp_path):
    out = tmp_path / "n=1.yaml"
    with pytest.raises(SystemExit) as stop:
        cli.main(["import", "isaac", "-o", str(out), str(file), "agent.pbt.num_policies=4", "--headless"])
    assert stop.value.code == 0 and values(out.read_text())["population"] == 4


def test_the_file_of_the_agent_is_not_overwritten(file, tmp_path, said):
    """The experiment names it: nothing could read it any more."""
    (tmp_path / "link.yaml").symlink_to(file)
    outcome = shoal("import", "isaac", file, "-o", tmp_path / "link.yaml")
    assert (outcome.code, file.read_text()) == (2, AGENT)
    said(outcome.err)


def test_every_flag_has_its_place_or_a_reason_why_it_is_left_out(file):
    placed = {"num_envs": 16, "headless": True, "track": True, "wandb_project_name": "x"}
    placed |= {"wandb_name": "y", "wandb_entity": "z"}
    for option in fields(IsaacFlags):
        value = placed.get(option.name, True if option.default is False else "1")
        text = translate(file, task="T", flags=IsaacFlags(**{"track": True, option.name: value}))
        assert (f"# --{option.name} is left out: " in text) == (option.name not in placed), option.name
        from_dict(values(text))
    usual = translate(file, task="T")
    for flags in (IsaacFlags(headless=True), IsaacFlags(wandb_project_name="x", wandb_name="y")):
        assert translate(file, task="T", flags=flags) == usual


@pytest.mark.parametrize("overrides", BAD, ids=shown)
def test_bad_input_gets_one_line(file, capsys, overrides, said):
    with pytest.raises(SystemExit) as stop:
        cli.main(["import", "isaac", str(file), *overrides])
    told = capsys.readouterr()
    assert stop.value.code == 2 and not told.out
    said(told.err)


@pytest.mark.parametrize(
    "text",
    [
        "pbt: {}",
        "[]",
        "params: [",
        "params: {}\npbt: 3",
        "params: {}",
        "params: {algo: x}\npbt: {mutation: {a: b}}",
        "params: {config: x}\npbt: {mutation: {a: b}}",
        "params:\n  env: 3\npbt: {mutation: {agent.params.config.gamma: mutate_discount}}",
        "params: {algo: {name: a2c_discrete}, config: {self_play_config: {games: 2}}}\npbt: {mutation: {a: b}}",
        "defaults: [AllegroKukaPPO, _self_]\nparams: {}",
        "defaults: {task: Ant}",
    ],
    ids=shown,
)
def test_bad_files(file, text, said):
    file.write_text(text)
    with pytest.raises(BadInput) as caught:
        translate(file)
    said(caught.value)


def test_the_command_writes(file, tmp_path, capsys):
    with pytest.raises(SystemExit) as stop:
        cli.main(["import", "isaac", str(file), "-o", str(tmp_path / "out.yaml"), "--workers", "2"])
    assert stop.value.code == 0
    assert (tmp_path / "out.yaml").read_text() == translate(file, workers=2)
    assert "shoal train" in capsys.readouterr().out
