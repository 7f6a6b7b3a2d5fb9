"""Giving a champion back to the library that has trained it."""

from __future__ import annotations

from pathlib import Path

from shoal.core.errors import BadInput
from shoal.run.champion import load_champion, trainer_of
from shoal.trainers.trainers import is_trainer


def export(run: Path, file: Path, trust_code: bool = False) -> list[str]:
    """Write the champion of a run as its own library saves models. Returns the files written. Raises BadInput.

    trust_code: import what the run names, where it is not Shoal's.
    """
    champion = load_champion(run, trust_code)
    e = champion.experiment
    if not is_trainer(e.agent, e.python):
        raise BadInput(
            f"{run}: {e.agent} is an agent of Shoal's own; in Python, shoal.load_champion(run).act(obs) plays it"
        )
    trainers, remote = trainer_of(e, champion.hyper, champion.learned)
    try:
        if not trainers.exports:
            raise BadInput(f"{e.agent} has no `export`")
        return remote.export(file)
    finally:
        trainers.close()
