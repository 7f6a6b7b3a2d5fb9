"""What trainers return is held to the protocol where they return it, and what is wrong is said of the method."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.trainees import member

from shoal.core.errors import BadInput
from shoal.trainers import wire
from shoal.trainers.process import Raised, Recipe, TrainerProcess
from shoal.trainers.recipe import one_line

TESTS = str(Path(__file__).parents[1])


@pytest.fixture
def returning(process_of: Callable[..., TrainerProcess]) -> Callable[[str, str], TrainerProcess]:
    """A process of a trainer whose method returns what an expression gives."""

    def start(method: str, expression: str) -> TrainerProcess:
        config = {"method": method, "expression": expression}
        return process_of(sys.executable, Recipe("support.wrong_trainers:Misreturning", "", {}, config, (TESTS,)))

    return start


CALLS: dict[str, Callable[[Any], Any]] = {
    "train": lambda one: one.train(1, 8),
    "get_state": lambda one: one.train(1, 8),
    "evaluate": lambda one: one.evaluate([1, 2]),
    "act": lambda one: one.act(np.zeros((3, 2), np.float32)),
    "export": lambda one: one.export(Path("model")),
}


@pytest.mark.parametrize(
    ("method", "expression", "said"),
    [
        ("train", "None", "train returned None, which must be (steps, returns, metrics)"),
        ("train", "(8, [])", "train returned (8, []), which must be (steps, returns, metrics)"),
        ("train", "{'steps': 8}", "train returned {'steps': 8}, which must be (steps, returns, metrics)"),
        ("train", "('many', [], {})", "train returned steps = 'many', which must be a number"),
        ("train", "(8.5, [], {})", "train returned steps = 8.5, which must be a whole number, not below 0"),
        ("train", "(float('nan'), [], {})", "train returned steps = nan, which must be a whole number, not below 0"),
        ("train", "(-1, [], {})", "train returned steps = -1, which must be a whole number, not below 0"),
        ("train", "(10**30, [], {})", f"train returned steps = {10**30}, which must be a whole number"),
        ("train", "(2**62, [], {})", f"train returned steps = {2**62}, which must be a whole number"),
        ("train", "(8, ['abc'], {})", "train returned returns = ['abc'], which must be a list of numbers"),
        ("train", "(8, 3.0, {})", "train returned returns = 3.0, which must be a list of numbers"),
        ("train", "(8, [], [1])", "train returned metrics = [1], which must be a mapping of names to numbers"),
        ("train", "(8, [], {1: 2})", "train returned metrics = {1: 2}, which must be a mapping of names to numbers"),
        ("train", "(8, [], {'a': 'b'})", "train returned the metric a = 'b', which must be a number"),
        ("get_state", "None", "get_state returned None, which must be (learned, memory, own)"),
        ("get_state", "({}, {})", "get_state returned ({}, {}), which must be (learned, memory, own)"),
        ("get_state", "([1], {}, {})", "get_state returned learned = [1], which must be a mapping of names to arrays"),
        ("get_state", "({}, {'a': 'b'}, {})", "get_state returned memory['a'] = 'b', which is not an array of plain"),
        ("get_state", "({'a': [[1], [1, 2]]}, {}, {})", "get_state returned learned['a'] = [[1], [1, 2]], which is"),
        ("get_state", "({}, {}, {'a': {1}})", "get_state returned own = {'a': {1}}, which is no JSON"),
        ("get_state", "({}, {}, 3)", "get_state returned own = 3, which must be a mapping of names to values"),
        ("evaluate", "[1.0]", "evaluate returned [1.0], which must be one return for each of 2 seeds"),
        ("evaluate", "3.0", "evaluate returned 3.0, which must be a list of numbers"),
        ("evaluate", "['a', 'b']", "evaluate returned ['a', 'b'], which must be a list of numbers"),
        ("act", "1", "act returned 1, which must be an array of numbers with an action for each of 3 observations"),
        ("act", "[1, 2]", "act returned [1, 2], which must be an array of numbers with an action for each of 3"),
        ("act", "['a', 'b', 'c']", "act returned ['a', 'b', 'c'], which must be an array of numbers"),
        ("export", "'model.zip'", "export returned 'model.zip', which must be a list of the files written"),
    ],
)
def test_what_is_wrong_is_said_of_the_method(
    returning: Callable[[str, str], TrainerProcess], method: str, expression: str, said: str
) -> None:
    one = member(returning(method, expression))
    with pytest.raises(Raised) as caught:
        CALLS[method](one)
    message = str(caught.value)
    assert message.startswith(f"support.wrong_trainers:Misreturning failed: {said}"), message
    assert "\n" not in message and "server.py" not in message and "returned.py" not in message


@pytest.mark.parametrize(
    ("method", "expression"),
    [
        ("train", "{'metrics': {}, 'steps': np.int64(8), 'returns': np.ones(2)}"),
        ("train", "(8.0, (), {})"),
        ("evaluate", "np.float32([1, 2])"),
        ("get_state", "({'a': 3, 'b': [1.0]}, {}, {})"),
    ],
)
def test_numbers_of_any_kind_will_do(
    returning: Callable[[str, str], TrainerProcess], method: str, expression: str
) -> None:
    CALLS[method](member(returning(method, expression)))


def test_a_call_that_other_code_does_not_take_names_no_file_of_ours(
    returning: Callable[[str, str], TrainerProcess],
) -> None:
    with pytest.raises(Raised, match=r"failed: ZeroDivisionError: division by zero \(<string>, line 1\)$"):
        member(returning("train", "1 / 0")).train(1, 8)
    with pytest.raises(AttributeError) as caught:
        wire.join({}, None)  # type: ignore[arg-type]
    assert one_line(caught.value) == "AttributeError: 'NoneType' object has no attribute 'items'"


def test_a_state_that_no_trainer_can_have_is_not_sent(
    returning: Callable[[str, str], TrainerProcess],
) -> None:
    one = member(returning("export", "[]"))
    one.train(1, 8)
    assert one.state is not None
    one.state = one.state._replace(learned={"w": np.array(["a"])})
    with pytest.raises(BadInput, match="cannot be sent to its trainer: learned/w is an array of <U1"):
        one.evaluate([1])
