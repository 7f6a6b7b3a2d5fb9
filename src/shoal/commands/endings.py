"""How a command ends: what it says on the screen, and its exit code."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from signal import SIGINT
from typing import TYPE_CHECKING, Any

from shoal.core.errors import BadInput, shortened
from shoal.core.escape import in_shell, speakable
from shoal.core.interrupts import BAD_INPUT, BY_SIGNAL, DONE, FAILED, Failed, Interrupted, described, ending, on_signal
from shoal.records.screen import Output, Screen, styled

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import TextIO

    from shoal.records.callback import Callback
    from shoal.run.loop import Result

WIDE = 1000  # characters in a line of a file or a pipe


class Unheard:
    """Standard error which nobody may read any more: what cannot be said is lost, and the exit code is not."""

    def __init__(self, stream: TextIO):
        self._stream = stream

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def write(self, text: str) -> int:
        self._try(self._stream.write, text)
        return len(text)

    def flush(self) -> None:
        self._try(self._stream.flush)

    def _try(self, do: Callable[..., object], *given: str) -> None:
        try:
            do(*given)
        except OSError:  # what is left in its buffer must go somewhere, or Python fails when it ends
            os.dup2(os.open(os.devnull, os.O_WRONLY), self._stream.fileno())


def code_of(command: Callable[[], int]) -> int:
    """Run a command, say what went wrong, and return its exit code. The search path and standard error stay as they were."""
    path, errors = list(sys.path), sys.stderr
    for stream in (sys.stdout, sys.stderr):
        speakable(stream)
    if errors is not None:  # else it was closed when the command began
        sys.stderr = Unheard(errors)
    try:
        code = command()
    except BadInput as error:
        code = say(str(error), BAD_INPUT)
    except BrokenPipeError:  # whoever read the output has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = DONE
    except OSError as error:
        code = say(shortened(described(error)), FAILED)
    except KeyboardInterrupt as heard:
        code = say("interrupted", BY_SIGNAL + (heard.args or (SIGINT,))[0])
    finally:
        sys.path[:], sys.stderr = path, errors
    return ending(code)


def say(message: str, code: int) -> int:
    """Print what went wrong, in one line. Returns the code."""
    Screen(stderr=True).print(styled(("shoal:", "bold red"), f" {message}"), soft_wrap=True)
    return code


class _Output(Screen):
    """One that leaves it to the command to end where nobody reads any more, as with `| head`."""

    def on_broken_pipe(self) -> None:
        raise BrokenPipeError


def console() -> Screen:
    """Where commands print. A file or a pipe takes long lines, so that nothing is cut there."""
    return _Output(width=None if sys.stdout.isatty() else WIDE)


def show(run: Callable[[Sequence[Callback]], Result], quiet: bool) -> int:
    """Run with a display and TensorBoard, and say how it ended."""
    from shoal.records.console import Display, Late
    from shoal.records.tensorboard import TensorBoard

    screen, late = Output(), Late()
    with on_signal(late.hear):
        try:
            result = run([Display(screen, quiet), TensorBoard(), late])
        except Interrupted as stopped:
            if stopped.leading:
                screen.print(f"{stopped}{trusted(stopped.run_dir)}", soft_wrap=True)  # it ends with a command
            return ending(stopped.code)
        except Failed as error:
            return ending(say(f"{error}{trusted(error.run_dir)}", FAILED))
        return ending(_tell(result, screen) if result.leading else DONE)


def trusted(run: Path) -> str:
    """The flag that commands on a run need which names code, with a space before it; nothing where it names none, or where
    there is no run."""
    from shoal.experiment.files import of_run
    from shoal.experiment.trust import PLACES, code_at

    try:
        experiment = of_run(run)
    except BadInput:
        return ""
    return " --trust-code" if any(code_at(experiment, place) for place in PLACES) else ""


def luck(champion: Mapping[str, Any]) -> str:
    """What to do where a champion has been chosen by luck: when selected it had more than it has on new episodes, by three
    standard errors of these. Nothing where that is not so.

    champion: that of result.json
    """
    levels = champion.get("levels", {"train": champion["evaluation"]})
    # Whichever levels selected; the higher: what is learned by heart is no luck.
    played = [told for name, told in levels.items() if name != "test" and told["mean"] is not None]
    if not played:
        return ""
    new = max(played, key=lambda x: x["mean"])
    lost, error = champion["selection_fitness"] - new["mean"], new["standard_error"] or 0.0
    if not lost > 3 * error > 0:
        return ""
    return f"it was lucky when it was selected, by {lost:.3g}: with more fitness.episodes, luck counts for less"


def scored(tested: Mapping[str, Any]) -> str:
    """What a champion returned in a test."""
    if tested["mean"] is None:
        return "no return"
    return f"{tested['mean']:.4g} ± {tested['standard_error'] or 0:.2g}"


def _tell(result: Result, screen: Screen) -> int:
    from shoal.report.page import write_report

    summary, champion = result.summary, result.summary["champion"]
    if champion is not None and not result.already:
        test = champion["evaluation"]
        told = styled(
            *("champion: ", (scored(test), "bold"), f" on {test['episodes']} fresh episodes "),
            f"({champion['selection_fitness']:.4g} when selected); {summary['environment_steps']:,} steps "
            f"and {summary['evaluation_steps']:,} of evaluation in "
            f"{summary['seconds']:.0f} s, {summary['compile_seconds']:.0f} s of them compiling",
        )
        screen.print(told, soft_wrap=True)
        if "levels" in champion:
            on_levels = (f"{name} {scored(tested)}" for name, tested in champion["levels"].items())
            screen.print(f"on levels: {', '.join(on_levels)}", soft_wrap=True)
        if advice := luck(champion):
            screen.print(advice, soft_wrap=True)
    try:
        page = write_report(result.run_dir)
    except OSError as error:
        again = f"shoal report {in_shell(result.run_dir)}"
        return say(f"the run is done, only its page is missing: {described(error)}; when mended: {again}", FAILED)
    if champion is None:
        return say("no member ever had a finite fitness: every one of them diverged", FAILED)
    curves = result.run_dir / "tensorboard"
    for name, command in (
        ("look at it", f"open {in_shell(page)}"),
        *([("the curves", f"tensorboard --logdir {in_shell(curves)}")] if curves.is_dir() else []),
        ("play", f"shoal play {in_shell(result.run_dir)} --video champion.mp4{trusted(result.run_dir)}"),
    ):
        screen.print(f"{f'{name}:':13} {command}", soft_wrap=True)
    return DONE
