"""Shards of members, made of their parts."""

from __future__ import annotations

from typing import Any

import numpy as np

from shoal.core.types import Learner, SearchLearner
from shoal.environments.evaluation import EvaluationConfig
from shoal.members.gradient_trained import GradientTrained, GradientTrainedShard
from shoal.members.protocol import Pause, Setup
from shoal.members.sampled import Sampled, SampledShard


def gradient_trained(
    environment: Any,
    learner: Learner,
    uid: np.ndarray,
    seed: int,
    evaluation: EvaluationConfig,
    pause: Pause = lambda result, done: None,
    copies_replay: bool = False,
) -> GradientTrainedShard:
    return GradientTrained(environment, learner, copies_replay).one_shard(uid, Setup(seed, evaluation, pause=pause))


def sampled(
    environment: Any, learner: SearchLearner, uid: np.ndarray, seed: int, evaluation: EvaluationConfig
) -> SampledShard:
    return Sampled(environment, learner).one_shard(uid, Setup(seed, evaluation))
