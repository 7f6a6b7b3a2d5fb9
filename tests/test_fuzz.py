"""Files that went wrong in thousands of ways, drawn by hypothesis: they are taken, or refused in one line."""

from __future__ import annotations

import json
import re
import zlib
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from io import StringIO
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import HealthCheck, assume, given, note, settings
from hypothesis import strategies as st
from support.cases import examples
from support.mutations import at_most, mutated_bytes, mutated_json, mutated_text, replaced, restored
from support.runs import build_run, shoal
from support.synthetic_run import write_run
from support.whole_run import PARTS, SPEC, write_whole_run

from shoal.core.atomic import Staging, seal
from shoal.core.candidates import NO_CANDIDATE
from shoal.core.errors import BadInput
from shoal.core.interrupts import BAD_INPUT, DONE
from shoal.experiment.files import load
from shoal.experiment.plan import make_closed_plan
from shoal.experiment.trust import open_run
from shoal.report.page import write_report
from shoal.report.schedule import print_schedule
from shoal.run.champion import champion_of_manifest, load_champion
from shoal.run.rundir import RunDirectory, read_totals
from shoal.study.study_file import budgets, read, trials

SECONDS = 20.0  # none of these takes one
EXPERIMENTS = [
    """# every field
env: gymnax:CartPole-v1
agent: ppo
population: 4
generations: 2
interval: 64
method:
  name: pbt
  select: {name: truncation, bottom: 0.25, top: 0.25, parents: above}
  explore: {name: perturb, factors: [0.8, 1.25], resample_probability: 0.1}
  replay: keep
  burn_in: 10
shards: 2
exchange: {name: local, worker: null}
seed: 3
run_dir: runs/x
fitness: {source: evaluation, episodes: 2, deterministic: true, step_limit: 60}
checkpoint: {every: 1, keep: 3}
final_episodes: 8
hyper:
  epochs: 2
  max_gradient_norm: 0.5
space:
  learning_rate: [1e-5, 1e-2, log]
  discount: {low: 0.9, high: 0.999, scale: one_minus_log, initial: 0.99}
  clip_range:
    choices: [0.1, 0.2, 0.4]
    ordered: true
config: {layers: [8], rollout_length: 16, num_envs: 2, num_minibatches: 2, activation: tanh, normalize_observations: true}
env_options: {max_steps_in_episode: 50, gravity: 9.8}
""",
    """env: Pendulum-v1
agent: td3
population: 4
method:
  name: pbt
  replay: copy
  select: tournament
  explore: {name: mutate, mutation_rate: 0.5, change_range: [1.1, 1.5]}
space: {tau: [0.001, 0.1, log], policy_delay: {low: 1, high: 4, integer: true}}
config:
  layers: [8, 8]
  rollout_length: 16
  num_envs: 2
  learning_starts: 32
  buffer_size: 64
  batch_size: 8
  max_update_ratio: 1
interval: 64
generations: 3
""",
    """env: gym:CartPole-v1
method: {name: es, optimizer: adam, sigma_decay: 0.99, chunk: 8, adaptive_cap: true}
population: 8
interval: 64
hyper: {sigma: 0.05, learning_rate: 0.02}
config: {layers: [8]}
exchange: {name: directory, workspace: shared/x, worker: one}
env_options: {max_episode_steps: 50, vectorization: sync}
""",
    """env: Pendulum-v1
method: {name: cem_rl, gradient_members: 2, elites: 2, variance: 1e-3, noise_decay: 0.9, mirrored: false}
population: 4
config: {layers: [8], learning_starts: 16, buffer_size: 64, batch_size: 8, rollout_length: 8}
""",
    """env: CartPole-v1
agent: dqn
method:
  name: schedule
  rows:
  - {learning_rate: 1e-3, final_epsilon: 0.1}
  - learning_rate: 1e-4
    final_epsilon: 0.05
population: 2
fitness:
  source: training
config: {layers: [8], n_step: 2, network: mlp, learning_starts: 8, buffer_size: 64, batch_size: 8, rollout_length: 8}
""",
    """env: Pendulum-v1
method: {name: dvd, arms: [0, 0.5], num_states: 4, resample_interval: 2}
population: 3
config: {layers: [8], learning_starts: 8, buffer_size: 64, batch_size: 8, rollout_length: 8}
""",
]


def taken(reader: Callable[..., Any], *arguments: Any) -> Any:
    """What a reader gives, or None where it refuses in one line."""
    try:
        with at_most(SECONDS):
            return reader(*arguments)
    except BadInput as error:
        assert str(error)
        return None


