"""The `shoal` command. Each subcommand is a function; its signature and docstring are its help."""

from __future__ import annotations

import sys
from itertools import chain
from pathlib import Path
from typing import Annotated, Any, Literal

from tyro.conf import Positional, arg

from shoal.commands.arguments import Command, call, isaac_arguments, one_by_one
from shoal.commands.endings import code_of, console, say, scored, show
from shoal.commands.flags import (
    NO_ISAAC_FLAGS,
    NOTHING,
    File,
    Flags,
    IsaacFlags,
    Quiet,
    Run,
    Set,
    Settings,
    Trust,
    Whole,
    assignments,
    changeable,
    flag,
    look_here,
    stated,
)
from shoal.core.escape import in_shell
from shoal.core.interrupts import BAD_INPUT, DONE, FAILED, INTERRUPTED, Failed, Interrupted, ending
from shoal.records.screen import Output

OVERVIEW = """Train a population of reinforcement-learning agents that learn from one another.

First steps: `shoal train cartpole`, then open the page that it names. `shoal experiments` lists what comes with Shoal,
`shoal init cartpole` copies one to be edited. `shoal COMMAND --help` explains a command, `shoal --version` says which Shoal
this is."""


def train(file: File = None, flags: Flags = NOTHING, set: Set = (), quiet: Quiet = False) -> int:
    """Train a population from a file, from flags, or both.

    Writes a run directory: records, checkpoints, the champion. Ctrl-C stops it so that `shoal resume` goes on exactly.
    """
    from shoal.experiment.files import blame
    from shoal.run.loop import train as start

    experiment, changed = stated(file, flags, set)
    with blame(file, changed, always=False):
        return show(lambda callbacks: start(experiment, callbacks), quiet)


def resume(
    run: Run,
    generations: Annotated[Whole, flag("N", "go on to this many generations in all")] = None,
    set: Annotated[Settings, changeable()] = (),
    trust_code: Trust = False,
    quiet: Quiet = False,
) -> int:
    """Continue a run that was stopped, or give a finished one more generations."""
    from shoal.experiment.changes import check_changes
    from shoal.experiment.files import assign, of_run
    from shoal.run.loop import resume as run_again

    look_here(trust_code)
    before, given = of_run(run), assignments(set)
    experiment = assign(before, given) if given else before
    check_changes(before, experiment)
    fields = {path.partition(".")[0] for path in given}
    more = {name: x for name in fields if (x := getattr(experiment, name)) != getattr(before, name)}
    generations = more.pop("generations", generations)
    return show(lambda callbacks: run_again(run, generations, callbacks, trust_code, **more), quiet)


def evaluate(
    run: Run,
    episodes: Annotated[int, flag("N", "episodes to play, all on fresh seeds")] = 100,
    seed: Annotated[int, flag("N", "which fresh seeds")] = 0,
    levels: Annotated[
        str | None, flag("NAME", "of a run with levels: train, validation or test (default: test)")
    ] = None,
    trust_code: Trust = False,
) -> int:
    """Let the champion of a run play whole episodes and print what they returned."""
    from shoal.commands.evaluate import evaluate as play_episodes

    look_here(trust_code)
    with console().status("playing"):
        outcome = play_episodes(run, episodes, seed, trust_code, levels)
    console().print(
        f"{scored(outcome)} over {outcome['episodes']} episodes "
        f"(lowest {outcome['min']:.4g}, highest {outcome['max']:.4g}); "
        f"when selected it had {outcome['selection_fitness']:.4g}",
    )
    return DONE


def play(
    run: Run,
    video: Annotated[
        Path,
        flag("PATH", "where to write it: .mp4, .gif, or .html for a page that shows a body of brax from all sides"),
    ] = Path("champion.mp4"),
    episodes: Annotated[int, flag("N", "episodes to record")] = 1,
    seed: Annotated[int, flag("N", "which episodes")] = 0,
    population: Annotated[bool, flag(None, "record all members, side by side in the same episodes")] = False,
    trust_code: Trust = False,
) -> int:
    """Record a video of the champion of a run, or of all its members."""
    from shoal.commands.video import record_video

    look_here(trust_code)
    with console().status("recording"):
        returns = record_video(run, video, episodes, seed, trust_code, population)
    console().print(f"{video}: {', '.join(f'{r:.4g}' for r in returns)}", soft_wrap=True)
    return DONE


def export(
    run: Run,
    file: Annotated[Path, Positional, flag("FILE", "policy.onnx, policy.npz, or a trainer's own")],
    trust_code: Trust = False,
) -> int:
    """Write the champion as a file for other programs, such as those of a robot.

    .onnx: observations go in, actions come out; onnxruntime checks it against Shoal before it is written. .npz: the
    weights alone. A champion of a trainer is written as its library saves it: sb3:PPO as a zip that PPO.load reads.
    """
    from shoal.commands.export import export as write

    look_here(trust_code)
    console().print(f"written: {', '.join(write(run, file, trust_code))}", soft_wrap=True)
    return DONE


