"""Members that trainers train, as their host sees them."""

from __future__ import annotations

from shoal.trainers.process import TrainerProcess
from shoal.trainers.remote import RemoteTrainer


def member(process: TrainerProcess, uid: int = 0, **hyper: float) -> RemoteTrainer:
    """A member of a process, with the trainer's usual hyperparameters but for these."""
    return RemoteTrainer(process, uid, process.description["hyper"] | hyper, 1)
