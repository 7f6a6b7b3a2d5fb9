"""Jobs of trainers in their processes, side by side; where a process dies, the next one repeats its job."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from functools import partial
from queue import SimpleQueue
from typing import Any, TypeVar

from shoal.core.errors import BadField
from shoal.trainers.process import Died, Raised, TrainerProcess

LOOK = 0.05  # seconds between two looks at what goes on meanwhile: Ctrl-C, the display
ATTEMPTS = 3  # of a job, in a row, whose process dies
T = TypeVar("T")


def persist(job: Callable[[], T], again: Callable[[Died], object] = lambda error: None) -> T:
    """The result of a job; where its process dies, of the next attempt. Raises BadInput after some in a row.

    again: called before each further attempt; may raise.
    """
    attempt = 1
    while True:
        try:
            return job()
        except Died as error:
            if attempt == ATTEMPTS:
                raise BadField("agent", f"{error} (in {attempt} attempts)") from error
            again(error)
            attempt += 1
        except Raised as error:
            raise BadField("agent", f"{error}") from error


def side_by_side(
    processes: Sequence[TrainerProcess],
    pause: Callable[[Any, float], None],
    note: Callable[[str], None],
    job: Callable[[int], T],
    count: int,
) -> list[T]:
    """The results of a job for each of `count` rows; those of one process one after another. Raises BadInput.

    pause: called meanwhile, with the share that is done; may raise. note: called with what the user should know.
    """
    results: dict[int, T] = {}
    notes: SimpleQueue[str] = SimpleQueue()  # of other threads
    over = False

    def again(error: Died) -> None:
        if over:
            raise error
        notes.put(f"{error.how}; it is started again, and its interval repeated")

    def turns(first: int) -> None:
        for row in range(first, count, len(processes)):
            results[row] = persist(partial(job, row), again)

    with ThreadPoolExecutor(len(processes)) as pool:
        running = {pool.submit(turns, i) for i in range(len(processes))}
        try:
            while running:
                # Rarely enough to leave the cores to the processes.
                done, running = wait(running, LOOK, FIRST_COMPLETED)
                for future in done:
                    future.result()
                while not notes.empty():
                    note(notes.get())
                pause((), len(results) / count)
        except BaseException:
            over = True
            while running:  # no thread may wait for a process, nor start it again
                for process in processes:
                    process.kill()
                running = wait(running, LOOK).not_done
            raise
    return [results[row] for row in range(count)]
