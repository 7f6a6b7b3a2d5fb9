"""Hyperparameters of an agent, with environment parameters of its environment."""

from __future__ import annotations

from types import SimpleNamespace
from typing import NamedTuple

from hypothesis import given
from hypothesis import strategies as st

from shoal.core.env_parameters import unlike


class Hyper(NamedTuple):
    a: float = 1.0
    b: float = 2.0


AGENT = SimpleNamespace(hyper=Hyper(), space={}, limits={})


@given(st.dictionaries(st.sampled_from(["a", "b", "c", "env.x", "env.y"]), st.floats(allow_nan=False)))
def test_all_of_the_agent_and_any_of_the_env_parameters(hyper: dict[str, float]) -> None:
    like = {"a", "b"} <= {*hyper} <= {"a", "b", "env.x"} and max(map(abs, hyper.values())) < 3.41e38
    differing = unlike(hyper, AGENT, {"x": 3.0})
    assert (differing == "") == like
    assert all(name in differing for name in {"a", "b"} - {*hyper} | {*hyper} - {"a", "b", "env.x"})