def each(examples: int, cases: st.SearchStrategy, check: Callable[[Any], Any]) -> int:
    """Of how many examples a check, which holds for all of them, is also true."""
    found = 0

    # Most of what went wrong is refused, as it should be.
    @settings(max_examples=examples, suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much])
    @given(cases)
    def checked(case: Any) -> None:
        nonlocal found
        found += bool(check(case))

    checked()
    return found


def mutations_of(texts: list[str]) -> st.SearchStrategy[bytes]:
    return st.builds(mutated_text, st.randoms(), st.sampled_from(texts))


@examples(100, 2000)
def test_mutated_experiments(tmp_path: Path, examples: int) -> None:
    """They are read, and what is read is planned."""

    def whole(data: bytes) -> bool:
        (path := tmp_path / "e.yaml").write_bytes(data)
        experiment = taken(load, path)
        return experiment is not None and taken(make_closed_plan, experiment) is not None

    assert each(examples, mutations_of(EXPERIMENTS), whole)


@examples(6, 20)
def test_members_of_mutated_experiments(tmp_path: Path, examples: int) -> None:
    def built(data: bytes) -> bool:
        (path := tmp_path / "e.yaml").write_bytes(data)
        experiment = taken(load, path)
        assume(experiment is not None)
        parts = taken(build_run, experiment)
        if parts is not None:
            parts.shard.close()
        return parts is not None

    assert each(examples, mutations_of(EXPERIMENTS), built)


# ----------------------------------------------------------------------------------------------- runs

CHAMPION, STATE = "champion/state.safetensors", "checkpoints/00000002/run.safetensors"


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that is made of NumPy's numbers."""
    return write_whole_run(tmp_path_factory.mktemp("fuzz") / "run")


def evaluate(run: Path) -> Any:
    return load_champion(run)


def report(run: Path) -> Any:
    return write_report(run).read_text(encoding="utf-8")


def schedule(run: Path) -> Any:
    for form in ("csv", "yaml", "json"):
        print_schedule(run, form, out := StringIO())
        out.getvalue().encode()
    return form


def resume(run: Path) -> Any:
    """All that is read before a run goes on."""
    experiment = open_run(run, trust_code=False)
    make_closed_plan(experiment)
    files = RunDirectory(run, experiment.checkpoint.keep, Staging(run, "resume"))
    notes: list[str] = []
    state, manifest = files.checkpoints.load(files.checkpoints.newest(notes.append)[0], PARTS)
    told = read_totals(manifest, "")
    learned = state["run"]["earlier"]
    best = replace(champion_of_manifest(told.earlier[0], ""), learned=learned[0]) if told.earlier else NO_CANDIDATE
    with closing(files):
        files.reopen(experiment, {}, manifest["generation"] + 1, best, SPEC)
    return None if notes else manifest["generation"]  # a note: the newest checkpoint was not taken, but one before it


READERS = {
    "experiment.yaml": (report, schedule, evaluate, resume),
    "lineage.jsonl": (report, schedule, resume),
    "metrics.jsonl": (report, schedule, resume),
    "provenance.jsonl": (report, resume),
    "result.json": (report, schedule),
    "method.json": (report, resume),
    "champion/manifest.json": (evaluate,),
    CHAMPION: (evaluate,),
    "checkpoints/00000002/manifest.json": (resume,),
    STATE: (resume,),
}


def mutate(draw: Random, run: Path, name: str) -> None:
    """Change a file of a run; what has checksums gets right ones, half of the time."""
    path = run / name
    forged, kind = draw.choice((False, True)), draw.randrange(10)
    if kind == 9:
        replaced(draw, path)
    elif kind > 6 or name.endswith((".yaml", ".txt")):
        data = path.read_bytes()
        path.write_bytes(mutated_text(draw, data.decode()) if name.endswith("yaml") else mutated_bytes(draw, data))
    elif name.endswith(".jsonl"):
        lines = path.read_text().splitlines()
        at = draw.randrange(len(lines))
        lines[at] = json.dumps(mutated_json(draw, json.loads(lines[at])))
        path.write_text("\n".join(lines) + "\n")
    elif name.endswith(".json"):
        content = json.loads(path.read_text())
        content.pop("manifest_crc32", None)
        content = mutated_json(draw, content)
        sealed = name.endswith("manifest.json") and isinstance(content, dict)
        path.write_bytes(seal(content) if sealed else json.dumps(content).encode())
    else:
        data = _mutated_arrays(draw, path.read_bytes())
        path.write_bytes(data)
    if forged and path.is_file() and name.endswith(".safetensors"):
        manifest = json.loads((path.parent / "manifest.json").read_text())
        manifest.pop("manifest_crc32")
        about = manifest["parts"][path.stem] if "parts" in manifest else manifest
        about |= {"bytes": path.stat().st_size, "crc32": zlib.crc32(path.read_bytes())}
        (path.parent / "manifest.json").write_bytes(seal(manifest))
    if path.is_file():
        note(repr(path.read_bytes()))


