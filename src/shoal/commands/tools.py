"""Subcommands that need no run: lists, templates, the toy problem, and the import of Isaac Lab's configurations."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any, Literal

from tyro.conf import Positional, arg

from shoal.commands.flags import Count, flag, look_here
from shoal.commands.isaac_flags import NO_ISAAC_FLAGS, IsaacFlags
from shoal.commands.output import console
from shoal.core.atomic import check_target
from shoal.core.errors import BadInput
from shoal.core.escape import in_shell
from shoal.core.interrupts import DONE


def runs(
    folder: Annotated[Path, Positional, flag("[DIR]", "the folder to search, with all its subfolders")] = Path("runs"),
) -> int:
    """List the runs in a folder: environment, method, agent, score, steps, status and date, the latest last."""
    from shoal.commands.runs import list_runs

    list_runs(folder, console())
    return DONE


def toy(
    seeds: Annotated[Count, flag("N", "runs per arm in the table")] = 100,
    out: Annotated[Path, flag("PATH", "the figure: .png, .svg or .pdf")] = Path("toy.png"),
) -> int:
    """Reproduce figure 2 of the PBT paper: two members that copy and explore reach an optimum that grid search misses."""
    from shoal.commands.toy import main as run_toy

    run_toy(out, seeds, console())
    return DONE


def import_(
    kind: Annotated[Literal["isaac"], Positional, flag("isaac", "the kind of file")],
    file: Annotated[Path, Positional, flag("FILE", "the agent file of a task, for rl_games")],
    overrides: Annotated[
        tuple[str, ...],
        Positional,
        flag("[NAME=VALUE ...]", "overrides in the form of Isaac Lab: agent.pbt.num_policies=4"),
    ] = (),
    task: Annotated[str | None, flag("ID", "the task, such as Isaac-Cartpole-v0")] = None,
    workers: Annotated[Count, flag("N", "machines that share a directory")] = 1,
    flags: Annotated[Any, arg(constructor=IsaacFlags, name="Isaac Lab")] = NO_ISAAC_FLAGS,
    out: Annotated[Path | None, flag("OUT", "the experiment file (default: print it)", "-o")] = None,
) -> int:
    """Convert a configuration of Isaac Lab's population-based training to an experiment file."""
    from shoal.commands.import_isaac import translate

    if out is not None:
        check_target(out)
        if out.resolve() == file.resolve():
            raise BadInput(f"{out} cannot be written: the experiment reads it")
    text = translate(file, overrides, task, workers, flags)
    if out is None:
        sys.stdout.write(text)
    else:
        out.write_text(text, encoding="utf-8")
        console().print(f"written: {in_shell(out)}; check it, then: shoal train {in_shell(out)}", soft_wrap=True)
    return DONE


import_.__name__ = "import"  # a keyword of Python


def envs(
    pattern: Annotated[
        str,
        Positional,
        flag("[PATTERN]", "part of an id; a whole id or module:name is described"),
    ] = "",
) -> int:
    """List the installed environments, or describe one: observations, actions, metrics, environment parameters."""
    from shoal.commands.envs import list_environments

    look_here()
    list_environments(pattern, console())
    return DONE


def experiments() -> int:
    """List the experiments and studies that come with Shoal; `shoal train` and `shoal study` take their names."""
    from shoal.commands.bundled_experiments import list_experiments

    list_experiments(console())
    return DONE


def init(
    name: Annotated[str, Positional, flag("NAME", "an experiment that `shoal experiments` lists, or a folder of them")],
) -> int:
    """Copy an experiment that comes with Shoal to this folder, for editing."""
    from shoal.commands.bundled_experiments import copy

    made, command = copy(name)
    console().print(f"written: {', '.join(map(in_shell, made))}; edit it, then: {command}", soft_wrap=True)
    return DONE


def agents(
    name: Annotated[str, Positional, flag("[AGENT]", "the agent to describe")] = "",
    env: Annotated[
        str | None, flag("ID", "for an external trainer: the environment that it is made with (default: CartPole-v1)")
    ] = None,
    python: Annotated[
        str | None, flag("PATH", "for an external trainer: the interpreter (default: Shoal's own)")
    ] = None,
) -> int:
    """List Shoal's own agents, or describe one: hyperparameters, ranges that are tuned by default, config.

    Of an external trainer, such as sb3:PPO: the hyperparameters that can change during a run, and what else config sets.
    """
    from shoal.commands.agents import describe_trainer, list_agents
    from shoal.trainers.trainers import is_trainer

    look_here()
    if is_trainer(name, python):
        describe_trainer(name, env or "CartPole-v1", python, console())
    elif env is None and python is None:
        list_agents(name, console())
    else:
        raise BadInput("--env and --python are for an external trainer, such as shoal agents sb3:PPO")
    return DONE
