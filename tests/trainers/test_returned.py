"""Values that trainers return are checked against the protocol at once, and errors name the method."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.messages import Said, shown
from support.trainees import member

from shoal.core.errors import BadInput
from shoal.trainers import wire
from shoal.trainers.process import Raised, Recipe, TrainerProcess, limited
from shoal.trainers.recipe import one_line
from shoal.trainers.remote import RemoteTrainer

TESTS = str(Path(__file__).parents[1])


@pytest.fixture(scope="module")
def returning(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str, str], RemoteTrainer]]:
    """A member, in a process of many, whose method returns what an expression gives."""
    folder, uid = tmp_path_factory.mktemp("returned"), itertools.count()
    place = folder / "expression"
    recipe = Recipe("support.wrong_trainers:Misreturning", "", {}, {"place": str(place)}, (TESTS,))
    process = TrainerProcess(sys.executable, recipe, folder / "log", limited(1, []), 60.0)

    def one(method: str, expression: str) -> RemoteTrainer:
        place.write_text(f"{method}\n{expression}")
        return member(process, next(uid))

    yield one
    process.end()


CALLS: dict[str, Callable[[Any], Any]] = {
    "train": lambda one: one.train(1, 8),
    "get_state": lambda one: one.train(1, 8),
    "evaluate": lambda one: one.evaluate([1, 2]),
    "act": lambda one: one.act(np.zeros((3, 2), np.float32)),
    "export": lambda one: one.export(Path("model")),
}


@pytest.mark.parametrize(
    ("method", "expression"),
    [
        ("train", "None"),
        ("train", "(8, [])"),
        ("train", "{'steps': 8}"),
        ("train", "('many', [], {})"),
        ("train", "(8.5, [], {})"),
        ("train", "(float('nan'), [], {})"),
        ("train", "(-1, [], {})"),
        ("train", "(10**30, [], {})"),
        ("train", "(2**62, [], {})"),
        ("train", "(8, ['abc'], {})"),
        ("train", "(8, 3.0, {})"),
        ("train", "(8, [], [1])"),
        ("train", "(8, [], {1: 2})"),
        ("train", "(8, [], {'a': 'b'})"),
        ("get_state", "None"),
        ("get_state", "({},)"),
        ("get_state", "([1], {})"),
        ("get_state", "({}, {'a': 'b'})"),
        ("get_state", "({'a': [[1], [1, 2]]}, {})"),
        ("evaluate", "[1.0]"),
        ("evaluate", "3.0"),
        ("evaluate", "['a', 'b']"),
        ("act", "1"),
        ("act", "[1, 2]"),
        ("act", "['a', 'b', 'c']"),
        ("export", "'model.zip'"),
    ],
    ids=shown,
)
def test_what_is_wrong_is_said_of_the_method(
    returning: Callable[[str, str], RemoteTrainer], method: str, expression: str, said: Said
) -> None:
    one = returning(method, expression)
    with pytest.raises(Raised) as caught:
        CALLS[method](one)
    said(caught.value)


@pytest.mark.parametrize(
    ("method", "expression"),
    [
        ("train", "{'metrics': {}, 'steps': np.int64(8), 'returns': np.ones(2)}"),
        ("train", "(8.0, (), {})"),
        ("evaluate", "np.float32([1, 2])"),
        ("get_state", "({'a': 3, 'b': [1.0]}, {})"),
    ],
)
def test_numbers_of_any_kind_will_do(
    returning: Callable[[str, str], RemoteTrainer], method: str, expression: str
) -> None:
    CALLS[method](returning(method, expression))


def test_a_call_that_other_code_does_not_take_names_no_file_of_ours(
    returning: Callable[[str, str], RemoteTrainer],
    said: Said,
) -> None:
    with pytest.raises(Raised) as error:
        returning("train", "1 / 0").train(1, 8)
    said(error.value)
    with pytest.raises(AttributeError) as caught:
        wire.join({}, None)  # type: ignore[arg-type]
    assert one_line(caught.value) == "AttributeError: 'NoneType' object has no attribute 'items'"


def test_a_state_that_no_trainer_can_have_is_not_sent(
    returning: Callable[[str, str], RemoteTrainer],
    said: Said,
) -> None:
    one = returning("export", "[]")
    one.train(1, 8)
    assert one.state is not None
    one.state = one.state._replace(learned={"w": np.array(["a"])})
    with pytest.raises(BadInput) as error:
        one.evaluate([1])
    said(error.value)