def _mutated_arrays(draw: Random, data: bytes) -> bytes:
    """A safetensors file whose header says something else."""
    size = int.from_bytes(data[:8], "little")
    header = json.dumps(mutated_json(draw, json.loads(data[8 : 8 + size]))).encode()
    return draw.choice((len(header), size, 0, 2**63)).to_bytes(8, "little") + header + data[8 + size :]


@examples(6, 100)
@pytest.mark.parametrize("name", READERS)
def test_mutated_runs(run: Path, name: str, examples: int) -> None:
    """What has checksums is not always taken; a report shows what it can."""

    def refused(draw: Random) -> bool:
        with restored(run):
            mutate(draw, run, name)
            return None in [taken(reader, run) for reader in READERS[name]]

    assert each(examples, st.randoms(), refused) or "/" not in name


# ---------------------------------------------------------------------------------------------- studies

STUDIES = [
    """# every field
base:
  env: gymnax:CartPole-v1
  population: 4
  generations: 2
  interval: 64
  config: {layers: [8], rollout_length: 16, num_envs: 2, num_minibatches: 2}
  space: {learning_rate: [1e-5, 1e-2, log]}
arms:
  pbt: {method: {name: pbt, select: {name: truncation, bottom: 0.25}}}
  again: {replay: pbt, population: 4}
  seeds: {method: independent}
  halving: {halving: 2}
tasks:
  pole: {scale: [0, 100]}
  heavy: {env_options: {gravity: 20.0}, scale: [0, 90]}
seeds: 2
unequal_steps: true
""",
    """base: {env: gym:Pendulum-v1, agent: td3, population: 4, generations: 4, interval: 64}
arms:
  own:
    config: {layers: [8], rollout_length: 16, num_envs: 2, learning_starts: 32, buffer_size: 64, batch_size: 8}
  usual:
    fitness: {episodes: 2}
    config: {layers: [8], rollout_length: 16, num_envs: 1, learning_starts: 32, buffer_size: 64, batch_size: 8}
""",
]


def plan(path: Path) -> Any:
    """All that is known of a study before it begins."""
    study = read(path)
    planned = trials(study)
    budgets(study)
    return len(planned)


@examples(50, 800)
def test_mutated_study_files(tmp_path: Path, examples: int) -> None:
    def planned(data: bytes) -> bool:
        (path := tmp_path / "s.yaml").write_bytes(data)
        return taken(plan, path) is not None

    assert each(examples, mutations_of(STUDIES), planned)


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A study that is done, of two arms with three seeds each, on one of which a run failed."""
    path = tmp_path_factory.mktemp("fuzz") / "study"
    (path / "failures/b").mkdir(parents=True)
    (path / "study.yaml").write_text("base: {env: CartPole-v1}\narms: {a: {}, b: {method: independent}}\nseeds: 3\n")
    (path / "failures/b/2.txt").write_text("no memory\n")
    for place in ("a/0", "a/1", "a/2", "b/0", "b/1"):
        write_run(path / "runs" / place, population=4, generations=3, seed=len(place))
    return path


OF_STUDY = ("study.yaml", "failures/b/2.txt", "runs/a/0/result.json", "runs/b/1/metrics.jsonl")


@examples(10, 100)
@pytest.mark.parametrize("name", OF_STUDY)
def test_mutated_studies(study: Path, name: str, examples: int) -> None:
    """Their page and table are written, and the command says where."""

    def shown(draw: Random) -> bool:
        with restored(study):
            mutate(draw, study, name)
            with at_most(SECONDS):
                outcome = shoal("report", study)
            assert outcome.code in (DONE, BAD_INPUT), outcome.err
            assert not re.search(r"[^\n -~]", re.sub(r"[^\0-\x7f]", "", outcome.out + outcome.err))
            return outcome.code == DONE

    assert each(examples, st.randoms(), shown)
