"""What the documentation shows is so: commands parse, files load, links lead somewhere, no field is left out."""

from __future__ import annotations

import functools
import importlib
import importlib.util
import os
import re
import shlex
import signal
import subprocess
import sys
import time
import tomllib
from dataclasses import fields, replace
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
import yaml
from support.cases import others_slow
from support.prose import cells, sentences, words
from support.runs import build_run

import shoal
from shoal import cli
from shoal.agents.registry import AGENTS, POLICY
from shoal.commands.output import selection_bias, to_watch
from shoal.core.schema import descriptions
from shoal.core.space import Range, declared
from shoal.core.yaml_text import parse
from shoal.environments.levels import Levels
from shoal.experiment.experiment import Checkpoint, ExchangeSettings, Experiment, Fitness, Stop, WeightsAndBiases
from shoal.experiment.files import from_dict, load
from shoal.experiment.plan import make_plan
from shoal.experiment.validation import check
from shoal.methods import METHODS
from shoal.methods.es import EsHyper
from shoal.methods.explore import EXPLORERS
from shoal.methods.pbt import Pbt
from shoal.methods.select import SELECTORS
from shoal.records.callback import Start
from shoal.records.console import Display
from shoal.records.screen import Screen
from shoal.study.results import COLUMNS
from shoal.study.study_file import Study, budgets, trials
from shoal.study.study_file import read as read_study
from shoal.trainers.live import LIVE
from shoal.trainers.trainers import TrainerProcesses, Trainers, is_trainer

ROOT = Path(__file__).parents[1]
PAGES = [*sorted(ROOT.glob("*.md")), *sorted(ROOT.glob("docs/**/*.md")), ROOT / "benchmarks" / "NOTES.md"]
TEXTS = {str(page.relative_to(ROOT)): page.read_text(encoding="utf-8") for page in PAGES}
NAMES = [command.__name__ for command in cli.COMMANDS]
SHOWN = re.compile(rf"(?<![\w./-])(?<!from )(?<!usage: )shoal ((?:{'|'.join(NAMES)})\b[^`\n|#()]*)")


def blocks(language: str) -> list[Any]:
    """Every fenced block of a language, named by its page."""
    fence = re.compile(rf"^```{language}\n(.*?)^```", re.DOTALL | re.MULTILINE)
    found = [(name, block) for name, text in TEXTS.items() for block in fence.findall(text)]
    return [pytest.param(block, id=f"{name}-{i}") for i, (name, block) in enumerate(found)]