def report(
    run: Annotated[Path, Positional, flag("RUN", "a run directory, a workspace, or a study")],
    watch: Annotated[bool, flag(None, "show the workers of a workspace as they go")] = False,
    serve: Annotated[
        bool, flag(None, "show the page in a browser on this machine, renewed as the run goes on")
    ] = False,
    port: Annotated[int, flag("N", "where it is served; 0: any port that is free")] = 0,
) -> int:
    """Write RUN/report.html: how the population learned, on one page that needs no network.

    Of a workspace that workers share, the page tells of all of them; of a study, which arm is better, and how sure that is.
    """
    from shoal.commands.serve import serve as serve_page
    from shoal.report.page import write_report
    from shoal.report.workspace import watch_workspace
    from shoal.study.page import write_page
    from shoal.study.results import is_study

    if watch:
        watch_workspace(run, console())
    write = write_page if is_study(run) else write_report
    if serve:
        serve_page(run, write, port, console())
    console().print(f"open {in_shell(write(run))}", soft_wrap=True)
    return DONE


def runs(
    folder: Annotated[Path, Positional, flag("[DIR]", "the folder to look in, with all below it")] = Path("runs"),
) -> int:
    """List the runs below a folder: environment, method, score, steps, status and date, the latest last."""
    from shoal.commands.runs import list_runs

    list_runs(folder, console())
    return DONE


def compare(
    runs: Annotated[tuple[Path, ...], Positional, flag("RUN ...", "run directories, or workspaces")],
    out: Annotated[Path, flag("PATH", "where to write the page")] = Path("comparison.html"),
) -> int:
    """Write one page on several runs: their curves on the same axes, their champions, and what differs between them."""
    from shoal.records.screen import plain_table
    from shoal.report.comparison import write_comparison

    heads, *rows = write_comparison(runs, out)
    table = plain_table(*heads)
    for row in rows:
        table.add_row(*row)
    console().print(table)
    console().print(f"open {in_shell(out)}", soft_wrap=True)
    return DONE


def schedule(run: Run, format: Annotated[Literal["csv", "yaml", "json"], flag(None, "how to print it")] = "csv") -> int:
    """Print the hyperparameters that led to the champion, generation by generation."""
    from shoal.report.schedule import print_schedule

    print_schedule(run, format, sys.stdout)
    return DONE


def replay(
    run: Run,
    file: Annotated[
        Path | None,
        Positional,
        flag("[EXPERIMENT]", "an experiment file; its agent and environment are trained instead of those of RUN"),
    ] = None,
    run_dir: Annotated[str | None, flag("PATH", "where the new run is written (default: RUN-replay)")] = None,
    population: Annotated[int, flag("N", "agents to train, each on its own seeds")] = 1,
    generations: Annotated[
        Whole,
        flag("N", "to train for; after the schedule's end with its last values (default: those of the schedule)"),
    ] = None,
    seed: Annotated[Whole, flag("N", "its seed (default: that of RUN, plus 1)")] = None,
    trust_code: Trust = False,
    quiet: Quiet = False,
) -> int:
    """Train a single agent with the schedule of hyperparameters that a run found.

    The agent may be another one, such as Shoal's own ppo where RUN had sb3:PPO: what it has under another name is renamed.
    """
    from shoal.study.replay import replay as run_schedule

    look_here(trust_code)
    how = {"population": population, "generations": generations, "seed": seed, "trust_code": trust_code}
    return show(lambda callbacks: run_schedule(run, file=file, run_dir=run_dir, callbacks=callbacks, **how), quiet)


def study(
    file: Annotated[Path, Positional, flag("FILE", "a study file, or the name of one that comes with Shoal")],
    workspace: Annotated[Path | None, flag("DIR", "where its runs are written (default: studies/NAME)")] = None,
    quiet: Quiet = False,
) -> int:
    """Compare arms of an experiment over several seeds, at equal steps: runs, statistics, one page.

    Can be stopped and started again; started several times, also on other machines that see the directory, each process
    takes what nobody has taken.
    """
    from shoal.commands.shipped import found
    from shoal.study.compare import seeds_summary
    from shoal.study.cost import costs, summary, unlike
    from shoal.study.page import write_page
    from shoal.study.results import read_results
    from shoal.study.scheduler import run_study

    look_here()
    screen = Output()
    again = f"go on with: shoal study {in_shell(file)}{f' --workspace {in_shell(workspace)}' if workspace else ''}"
    try:
        path, failed = run_study(found(file, study=True), workspace, screen, quiet)
    except (Interrupted, KeyboardInterrupt):
        ending(INTERRUPTED)
        screen.print(f"interrupted; {again}", soft_wrap=True)
        return INTERRUPTED
    except Failed as error:  # the disk is full
        return say(f"{error.reason}; when that is mended, {again}", FAILED)
    results = read_results(path)
    cost = costs(results)
    for line in filter(None, (*([] if quiet else [seeds_summary(results), *summary(cost)]), *unlike(cost))):
        screen.print(line, soft_wrap=True)
    screen.print(f"look at it: open {in_shell(write_page(path))}", soft_wrap=True)
    return FAILED if failed else DONE


