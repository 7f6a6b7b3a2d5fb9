"""The last lines that a command prints (results, advice, errors), and its exit code."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from signal import SIGINT
from typing import TYPE_CHECKING, Any

from shoal.core.errors import BadInput, shortened
from shoal.core.escape import in_shell, speakable, started_here
from shoal.core.interrupts import (
    BAD_INPUT,
    BY_SIGNAL,
    DONE,
    FAILED,
    Failed,
    Interrupted,
    described,
    ending,
    on_signal,
)
from shoal.records.screen import Output, Screen, styled
from shoal.records.words import error_text, many, text

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from shoal.records.callback import Callback
    from shoal.run.result import Result

WIDE = 1000  # characters in a line of a file or a pipe


@started_here()
def run_command(command: Callable[[], int]) -> int:
    """Run a command, print its error, return its exit code. Restores sys.path."""
    path = list(sys.path)
    for stream in (sys.stdout, sys.stderr):
        speakable(stream)
    try:
        code = command()
    except BadInput as error:
        code = fail(str(error), BAD_INPUT)
    except BrokenPipeError:  # as with `| head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = DONE
    except OSError as error:
        code = fail(shortened(described(error)), FAILED)
    except KeyboardInterrupt as heard:
        code = fail("interrupted", BY_SIGNAL + (heard.args or (SIGINT,))[0])
    finally:
        sys.path[:] = path
    return ending(code)


def fail(message: str, code: int) -> int:
    """Print an error in one line. Returns the code, which stays if nobody reads standard error or it is full."""
    screen = Output(stderr=True)
    try:
        screen.print(styled(("shoal:", "bold red"), f" {message}"), soft_wrap=True)
    except OSError:
        screen.on_broken_pipe()
    return code


class _UntilClosed(Screen):
    """Standard output that ends the command when its reader is gone, as with `| head`."""

    def on_broken_pipe(self) -> None:
        raise BrokenPipeError


def console() -> Screen:
    """Standard output of a command. Lines are never cut in a file or a pipe."""
    return _UntilClosed(width=None if sys.stdout.isatty() else WIDE)


def show(run: Callable[[Sequence[Callback]], Result], quiet: bool) -> int:
    """Run with a display and TensorBoard, and print the result. Returns the exit code."""
    from shoal.records.console import Display, SignalsOutsideRun
    from shoal.records.tensorboard import TensorBoard

    screen, signals = Output(), SignalsOutsideRun()
    with on_signal(signals.handle):
        try:
            result = run([Display(screen, quiet), TensorBoard(), signals])
        except Interrupted as stopped:
            if stopped.leading:
                screen.print(f"{stopped}{trusted(stopped.run_dir)}", soft_wrap=True)  # the message ends with a command
            return ending(stopped.code)
        except Failed as error:
            return ending(fail(f"{error}{trusted(error.run_dir)}", FAILED))
        return ending(_print_result(result, screen) if result.leading else DONE)


def trusted(run: Path) -> str:
    """The flag `--trust-code` with a space before it, if commands on this run need it."""
    from shoal.experiment.files import of_run
    from shoal.experiment.trust import PLACES, code_at

    try:
        experiment = of_run(run)
    except BadInput:
        return ""
    return " --trust-code" if any(code_at(experiment, place) for place in PLACES) else ""


def selection_bias(champion: Mapping[str, Any]) -> str:
    """Advice if the fitness of a champion at selection exceeds its held-out return by three standard errors; else empty.

    champion: that of result.json
    """
    levels = champion.get("levels", {"train": champion["evaluation"]})
    # The highest of train and validation levels: overfitting to levels is no selection bias.
    played = [x for name, x in levels.items() if name != "test" and x["mean"] is not None]
    if not played:
        return ""
    new = max(played, key=lambda x: x["mean"])
    lost, error = champion["selection_fitness"] - new["mean"], new["standard_error"] or 0.0
    if not lost > 3 * error > 0:
        return ""
    return (
        f"selection bias: fitness at selection was {error_text(lost)} above the held-out mean; raise fitness.episodes"
    )


def scored(tested: Mapping[str, Any]) -> str:
    """Mean return and standard error of a final evaluation, or exploitability."""
    if tested["mean"] is None:
        return "no return"
    if tested.get("exact"):
        return f"exploitability {text(-tested['mean'])}"
    error = tested["standard_error"]
    return text(tested["mean"]) + ("" if error is None else f" ± {error_text(error)} (standard error)")


def to_watch(run: Path, champion: Mapping[str, Any]) -> tuple[str, str]:
    """The label and the command that show a champion: as a video, or its games in the terminal.

    champion: that of result.json
    """
    exact, play = champion["evaluation"].get("exact"), f"shoal play {in_shell(run)}"
    return ("games", f"{play}{trusted(run)}") if exact else ("video", f"{play} --video champion.mp4{trusted(run)}")


def _print_result(result: Result, screen: Screen) -> int:
    """Print the champion, and commands for the report, curves and video. Returns the exit code."""
    from shoal.report.page import write_report
    from shoal.report.reliability import reliability
    from shoal.report.run import read_run

    summary, champion = result.summary, result.summary["champion"]
    if champion is not None and not result.already:
        test = champion["evaluation"]
        line = styled(
            *("champion: ", (scored(test), "bold")),
            " " if test.get("exact") else f" on {many(test['episodes'], 'held-out episode')} ",
            f"({text(champion['selection_fitness'])} when selected); {summary['environment_steps']:,} training steps "
            f"and {summary['evaluation_steps']:,} evaluation steps in "
            f"{summary['seconds']:.0f} s, of which compiling {summary['compile_seconds']:.0f} s",
        )
        screen.print(line, soft_wrap=True)
        if "levels" in champion:
            on_levels = (f"{name} {scored(tested)}" for name, tested in champion["levels"].items())
            screen.print(f"on levels: {', '.join(on_levels)}", soft_wrap=True)
        if advice := selection_bias(champion):
            screen.print(advice, soft_wrap=True)
        if (trust := reliability(read_run(result.run_dir))) and trust.truth < 0.5:
            screen.print(f"evaluation noise: {trust.describe()}", soft_wrap=True)
    try:
        page = write_report(result.run_dir)
    except OSError as error:
        again = f"try again with: shoal report {in_shell(result.run_dir)}"
        return fail(f"the run is done, but its report was not written: {described(error)}; {again}", FAILED)
    if champion is None:
        return fail("all members diverged: none ever had a finite fitness", FAILED)
    curves = result.run_dir / "tensorboard"
    for name, command in (
        ("report", f"open {in_shell(page)}"),
        *([("curves", f"tensorboard --logdir {in_shell(curves)}")] if curves.is_dir() else []),
        to_watch(result.run_dir, champion),
    ):
        screen.print(f"{f'{name}:':13} {command}", soft_wrap=True)
    return DONE
