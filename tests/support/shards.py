"""Shards of members, made of their parts."""

from __future__ import annotations

from typing import Any

import numpy as np

from shoal.core.types import Learner, SearchLearner
from shoal.environments.evaluation import EvaluationConfig
from shoal.members.drawn import Drawn, DrawnShard
from shoal.members.living import Living, LivingShard
from shoal.members.shard import Pause, Setup


def living(
    environment: Any,
    learner: Learner,
    uid: np.ndarray,
    seed: int,
    evaluation: EvaluationConfig,
    pause: Pause = lambda result, done: None,
    copy_memory: bool = False,
) -> LivingShard:
    return Living(environment, learner, copy_memory).first_shard(uid, Setup(seed, evaluation, pause=pause))


def drawn(
    environment: Any, learner: SearchLearner, uid: np.ndarray, seed: int, evaluation: EvaluationConfig
) -> DrawnShard:
    return Drawn(environment, learner).first_shard(uid, Setup(seed, evaluation))