@pytest.fixture
def modules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder on the path, with the blocks of code that begin with the name of their file."""
    for block in blocks("python"):
        if named := re.match(r"# (\w+\.py)\n", block.values[0]):
            (tmp_path / named[1]).write_text(block.values[0])
    monkeypatch.syspath_prepend(tmp_path)
    return tmp_path


def test_there_are_pages() -> None:
    assert {"README.md", "CONTRIBUTING.md", "docs/architecture.md", "docs/reference/experiment.md"} <= set(TEXTS)


@pytest.mark.parametrize("page", sorted(set(TEXTS) - {"benchmarks/NOTES.md"}))
def test_sentences_cells_and_pages_are_short(page: str) -> None:
    text = TEXTS[page]
    assert [sentence for sentence in sentences(text) if len(words(sentence)) > 40] == []
    assert [cell for cell in cells(text) if len(words(cell)) > 15] == []
    assert len(words(text)) <= 2500


@pytest.mark.parametrize(
    "phrase", ["of two seats", "middle member", "best opponent", "chance gets", "exchanges of values"]
)
def test_the_field_has_other_words_for_it(phrase: str) -> None:
    """Two-player zero-sum game, median member, best response, random policy, shuffles."""
    kinds = (
        "README.md",
        "CHANGELOG.md",
        "docs/**/*.md",
        "experiments/**/*.yaml",
        "examples/*",
        "src/**/*.py",
        "src/**/*.txt",
    )
    files = [file for kind in kinds for file in ROOT.glob(kind) if file.is_file()]
    assert [str(file) for file in files if phrase in " ".join(file.read_text(encoding="utf-8").split())] == []


@pytest.mark.parametrize("language", ["bash", "python", "yaml"])
def test_code_fits_between_the_sidebars_of_the_site(language: str) -> None:
    """In a window of 1280 pixels, by `site.css`."""
    lines = [line for block in blocks(language) for line in block.values[0].splitlines()]
    assert len(lines) > 10
    assert [line for line in lines if len(line) > 97] == []


@pytest.mark.parametrize("command", sorted({c.strip() for text in TEXTS.values() for c in SHOWN.findall(text)}))
def test_commands_parse(command: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def idle(function: Any) -> Any:
        return functools.wraps(function)(lambda *arguments, **flags: 0)

    monkeypatch.setattr(cli, "COMMANDS", tuple(idle(function) for function in cli.COMMANDS))
    with pytest.raises(SystemExit) as stop:
        cli.main(shlex.split(command) if command not in NAMES else [command, "--help"])
    assert stop.value.code == 0, command


@pytest.mark.parametrize("page", ["README.md", "docs/tutorials/quickstart.md"])
def test_the_sample_of_a_run_begins_and_ends_as_a_run_does(page: str) -> None:
    lines = re.findall(r"^```text\n(8 × .*?)^```", TEXTS[page], re.DOTALL | re.MULTILINE)[0].splitlines()
    run = Path("runs/Pendulum-v1-ppo-0")
    Display(screen := Screen(file=StringIO(), width=200)).on_training_start(
        Start(make_plan(load(ROOT / "experiments/pendulum.yaml")), 2, run.absolute(), 0)
    )
    begun = screen.file.getvalue().splitlines()
    assert lines[: len(begun)] == begun and lines[len(begun)].startswith("generation 1/20")
    champion = next(line for line in lines if line.startswith("champion: "))
    mean, error, fitness = (
        float(x) for x in re.findall(r"-?[\d.]+", champion)[:2] + re.findall(r"\((-?[\d.]+)", champion)
    )
    bias = selection_bias({"evaluation": {"mean": mean, "standard_error": error}, "selection_fitness": fitness})
    _, command = to_watch(run, {"evaluation": {}})
    assert lines[lines.index(champion) + 1 :] == [
        *([bias] if bias else []),
        f"report:       open {run}/report.html",
        f"curves:       tensorboard --logdir {run}/tensorboard",
        f"video:        {command}",
    ]


@pytest.mark.parametrize("name", NAMES)
def test_every_command_is_introduced(name: str) -> None:
    assert f"| `shoal {name}" in TEXTS["docs/reference/cli.md"]


@pytest.mark.parametrize("block", blocks("bash"))
def test_job_scripts_are_sound(block: str) -> None:
    """They parse, tell Slurm nothing that it does not know, and put a job that can go on back into the queue."""
    subprocess.run(["bash", "-n"], input=block, text=True, check=True)
    options = re.findall(r"^#SBATCH --([a-z-]+)", block, re.MULTILINE)
    known = {"job-name", "ntasks", "array", "cpus-per-task", "time", "signal", "requeue", "open-mode"}
    assert set(options) <= known and "requeue" in options
    assert 'if [ "$CODE" -eq 3 ]' in block and "scontrol requeue" in block


@pytest.mark.parametrize("block", blocks("bash"))
@pytest.mark.parametrize(("code", "signals"), [(0, 1), (1, 2), (3, 1), (3, 2), (3, 3), (137, 2)])
def test_job_scripts_do_what_they_say(tmp_path: Path, block: str, code: int, signals: int) -> None:
    """With stand-ins for Slurm, and for Shoal one that saves for a moment when it is signalled, and then ends. Signals that
    come meanwhile, such as SIGTERM at the time limit, end neither it nor the script."""
    end = f"sys.exit({code})" if code < 128 else f"os.kill(os.getpid(), {code - 128})"
    stand_ins = {
        "shoal": "import os, signal, sys, time\n"
        "def save(*_):\n    signal.signal(signal.SIGUSR1, signal.SIG_IGN)\n    open('saving', 'w').close()\n"
        f"    time.sleep(0.4)\n    open('saved', 'w').close()\n    {end}\n"
        "signal.signal(signal.SIGUSR1, save)\nopen('begun', 'w').close()\ntime.sleep(20)",
        "srun": "import os, sys\nos.execvp(sys.argv[1], sys.argv[1:])",
        "scontrol": "import sys\nopen('requeued', 'w').write(' '.join(sys.argv[1:]))",
    }
    for name, text in stand_ins.items():
        (tmp_path / name).write_text(f"#!{sys.executable}\n{text}\n")
        (tmp_path / name).chmod(0o755)
    path = os.environ | {"PATH": f"{tmp_path}:{os.environ['PATH']}", "SLURM_JOB_ID": "77"}
    job = subprocess.Popen(["bash", "-c", block], cwd=tmp_path, env=path, start_new_session=True)
    wait_for(job, tmp_path / "begun")
    children = Path(f"/proc/{job.pid}/task/{job.pid}/children").read_text().split()
    os.kill(int(children[0]), signal.SIGUSR1)  # to what srun has started
    wait_for(job, tmp_path / "saving")
    for _ in range(signals - 1):
        os.kill(job.pid, signal.SIGTERM)
        time.sleep(0.1)
    assert job.wait(10) == code
    assert (tmp_path / "saved").exists()
    assert (tmp_path / "requeued").exists() == (code == 3)
    if code == 3:
        assert (tmp_path / "requeued").read_text() == "requeue 77"


def wait_for(job: subprocess.Popen[bytes], file: Path) -> None:
    while not file.exists():
        assert job.poll() is None
        time.sleep(0.01)


def test_the_kubernetes_job_is_sound(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is a Job, each of its pods has a worker of its own in a directory that all of them share, and bad input ends it."""
    (block,) = [block.values[0] for block in blocks("yaml") if "apiVersion" in block.values[0]]
    job = yaml.safe_load(block)
    assert (job["apiVersion"], job["kind"], set(job)) == ("batch/v1", "Job", {"apiVersion", "kind", "metadata", "spec"})
    spec, pod = job["spec"], job["spec"]["template"]["spec"]
    assert spec["completionMode"] == "Indexed" and spec["completions"] == spec["parallelism"]
    assert pod["restartPolicy"] == "Never" and spec["backoffLimitPerIndex"] > 0  # a podFailurePolicy asks for both
    ignored, failed = spec["podFailurePolicy"]["rules"]
    assert ignored == {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget"}]}
    assert failed == {"action": "FailIndex", "onExitCodes": {"operator": "In", "values": [2]}}
    assert pod["terminationGracePeriodSeconds"] > 30  # within which it abandons a generation, and saves
    (container,), (volume,) = pod["containers"], pod["volumes"]
    (mount,) = container["volumeMounts"]
    assert mount["name"] == volume["name"] and "claimName" in volume["persistentVolumeClaim"]
    (flags,) = container["env"]
    assert flags["value"].endswith(f"_device_count={container['resources']['limits']['cpu']}")
    command = [x.replace("$(JOB_COMPLETION_INDEX)", "7") for x in container["command"]]
    assert command[0] == "shoal" and command[command.index("--worker") + 1] == "w7"
    assert Path(command[command.index("--workspace") + 1]).is_relative_to(mount["mountPath"])
    test_commands_parse(shlex.join(command[1:]), monkeypatch)


def test_make_targets_exist() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    shown = {target for text in TEXTS.values() for target in re.findall(r"(?:`|\$ )make ([a-z-]+)", text)}
    assert {"train", "test"} <= shown <= targets


FILES = [
    pytest.param(path, marks=pytest.mark.slow if path.stem in ("bigfish", "brax-ant", "mazes") else ())
    for path in sorted(ROOT.glob("experiments/**/*.yaml"))
    if path.parent.name != "studies"
]


@pytest.mark.filterwarnings("ignore")  # of importing brax
@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_experiments_can_be_built(path: Path) -> None:
    if "ALE/" in path.read_text(encoding="utf-8"):
        pytest.importorskip("ale_py")
    if "env: envpool:" in path.read_text(encoding="utf-8"):
        pytest.importorskip("envpool")
    if "jumanji:" in path.read_text(encoding="utf-8"):
        pytest.importorskip("jumanji")
    if "playground:" in path.read_text(encoding="utf-8"):
        pytest.importorskip("mujoco_playground")
    experiment = load(path)
    if is_trainer(experiment.agent, experiment.python):  # tests/trainers has them, as they need other packages
        check(experiment)
    else:
        build_run(experiment).shard.close()


SHIPPED, PUBLISHED = (sorted((ROOT / folder / "studies").glob("*.yaml")) for folder in ("experiments", "benchmarks"))
QUICK = [path for path in SHIPPED if path.stem not in ("mazes", "reward-weights")]


@pytest.mark.filterwarnings("ignore")  # of importing brax
@pytest.mark.parametrize("path", others_slow([*SHIPPED, *PUBLISHED], *QUICK), ids=lambda path: path.stem)
def test_studies_have_equal_budgets(path: Path) -> None:
    budgets(read_study(path))


HERE = sys.executable if importlib.util.find_spec("stable_baselines3") else None
SB3 = os.environ.get("SHOAL_TRAINERS_PYTHON", HERE)  # the interpreter that has it


@pytest.mark.parametrize(
    "block",
    [block for block in blocks("yaml") if "apiVersion" not in block.values[0] and "arms:" not in block.values[0]],
)
@pytest.mark.usefixtures("modules")
def test_yaml_is_an_experiment(block: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "examples"))
    experiment = from_dict(parse(block)[0])
    check(experiment)
    if is_trainer(experiment.agent, experiment.python):
        if SB3 is None:
            pytest.skip(
                "Stable-Baselines3 is not installed here, and SHOAL_TRAINERS_PYTHON names no interpreter that has it"
            )
        trained = make_plan(replace(experiment, python=SB3))
        assert isinstance(trained.kind.tunable, Trainers)
        trained.kind.close()
        return
    build_run(experiment).shard.close()


