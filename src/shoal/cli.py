"""The `shoal` command. Each subcommand is a function; its signature and docstring are its help."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Literal

from tyro.conf import Positional

from shoal.commands.arguments import Command, call, one_by_one
from shoal.commands.flags import (
    NOTHING,
    Count,
    Fields,
    File,
    Generation,
    Member,
    Quiet,
    Run,
    Seeds,
    Set,
    Settings,
    Stochastic,
    Trust,
    Whole,
    assignments,
    changeable,
    flag,
    look_here,
    stated,
    words,
)
from shoal.commands.isaac_flags import isaac_arguments
from shoal.commands.launch import ALONE, Workers, launch_workers
from shoal.commands.launch import stop as stop_workers
from shoal.commands.multi_run import show_comparison, show_seeds, show_study
from shoal.commands.output import console, run_command, scored, show
from shoal.commands.tools import agents, envs, experiments, import_, init, runs, toy
from shoal.core.errors import BadInput
from shoal.core.escape import in_shell
from shoal.core.interrupts import BAD_INPUT, DONE
from shoal.records.words import many, text

OVERVIEW = """Train a population of reinforcement-learning agents that learn from one another.

First steps: `shoal train cartpole`, then open the report that it names. `shoal experiments` lists the experiments that
come with Shoal; `shoal init cartpole` copies one for editing. `shoal COMMAND --help` explains a command, and
`shoal --version` prints the version."""


def train(
    file: File = None,
    flags: Fields = NOTHING,
    seeds: Seeds = None,
    set: Set = (),
    launch: Workers = ALONE,
    quiet: Quiet = False,
) -> int:
    """Train a population from a file, from flags, or both.

    Writes a run directory: records, checkpoints, the champion. After Ctrl-C, `shoal resume` continues it.
    `--seeds` trains one run per seed. `--workers` starts several workers that share a workspace. The same command resumes
    both.
    """
    from shoal.experiment.files import attribute_errors

    launch.check(flags, seeds)
    if launch.workers is not None:
        return launch_workers(file, flags, set, launch, quiet)
    experiment, changed = stated(file, flags, set)
    from shoal.run.train import train as start

    with attribute_errors(file, changed, always=False):
        if seeds is not None:
            return show_seeds(experiment, seeds, changed, quiet)
        return show(lambda callbacks: start(experiment, callbacks), quiet)


def resume(
    run: Run,
    generations: Annotated[Whole, flag("N", "total number of generations")] = None,
    time_limit: Annotated[str | None, flag("TIME", "total time, including earlier starts: 90s, 30m, 2h, 1d")] = None,
    set: Annotated[Settings, changeable()] = (),
    trust_code: Trust = False,
    quiet: Quiet = False,
) -> int:
    """Continue a run that was stopped, or train a finished one for more generations or longer."""
    from shoal.experiment.changes import check_changes
    from shoal.experiment.files import assign, of_run

    look_here(trust_code)
    before, given = of_run(run), assignments(set) | ({} if time_limit is None else {"time_limit": time_limit})
    experiment = assign(before, given) if given else before
    check_changes(before, experiment)
    from shoal.run.train import resume as run_again

    fields = {path.partition(".")[0] for path in given}
    more = {name: x for name in fields if (x := getattr(experiment, name)) != getattr(before, name)}
    set_too = more.pop("generations", None)  # as with time_limit, the flag of its own wins
    generations = set_too if generations is None else generations
    return show(lambda callbacks: run_again(run, generations, callbacks, trust_code, **more), quiet)


def evaluate(
    run: Run,
    episodes: Annotated[Whole, flag("N", "held-out episodes (default: 100)")] = None,
    seed: Annotated[Whole, flag("N", "seed of the episodes (default: 0)")] = None,
    levels: Annotated[str | None, flag("NAME", "with levels: train, validation or test (default: test)")] = None,
    member: Member = None,
    generation: Generation = None,
    stochastic: Stochastic = False,
    against: Annotated[Path | None, flag("RUN", "for a game: payoff against the champion of this run")] = None,
    trust_code: Trust = False,
) -> int:
    """Evaluate the champion of a run, or another member, on held-out episodes; for a game, its exploitability."""
    from shoal.run.evaluation import evaluate as play_episodes

    look_here(trust_code)
    if against is not None:
        from shoal.commands.games import show_payoff

        if stochastic or any(given is not None for given in (episodes, seed, levels)):
            raise BadInput("a payoff is exact: leave out --episodes, --seed, --levels and --stochastic")
        return show_payoff(run, against, trust_code, member, generation)
    with console().status("evaluating"):
        outcome = play_episodes(run, episodes, seed, trust_code, levels, member, generation, stochastic)
    fitness, extremes = outcome["selection_fitness"], f"(lowest {text(outcome['min'])}, highest {text(outcome['max'])})"
    how = "exactly" if outcome.get("exact") else f"over {many(outcome['episodes'], 'episode')} {extremes}"
    selected = "" if fitness is None else f"; {text(fitness)} when selected"
    console().print(f"{scored(outcome)} {how}{selected}")
    return DONE


def play(
    run: Run,
    video: Annotated[
        Path | None,
        flag("PATH", "the file: .mp4, .gif, or .html for a brax environment (default: champion.mp4)"),
    ] = None,
    episodes: Annotated[Count, flag("N", "episodes to play")] = 1,
    seed: Annotated[Count, flag("N", "seed of the episodes")] = 0,
    population: Annotated[bool, flag(None, "all members, side by side in the same episodes")] = False,
    live: Annotated[bool, flag(None, "show them in a window, and record nothing")] = False,
    member: Member = None,
    generation: Generation = None,
    stochastic: Stochastic = False,
    player: Annotated[Literal[0, 1] | None, flag("N", "for a game: play as this player, 0 or 1")] = None,
    trust_code: Trust = False,
) -> int:
    """Record a video of the champion of a run, of another member, or of all; or show them in a window.

    A game is printed move by move. With --player you play it in the terminal, against the champion.
    """
    from shoal.commands.video import play as show_episodes
    from shoal.core.schema import at_least
    from shoal.experiment.files import of_run

    look_here(trust_code)
    at_least(1, episodes, "episodes")
    at_least(0, seed, "seed")
    if live and video is not None:
        raise BadInput(f"--video {video}: --live records nothing; give one of the two")
    if player is not None or of_run(run).fitness.exact:
        from shoal.commands.games import load_player, show_games

        if video is not None or live or population or stochastic:
            raise BadInput("a game is printed: leave out --video, --live, --population and --stochastic")
        return show_games(load_player(run, trust_code, member, generation), range(seed, seed + episodes), player)
    which, video = (population, member, generation, stochastic), video or Path("champion.mp4")
    with console().status("playing" if live else "recording"):
        returns = show_episodes(run, None if live else video, episodes, seed, trust_code, *which)
    found = ", ".join(map(text, returns)) or "closed before an episode had ended"
    console().print(f"{run if live else video}: {found}", soft_wrap=True)
    return DONE


def export(
    run: Run,
    file: Annotated[Path, Positional, flag("FILE", "policy.onnx, policy.npz, or a file of the trainer")],
    member: Member = None,
    generation: Generation = None,
    stochastic: Annotated[
        bool, flag(None, "sample actions, as in training, from random numbers that the file takes as an input")
    ] = False,
    trust_code: Trust = False,
) -> int:
    """Write the champion, or another member, as a file for other programs.

    FILE.onnx has the policy, from observations to actions, checked against Shoal with onnxruntime; FILE.npz the weights.
    The champion of an external trainer is saved by its library: sb3:PPO as a zip that PPO.load reads.
    """
    from shoal.commands.export import export as write

    look_here(trust_code)
    console().print(
        f"written: {', '.join(write(run, file, trust_code, member, generation, stochastic))}", soft_wrap=True
    )
    return DONE


def report(
    run: Annotated[Path, Positional, flag("RUN", "a run directory, a workspace, or a study")],
    watch: Annotated[bool, flag(None, "show the workers of a workspace while they run")] = False,
    serve: Annotated[
        bool, flag(None, "serve the report on this machine and reload it while the run continues")
    ] = False,
    port: Annotated[Whole, flag("N", "port of the server (default: any free port)")] = None,
) -> int:
    """Write RUN/report.html: how the population learned, in one HTML file that works offline.

    The report of a workspace shows all workers; the report of a study compares its arms.
    """
    from shoal.commands.serve import serve as serve_page
    from shoal.report.page import write_report
    from shoal.report.workers import watch_workspace
    from shoal.study.page import write_page
    from shoal.study.results import is_study

    if port is not None and not serve:
        raise BadInput(f"--port {port} is of the server: it goes with --serve")
    if watch:
        watch_workspace(run, console())
    write = write_page if is_study(run) else write_report
    if serve:
        serve_page(run, write, port or 0, console())
    console().print(f"open {in_shell(write(run))}", soft_wrap=True)
    return DONE


def compare(
    runs: Annotated[tuple[Path, ...], Positional, flag("RUN ...", "run directories, or workspaces")],
    out: Annotated[Path, flag("PATH", "where to write the report")] = Path("comparison.html"),
) -> int:
    """Write a report that compares runs: learning curves on the same axes, champions, and differences in settings."""
    return show_comparison(runs, out, console())


def schedule(run: Run, format: Annotated[Literal["csv", "yaml", "json"], flag(None, "output format")] = "csv") -> int:
    """Print the hyperparameters that led to the champion, generation by generation, counted from 1."""
    from shoal.report.schedule import print_schedule

    print_schedule(run, format, sys.stdout)
    return DONE


def replay(
    run: Run,
    file: Annotated[
        Path | None,
        Positional,
        flag(
            "[EXPERIMENT]",
            "an experiment file, or the name of one that comes with Shoal; its agent and environment replace those of RUN",
        ),
    ] = None,
    run_dir: Annotated[str | None, flag("PATH", "directory of the new run (default: RUN-replay)")] = None,
    population: Annotated[Count, flag("N", "agents to train, each with its own seed")] = 1,
    generations: Annotated[
        Whole, flag("N", "generations; the last values hold after the end of the schedule (default: its length)")
    ] = None,
    seed: Annotated[Whole, flag("N", "seed of the new run (default: that of RUN, plus 1)")] = None,
    trust_code: Trust = False,
    quiet: Quiet = False,
) -> int:
    """Train a single agent with the schedule of hyperparameters that a run found.

    The agent may be another one, such as ppo for a run of sb3:PPO: hyperparameters are renamed where names differ.
    """
    from shoal.commands.bundled_experiments import find_experiment
    from shoal.study.replay import replay as run_schedule

    look_here(trust_code)
    file = None if file is None else find_experiment(file)
    how = {"population": population, "generations": generations, "seed": seed, "trust_code": trust_code}
    return show(lambda callbacks: run_schedule(run, file=file, run_dir=run_dir, callbacks=callbacks, **how), quiet)


def study(
    file: Annotated[Path, Positional, flag("FILE", "a study file, or the name of one that comes with Shoal")],
    workspace: Annotated[Path | None, flag("DIR", "directory of its runs (default: studies/NAME)")] = None,
    quiet: Quiet = False,
) -> int:
    """Compare arms of an experiment over several seeds, at equal steps: runs, statistics, and a report.

    It can be stopped and started again. Several processes, also on machines that share the directory, divide the runs.
    """
    look_here()
    return show_study(file, workspace, quiet)


def doctor(
    file: File = None,
    flags: Fields = NOTHING,
    set: Set = (),
    members: Annotated[
        bool, flag(None, "measure how many members train nearly as fast as one on this machine")
    ] = False,
) -> int:
    """Check an experiment before a long run."""
    from shoal.experiment.files import attribute_errors

    experiment, changed = stated(file, flags, set)
    from shoal.commands.doctor.examine import examine

    with attribute_errors(file, changed, always=False):
        return DONE if examine(experiment, words(file, flags, set), console(), members) else BAD_INPUT


def status(
    workspace: Annotated[Path, Positional, flag("WORKSPACE", "the directory that workers share")],
) -> int:
    """Show the workers of a workspace: process and start, progress, and what each copied from others."""
    from shoal.report.workers import status as table

    console().print(table(workspace))
    return DONE


def stop(workspace: Annotated[Path, Positional, flag("WORKSPACE", "the directory that workers share")]) -> int:
    """Stop the workers of a workspace on all machines: each saves and exits after its generation, and can be resumed."""
    return stop_workers(workspace)


COMMANDS: tuple[Command, ...] = (
    *(train, resume, evaluate, play, export, report, schedule, replay, study, import_, toy),
    *(status, stop, runs, compare, experiments, init, envs, agents, doctor),
)


def main(arguments: list[str] | None = None) -> None:
    """Exits with 0 done, 1 failed, 2 bad input, 3 interrupted and resumable, 130 interrupted with nothing to resume."""
    given = sys.argv[1:] if arguments is None else arguments
    words = isaac_arguments(given) if given[:1] == ["import"] else one_by_one(given)
    sys.exit(run_command(lambda: call(COMMANDS, OVERVIEW, words)))
