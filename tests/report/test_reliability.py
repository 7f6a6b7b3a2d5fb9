"""The share of luck in fitness, against members whose truth is known."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.strategies import SEEDS

from shoal.members.rollouts.episodes import noise
from shoal.report.lineage import tabulate
from shoal.report.page import render
from shoal.report.reliability import Reliability, reliability
from shoal.report.run import MethodTraits, Run


def made(returns: np.ndarray, source: str) -> Run:
    """The run that played these returns [G, N, E]."""
    lines, metrics = [], []
    for generation, played in enumerate(returns):
        metrics.append({"generation": generation, "members": {k: x.tolist() for k, x in noise(played).items()}})
        for uid, x in enumerate(played):
            about = {"generation": generation, "uid": uid, "fitness": float(x.mean()), "episodes": len(x)}
            lines.append(about | {"returns_std": float(x.std(ddof=1)) if len(x) > 1 else None})
    settings = {"fitness": {"source": source}}
    return Run("", "", settings, MethodTraits(), {}, metrics if source == "evaluation" else [], tabulate(lines), [])


@given(
    seed=SEEDS,
    members=st.integers(4, 12),
    episodes=st.integers(2, 16),
    truth=st.floats(0, 0.95),
    shared=st.floats(0, 50),
    scale=st.sampled_from([1e-3, 1.0, 1e4]),
    source=st.sampled_from(["evaluation", "training"]),
    one_way=st.booleans(),
)
def test_the_truth_is_found(
    seed: int, members: int, episodes: int, truth: float, shared: float, scale: float, source: str, one_way: bool
) -> None:
    """Members of known truth play the same episodes, some of which are easier for all; or each its own training episodes.

    one_way: members differ in one way, which some of the same episodes favour
    """
    draw, generations = np.random.default_rng(seed), 300
    skill = draw.normal(0, truth**0.5, (generations, members, 1))
    luck = draw.normal(0, ((1 - truth) * episodes) ** 0.5, (generations, members, episodes))
    if one_way and source == "evaluation":
        luck = luck[:, :1] * draw.normal(0, 1, (generations, members, 1))
    easy = draw.normal(0, shared * (source == "evaluation"), (generations, 1, episodes))
    found = reliability(made(scale * (skill + luck + easy + 7), source))
    assert found is not None
    assert found.episodes == episodes
    assert abs(found.truth - truth) < 5 * max(found.error, 0.01)
    # Of a share of variances with so many degrees of freedom each, if it were all luck.
    freedom = 1 / 2 if one_way else members - 1
    assert found.error < 2 * (4 / (generations * freedom)) ** 0.5


def test_what_half_takes() -> None:
    draw = np.random.default_rng(0)
    of_8, of_24 = Reliability(8, 0.25, 0.01), Reliability(24, 0.5, 0.01)
    assert of_8.half == 24
    assert of_24.half == 24
    skill, luck = draw.normal(0, 1, (500, 8, 1)), draw.normal(0, 24**0.5, (500, 8, 24))
    for reliable, episodes in ((of_8, 8), (of_24, 24)):
        found = reliability(made(skill + luck[..., :episodes], "evaluation"))
        assert found is not None
        assert found.truth == pytest.approx(reliable.truth, abs=0.05)


@pytest.mark.parametrize(("generations", "members", "episodes"), [(4, 8, 8), (30, 3, 8), (30, 8, 1)])
def test_nothing_is_said_of_too_few(generations: int, members: int, episodes: int) -> None:
    returns = np.random.default_rng(0).normal(size=(generations, members, episodes))
    assert reliability(made(returns, "evaluation")) is None


BEFORE, NOISE = "with 8 episodes", "of the variance of fitness between members is noise"


@pytest.mark.parametrize(
    ("reliable", "text"),
    [
        (Reliability(8, 0.06, 0.01), f"{BEFORE}, 94% {NOISE} (standard error 1%); 126 episodes would bring it to half"),
        (Reliability(8, 0.8, 0.05), f"{BEFORE}, 20% {NOISE} (standard error 5%)"),
    ],
)
def test_what_is_said(reliable: Reliability, text: str) -> None:
    assert reliable.describe() == text


def test_differences_that_luck_may_have_made() -> None:
    assert Reliability(8, -0.2, 0.095).describe() == f"{BEFORE}, at least 81% {NOISE}"


def test_the_page_says_it() -> None:
    draw = np.random.default_rng(0)
    assert "(standard error " in render(made(draw.normal(size=(20, 8, 1)) + draw.normal(size=(20, 8, 4)), "evaluation"))
    assert "Evaluation noise" not in render(made(draw.normal(size=(4, 8, 4)), "evaluation"))