def test_yaml_of_studies(modules: Path) -> None:
    found = [block.values[0] for block in blocks("yaml") if "arms:" in block.values[0]]
    assert len(found) >= 5
    for block in found:
        (modules / "study.yaml").write_text(block)
        study = read_study(modules / "study.yaml")
        assert len(trials(study)) == len(study.all_tasks) * len(study.arms) * study.seeds and budgets(study)


@pytest.mark.parametrize("block", blocks("python"))
def test_python_compiles(block: str) -> None:
    compile(block, "documentation", "exec")


@pytest.mark.parametrize("page", TEXTS)
def test_links_lead_somewhere(page: str) -> None:
    for link in re.findall(r"\]\(([^)\s]+)\)", TEXTS[page]):
        if link.startswith(("https://", "http://")):
            continue
        path, _, anchor = link.partition("#")
        target = (ROOT / page).parent / path if path else ROOT / page
        assert target.exists(), link
        if anchor:
            headings = re.findall(r"^#+ (.+)$", target.read_text(encoding="utf-8"), re.MULTILINE)
            assert anchor in {re.sub(r"[^\w -]", "", h).lower().replace(" ", "-") for h in headings}, link


def as_written(value: Any) -> str:
    """A default as the tables show it; fields without one, and groups of fields, show nothing."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, tuple):
        return str(list(value))
    if isinstance(value, dict) and "name" in value:  # whose options stand beside it
        return str(value["name"])
    return str(value) if isinstance(value, (int, float, str)) else ""


def rows_of(kind: Any) -> list[tuple[str, Any]]:
    default = kind()
    return [(f.name, getattr(default, f.name)) for f in fields(kind)]


KINDS = (Experiment, Stop, ExchangeSettings, Fitness, Levels, Checkpoint, TrainerProcesses, WeightsAndBiases)
FIELDS = [row for kind in (*KINDS, Range) for row in rows_of(kind)]


@pytest.mark.parametrize(("name", "default"), FIELDS)
def test_every_field_is_described_with_its_default(name: str, default: Any) -> None:
    cells = f"| `{name}` | {as_written(default)} |".replace("|  |", "| |")
    assert cells in TEXTS["docs/reference/experiment.md"]


@pytest.mark.parametrize(("name", "default"), rows_of(Study))
def test_every_field_of_a_study_is_described_with_its_default(name: str, default: Any) -> None:
    cells = f"| `{name}` | {as_written(default)} |".replace("|  |", "| |")
    assert cells in TEXTS["docs/reference/studies.md"]


def test_every_column_of_study_csv_is_described() -> None:
    rows = re.findall(
        r"^\| (`.*`) \|", TEXTS["docs/reference/studies.md"].partition("\n## study.csv\n")[2], re.MULTILINE
    )
    assert re.findall(r"\w+", " ".join(rows)) == list(COLUMNS)


TEXT = [("experiment", *row) for kind in KINDS for row in descriptions(kind).items()]
DESCRIBED = AGENTS | {"policy": POLICY}
METHOD_PAGES = {name: "evolution_strategies" if name in ("es", "cem_rl", "dvd") else "methods" for name in METHODS}
TEXT += [(METHOD_PAGES[name], *row) for name, kind in METHODS.items() for row in descriptions(kind).items()]
TEXT += [("methods", *row) for kind in (*SELECTORS.values(), *EXPLORERS.values()) for row in descriptions(kind).items()]
TEXT += [("agents", *row) for agent in DESCRIBED.values() for row in descriptions(agent.config).items()]


@pytest.mark.parametrize(("page", "name", "told"), sorted(set(TEXT)))
def test_a_field_is_described_as_in_the_code(page: str, name: str, told: str) -> None:
    """But for links and for what is set as code."""
    cells = re.findall(rf"^\|.*`{name}` \|[^|]*\| (.*) \|$", TEXTS[f"docs/reference/{page}.md"], re.MULTILINE)
    plain = [re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", cell).replace("`", "") for cell in cells]
    assert told.replace("`", "") in plain


@pytest.mark.parametrize(
    ("kind", "field", "known"),
    [(Experiment, "method", METHODS), (Pbt, "select", SELECTORS), (Pbt, "explore", EXPLORERS)],
)
def test_a_field_is_described_with_every_name(kind: type, field: str, known: dict[str, type]) -> None:
    assert set(known) <= set(re.findall(r"\w+", descriptions(kind)[field]))


def section_of(agent: str) -> str:
    heading = agent.upper() if agent in AGENTS else agent.title()
    return TEXTS["docs/reference/agents.md"].split(f"\n## {heading}\n", 1)[1].split("\n## ", 1)[0]


CONFIGS = [(agent, *row) for agent, declaration in DESCRIBED.items() for row in rows_of(declaration.config)]


@pytest.mark.parametrize(("agent", "name", "default"), CONFIGS)
def test_the_structure_of_an_agent_is_described_with_its_defaults(agent: str, name: str, default: Any) -> None:
    assert f"| `{name}` | {as_written(default)} |" in section_of(agent)


NUMBERS = [(agent, name) for agent, declaration in DESCRIBED.items() for name in declaration.hyper._fields]


@pytest.mark.parametrize(("agent", "name"), NUMBERS)
def test_hyperparameters_are_described_as_they_are_declared(agent: str, name: str) -> None:
    defaults = DESCRIBED[agent].hyper
    number, cells = declared(type(defaults))[name], rf"\| `{name}` \| (.*) \| (.*?) ?\| (.*) \|"
    default, tuned, meaning = re.search(cells, section_of(agent)).groups()  # type: ignore[union-attr]
    assert float(default) == getattr(defaults, name) and meaning == number.meaning
    if number.tuned is None:
        assert tuned == ""
    else:
        low, high, *rest = re.split(" to |, ", tuned)
        scale = next((word for word in rest if word != "integer"), "linear")
        assert Range(float(low), float(high), scale, "integer" in rest) == number.tuned  # type: ignore[arg-type]


def test_what_is_tuned_by_default_of_sb3_is_described() -> None:
    rows = re.findall(
        r"^\| `(\w+)` \| (\S+) to (\S+?)(?:, (\w+))? \|$", TEXTS["docs/how-to/external_trainers.md"], re.MULTILINE
    )
    described = {name: (float(low), float(high), *([scale] if scale else [])) for name, low, high, scale in rows}
    assert described == {name: live.range for name, live in LIVE["sb3"].items() if live.range}


FROM_SB3 = TEXTS["docs/how-to/from_sb3.md"].split("\n## ")[1:]


@pytest.mark.parametrize("section", FROM_SB3, ids=lambda section: section.partition("\n")[0])
def test_what_sb3_calls_otherwise_exists_here(section: str) -> None:
    """Each word beside one of Stable-Baselines3, of every agent that the section is about."""
    words = [
        word
        for cell in re.findall(r"^\|[^|]*\|([^|]*)\|", section, re.MULTILINE)
        for word in re.findall("`(.*?)`", cell)
    ]
    here = {"experiment": {f.name for f in fields(Experiment)} | {f"fitness.{f.name}" for f in fields(Fitness)}}
    for agent, declaration in DESCRIBED.items():
        here[agent] = {f"hyper.{name}" for name in declaration.hyper._fields}
        here[agent] |= {f"config.{f.name}" for f in fields(declaration.config)}
    known = here["experiment"] | set(DESCRIBED) | {f"champion.{name}" for name in dir(shoal.Champion)}
    title = section.partition("\n")[0]
    about = [agent for agent in DESCRIBED if agent.upper() in title] or ["ppo"]
    assert words
    for agent in about:
        assert set(words) <= here[agent] | known, agent


OPTIONS = [(name, *row) for known in (SELECTORS, EXPLORERS) for name, kind in known.items() for row in rows_of(kind)]


@pytest.mark.parametrize(("name", "option", "default"), OPTIONS)
def test_every_option_is_described_with_its_default(name: str, option: str, default: Any) -> None:
    cells = f"| `{option}` | {as_written(default)} |".replace("|  |", "| |")
    described = TEXTS["docs/reference/methods.md"].split("\n## Selection\n", 1)[1].split(f"| `{name}` ", 1)[1]
    assert cells in described


HOW = [(name, *row) for name, kind in METHODS.items() for row in rows_of(kind)]


@pytest.mark.parametrize(("name", "option", "default"), HOW)
def test_every_option_of_a_method_is_described_with_its_default(name: str, option: str, default: Any) -> None:
    page = TEXTS[f"docs/reference/{METHOD_PAGES[name]}.md"]
    described = page.split(f"\n## {name}\n", 1)[1].split("\n## ", 1)[0]
    assert f"| `{option}` | {as_written(default)} |".replace("|  |", "| |") in described


@pytest.mark.parametrize(("name", "default"), EsHyper()._asdict().items())
def test_every_number_of_evolution_strategies_is_described(name: str, default: Any) -> None:
    assert f"| `{name}` | {as_written(default)} |" in TEXTS["docs/reference/evolution_strategies.md"]


@pytest.mark.parametrize("name", METHODS)
def test_every_method_is_introduced(name: str) -> None:
    assert f"| [`{name}`](" in TEXTS["docs/reference/methods.md"]


def test_networks_are_of_the_agents_that_have_their_fields() -> None:
    """The table of fields and agents."""
    table = re.findall(r"^\| (.*) \|$", TEXTS["docs/reference/networks.md"].partition("\n## ")[0], re.MULTILINE)
    head, _, *rows = ([cell.strip() for cell in row.split("|")] for row in table)
    for name, *told in rows:
        field = name.split("`")[1]
        having = ["yes" if field in {f.name for f in fields(DESCRIBED[agent].config)} else "" for agent in head[1:]]
        assert told == having, field


def test_every_term_of_the_glossary_leads_somewhere() -> None:
    terms = re.findall(r"^- \*\*.*", TEXTS["docs/reference/glossary.md"], re.MULTILINE)
    assert len(terms) > 90 and [term for term in terms if "](" not in term] == []


def test_every_public_name_is_in_its_group() -> None:
    table = TEXTS["docs/reference/python.md"].partition("\n## ")[0]
    assert sorted(name for name in re.findall(r"`(\w+)`", table)) == shoal.__all__


def test_every_extra_is_described() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert set(re.findall(r"^\| `(\w+)` \|", TEXTS["docs/reference/extras.md"], re.MULTILINE)) == set(extras)


def test_every_file_has_its_place_in_the_architecture() -> None:
    parts = [path for path in (ROOT / "src" / "shoal").iterdir() if path.suffix == ".py" or any(path.glob("*.py"))]
    names = [f"`{path.stem}`" if path.is_file() else f"`{path.name}/`" for path in parts if path.name[0] != "_"]
    assert [name for name in names if name not in TEXTS["docs/architecture.md"]] == []


def test_the_tree_of_the_architecture_has_every_file() -> None:
    (tree,) = re.findall(r"^```text\n(.*?)^```", TEXTS["docs/architecture.md"], re.DOTALL | re.MULTILINE)
    folders = dict(re.findall(r"^  (\w+)/ (.*?)(?=^  \w|\Z)", tree, re.DOTALL | re.MULTILINE))
    for folder in (path for path in (ROOT / "src" / "shoal").iterdir() if any(path.glob("*.py"))):
        files = {path.stem for path in folder.rglob("*.py") if path.stem != "__init__"}
        assert files <= {*re.findall(r"\w+", folders[folder.name])}, folder.name


@pytest.mark.parametrize("name", [*SELECTORS, *EXPLORERS])
@pytest.mark.parametrize("page", ["docs/reference/methods.md", "docs/explanation/pbt.md"])
def test_every_selector_and_explorer_is_described(name: str, page: str) -> None:
    assert f"| `{name}` |" in TEXTS[page]


@pytest.mark.parametrize("page", ["README.md", "docs/how-to/choose_a_method.md"])
def test_advice_has_the_figures_of_the_study(page: str) -> None:
    """Of `pbt` with 32 members against one agent, and against the best of 32."""
    row = r"\| pbt 32 \| (one agent|defaults 32) \| (\d+ %) "
    figures = dict(re.findall(row, TEXTS["docs/results/population.md"]))
    assert len(figures) == 2 and all(figure in TEXTS[page] for figure in figures.values())


def test_what_the_architecture_says_is_somewhere_is_there() -> None:
    """Of the table "where is": every file, and every name in brackets in the file before it."""
    table = TEXTS["docs/architecture.md"].partition("| where is |")[2].partition("\n\n")[0]
    named = re.findall(r"`(\w[\w/]*\.py)`(?: \((`\w+`(?:, `\w+`)*)\))?", table)
    assert len(named) > 25
    for file, names in named:
        text = (ROOT / "src/shoal" / file).read_text()
        assert [name for name in re.findall(r"\w+", names) if not re.search(rf"\b{name}\b", text)] == [], file


def test_what_a_package_index_shows_leads_nowhere_that_is_not_there() -> None:
    """README without links into the repository and pictures of it; what links outside remains."""
    told = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["metadata"]["hooks"][
        "fancy-pypi-readme"
    ]
    shown = TEXTS["README.md"]
    assert len(re.findall(r"\]\((?!https?:|#)", shown)) > 20 and "![" in shown
    for rule in told["substitutions"]:
        shown = re.sub(rule["pattern"], rule["replacement"], shown)
    assert [fragment["path"] for fragment in told["fragments"]] == ["README.md"]
    assert not re.findall(r"\]\((?!https?:|#)", shown) and "![" not in shown
    assert "[JAX](https://docs.jax.dev)" in shown and "[population-based training](docs" not in shown
    assert "population-based training (PBT)" in shown
