"""The final selection of a workspace: of the champions of its workers the best one is found on new episodes, which have
selected nobody yet.

Nothing is lost where the process that selects is killed: a worker that ends has its result before, and whoever asks next
selects.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import closing, suppress
from dataclasses import replace
from pathlib import Path

from shoal.core.atomic import parse_json, read_or_nothing, write_file
from shoal.core.backend import on_jax
from shoal.core.candidates import Candidate
from shoal.core.errors import BadInput
from shoal.core.run_files import FINAL_SELECTION
from shoal.environments.error_boundary import callbacks_attributed
from shoal.experiment.experiment import alone
from shoal.experiment.files import of_run, of_workspace
from shoal.experiment.plan import Plan, make_plan
from shoal.experiment.trust import check_code
from shoal.members.devices import prepare
from shoal.members.protocol import Pause
from shoal.run import checkpoint
from shoal.run.champion import champion_of_manifest
from shoal.run.final_selection import episodes_among, select_champion

PART = 64  # episodes that are played at once


@on_jax()
def best_of_workers(workspace: str | Path, trust_code: bool = False) -> Path:
    """The run directory of the worker of a workspace whose champion is the best of all workers' champions so far.

    It is what the final selection of the workspace says; where champions have come since, they are selected among anew.
    The champion's return on held-out episodes, which did not select it, is in the result.json there once that worker has
    ended; one that goes on, or was killed, has none. Raises BadInput.
    """
    prepare()
    experiment = of_workspace(Path(workspace))
    if runs := _with_champion(Path(workspace)):
        experiment = of_run(runs[0])  # with what workers decide for themselves, such as the interpreter of trainers
    if not trust_code:
        check_code(experiment, {})
    plan = make_plan(alone(experiment))
    with closing(plan.kind):
        best = select_among_workers(Path(workspace), plan)
    if best is None:
        raise BadInput(f"{workspace} holds no champion of a worker yet")
    return best


def select_among_workers(
    workspace: Path,
    plan: Plan,
    pause: Pause = lambda result, done: None,
    note: Callable[[str], None] = lambda message: None,
) -> Path | None:
    """As `best_of_workers`, for a plan of its experiment; None where no worker has a champion. note: hears of a new
    selection."""
    champions = _champions(workspace, plan, note)
    identities = {name: [one.uid, one.generation] for name, one in champions.items()}
    candidates = list({(one.uid, one.generation): one for one in champions.values()}.values())
    worker = _known(workspace / FINAL_SELECTION, identities)
    if worker is None and len(candidates) < 2:  # none, one, or that of workers that all measure one population
        worker = next(iter(identities), None)
    elif worker is None:
        e, setup = plan.experiment, plan.setup._replace(pause=pause)
        setup = setup._replace(evaluation=replace(plan.evaluation, episodes=PART))
        with closing(plan.kind.tester(setup)) as tester, callbacks_attributed(e.env_name):
            episodes = episodes_among(e, len(candidates))
            best, summary = select_champion(e, tester, candidates, episodes, "final selection of workers")
        worker = next(name for name, one in identities.items() if one == [best.uid, best.generation])
        found = {"worker": worker, **summary["final_selection"], "candidates": identities}
        write_file(workspace / FINAL_SELECTION, json.dumps(found, indent=1).encode())
        note(
            f"of {len(candidates)} workers' champions that of {worker} is the best, in {found['episodes']} new episodes"
        )
    return None if worker is None else workspace / "workers" / worker


def _with_champion(workspace: Path) -> list[Path]:
    """The runs of the workers that have a champion, by name."""
    return [folder.parent for folder in sorted((workspace / "workers").glob("[!.]*/champion"))]


def _champions(workspace: Path, plan: Plan, note: Callable[[str], None]) -> dict[str, Candidate]:
    """The champion of every worker that has one, by the worker's name."""
    found = {}
    for run in _with_champion(workspace):
        folder = run / "champion"
        try:
            arrays, manifest = checkpoint.read_arrays(folder, run)
            learned = checkpoint.restore(folder, arrays, plan.kind.policy_factory.learned)
            found[run.name] = replace(champion_of_manifest(manifest, f"{folder}: "), learned=learned)
        except BadInput as error:
            note(f"skipping the champion of worker {run.name}: {error}")
    return found


def _known(path: Path, identities: dict[str, list[int]]) -> str | None:
    """The worker that an earlier selection among the same candidates has found; None where there was none."""
    with suppress(ValueError):
        match parse_json(read_or_nothing(path)):
            case {"worker": str(worker), "candidates": among} if among == identities and worker in identities:
                return worker
    return None