def toy(
    seeds: Annotated[int, flag("N", "runs of each arm for the table")] = 100,
    out: Annotated[Path, flag("PATH", "where to save the picture: .png, .svg or .pdf")] = Path("toy.png"),
) -> int:
    """Reproduce figure 2 of the PBT paper: why copying and exploring together find what neither finds alone."""
    from shoal.commands.toy import main as run_toy

    run_toy(out, seeds, console())
    return DONE


def import_(
    kind: Annotated[Literal["isaac"], Positional, flag("isaac", "what the file is of")],
    file: Annotated[Path, Positional, flag("FILE", "the file of a task's agent for rl_games")],
    overrides: Annotated[
        tuple[str, ...], Positional, flag("[NAME=VALUE ...]", "as Isaac Lab takes them: agent.pbt.num_policies=4")
    ] = (),
    task: Annotated[str | None, flag("ID", "the task, such as Isaac-Cartpole-v0")] = None,
    workers: Annotated[int, flag("N", "machines that will share a directory")] = 1,
    flags: Annotated[Any, arg(constructor=IsaacFlags)] = NO_ISAAC_FLAGS,
    out: Annotated[Path | None, flag("OUT", "where to write it (default: it is printed)", "-o")] = None,
) -> int:
    """Make an experiment file of what Isaac Lab's population-based training is told."""
    from shoal.commands.import_isaac import translate

    text = translate(file, overrides, task, workers, flags)
    if out is None:
        sys.stdout.write(text)
    else:
        out.write_text(text, encoding="utf-8")
        console().print(f"look at it, then: shoal train {in_shell(out)}", soft_wrap=True)
    return DONE


import_.__name__ = "import"  # which Python keeps for itself


def envs(
    pattern: Annotated[
        str,
        Positional,
        flag(
            "[PATTERN]",
            "only ids that contain this; of a whole id, or module:name of one's own, what agents see and its parameters",
        ),
    ] = "",
) -> int:
    """List the environments that are installed; of one, what agents see of it, and its numbers that can be tuned."""
    from shoal.commands.envs import tell

    look_here()
    tell(pattern, console())
    return DONE


def experiments() -> int:
    """List the experiments and studies that come with Shoal, which `shoal train` and `shoal study` take by name."""
    from shoal.commands.shipped import tell

    tell(console())
    return DONE


def init(
    name: Annotated[str, Positional, flag("NAME", "one that `shoal experiments` lists, or a folder of them")],
) -> int:
    """Copy an experiment that comes with Shoal to this folder, to be edited."""
    from shoal.commands.shipped import copy

    made, command = copy(name)
    console().print(f"written: {', '.join(map(in_shell, made))}; edit it, then: {command}", soft_wrap=True)
    return DONE


def agents(
    name: Annotated[str, Positional, flag("[AGENT]", "one of them, to see its hyperparameters and its config")] = "",
) -> int:
    """List the agents that Shoal has itself; of one, its hyperparameters, the ranges that are tuned, and its structure."""
    from shoal.commands.agents import tell

    tell(name, console())
    return DONE


def doctor(file: File = None, flags: Flags = NOTHING, set: Set = ()) -> int:
    """Check an experiment before a long run."""
    from shoal.commands.doctor.examine import examine
    from shoal.experiment.files import blame

    experiment, changed = stated(file, flags, set)
    given = [(f"--{name.replace('_', '-')}", str(value)) for name, value in vars(flags).items() if value is not None]
    again = [*([str(file)] if file else []), *chain(*given), *chain(*(("--set", part) for part in set))]
    with blame(file, changed, always=False):
        return DONE if examine(experiment, again, console()) else BAD_INPUT


COMMANDS: tuple[Command, ...] = (
    *(train, resume, evaluate, play, export, report, schedule, replay, study, import_, toy),
    *(runs, compare, experiments, init, envs, agents, doctor),
)


def main(arguments: list[str] | None = None) -> None:
    """Exits with 0 done, 1 failed, 2 bad input, 3 interrupted and resumable, 130 interrupted with nothing to resume."""
    given = sys.argv[1:] if arguments is None else arguments
    words = isaac_arguments(given) if given[:1] == ["import"] else one_by_one(given)
    sys.exit(code_of(lambda: call(COMMANDS, OVERVIEW, words)))
