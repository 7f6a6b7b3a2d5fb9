"""Plain data to dataclasses and back; YAML as people write it; the line that a message is about."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.messages import Said, shown

from shoal.core.errors import BadField, BadInput, unknown
from shoal.core.schema import build, descriptions
from shoal.core.user_code import call
from shoal.core.yaml_text import parse, plain, read_yaml, write_yaml


@dataclass(frozen=True)
class Inner:
    size: int = 1


@dataclass(frozen=True)
class Outer:
    count: int = 1
    rate: float = 0.1
    name: str = "a"
    on: bool = False
    kind: Literal["red", "green"] = "red"
    maybe: int | None = None
    widths: tuple[int, ...] = (1,)
    pair: tuple[float, float] = (0.0, 1.0)
    rules: Mapping[str, float] = field(default_factory=dict)
    table: list[dict[str, float]] | None = None
    inner: Inner = Inner()
    anything: Any = None


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"count": 3.0}, Outer(count=3)),
        ({"rate": 2}, Outer(rate=2.0)),
        ({"maybe": None}, Outer()),
        ({"maybe": 4}, Outer(maybe=4)),
        ({"widths": [8, 16.0]}, Outer(widths=(8, 16))),
        ({"widths": []}, Outer(widths=())),
        ({"pair": [1, 2]}, Outer(pair=(1.0, 2.0))),
        ({"rules": {"a": 1}}, Outer(rules={"a": 1.0})),
        ({"table": [{"a": 1}, {"a": 2.5}]}, Outer(table=[{"a": 1.0}, {"a": 2.5}])),
        ({"inner": {"size": 2}}, Outer(inner=Inner(2))),
        ({"inner": Inner(2)}, Outer(inner=Inner(2))),
        ({"anything": ["1e-4", 3]}, Outer(anything=["1e-4", 3])),
    ],
)
def test_takes_values_where_nothing_is_lost(given: dict[str, Any], expected: Outer) -> None:
    made = build(Outer, given, "")
    assert made == expected
    for name in given:
        assert type(getattr(made, name)) is type(getattr(expected, name))


@pytest.mark.parametrize(
    "given",
    [
        {"coutn": 1},
        {"inner": {"sise": 1}},
        {"count": 1.5},
        {"count": True},
        {"count": "many"},
        {"count": float("inf")},
        {"rate": "fast"},
        {"rate": False},
        {"rate": float("nan")},
        {"name": 5},
        {"on": 1},
        {"kind": "gren"},
        {"widths": 8},
        {"widths": [8, "a"]},
        {"pair": [1, 2, 3]},
        {"rules": {"a": "b"}},
        {"rules": [1]},
        {"table": [{"a": "b"}]},
        {"inner": 5},
        [1],
    ],
    ids=shown,
)
def test_says_what_is_wrong_and_where(given: Any, said: Said) -> None:
    with pytest.raises(BadInput) as error:
        build(Outer, given, "")
    said(error.value)


def test_prefix_names_the_place(said: Said) -> None:
    with pytest.raises(BadInput) as error:
        build(Outer, {"inner": {"x": 1}}, "config.")
    said(error.value)


# Ten times the one before, twelve times over.
BOMB = "a: &a [1,1,1,1,1,1,1,1,1,1]\n" + "".join(
    f"{chr(98 + i)}: &{chr(98 + i)} [{','.join(['*' + chr(97 + i)] * 10)}]\n" for i in range(12)
)


@pytest.mark.parametrize("text", ["1e-4", "1E-4", "1.0e-4", "+1e-4", ".1e-3", "0.0001", "1.e-4"])
def test_numbers_need_no_dot(text: str) -> None:
    assert read_yaml(f"x: {text}") == {"x": 1e-4}


@pytest.mark.parametrize(
    "text", ["e4", "1e", "1-4", "v1e4", "'1e-4'", "1e-4x", "1:30", "+1:30:00", "1:30.5", "010", "-0_7"]
)
def test_other_text_stays_text(text: str) -> None:
    assert read_yaml(f"x: {text}") == {"x": text.strip("'")}


TEXT = st.sampled_from(["1e-4", "12", "1:30", "010", "true", "null", "a: b", "<<", "=", "2020-01-01"]) | st.text(
    st.characters(codec="utf-8", exclude_characters="\0")
)
SCALARS = st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.floats(allow_nan=False) | TEXT


@given(st.recursive(SCALARS, lambda inside: st.lists(inside) | st.dictionaries(TEXT, inside), max_leaves=8))
def test_yaml_round_trip(value: Any) -> None:
    assert repr(read_yaml(write_yaml({"x": value}))["x"]) == repr(value)  # 1 is not 1.0, and not true


def test_plain_knows_tuples_and_numpy() -> None:
    given = {"a": (1, np.float32(0.5)), "b": np.int64(3), "c": np.bool_(True)}
    assert plain(given) == {"a": [1, 0.5], "b": 3, "c": True}
    assert [type(v) for v in (*plain(given)["a"], plain(given)["b"])] == [int, float, int]


def test_parse_finds_lines() -> None:
    values, lines = parse("# comment\na: 1\nb:\n  c: 2\n  d: {e: 3}\nf:\n- g: 1\n- g: 2\n")
    assert values == {"a": 1, "b": {"c": 2, "d": {"e": 3}}, "f": [{"g": 1}, {"g": 2}]}
    assert lines == {"a": 2, "b": 3, "b.c": 4, "b.d": 5, "b.d.e": 5, "f": 6, "f.0": 7, "f.0.g": 7, "f.1": 8, "f.1.g": 8}


def test_dates_are_text_and_so_are_names() -> None:
    assert read_yaml("a: 2020-99-99\non: 2020-01-01\n1: no\n=: =") == {
        "a": "2020-99-99",
        "on": "2020-01-01",
        "1": False,
        "=": "=",
    }


def test_aliases_and_merges() -> None:
    assert read_yaml("a: &a {x: 1, y: 2}\nb: {<<: *a, y: 3}\nc: [*a, *a]") == {
        "a": {"x": 1, "y": 2},
        "b": {"x": 1, "y": 3},
        "c": [{"x": 1, "y": 2}] * 2,
    }


def test_parse_of_nothing() -> None:
    assert parse("") == (None, {})
    assert parse("# only a comment\n") == (None, {})


@pytest.mark.parametrize(
    "text",
    [
        "a: 1\nb: [1",
        "a: 1\n\tb: 2",
        "a: b: c",
        "a: \x00",
        "a: !!python/object:os.system x",
        "a: 1\nb: 2\na: 3",
        "s:\n  a: 1\n  a: 1",
        "a: &a [*a]",
        "&a {<<: *a}",
        "x: 1\ny: " + "[" * 100_000,
        "{a: " * 100_000,
        "- " * 100_000,
        BOMB,
        "a: 1\nb: !!int x",
        "a: !!int ''",
        "a: !!bool x",
        "a: !!float 1:x",
        "a: 0x_",
        "a: 1\nb: " + "9" * 5000,
        "a: 0x" + "f" * 5000,
        "a: 9223372036854775808",
        "a: !!timestamp x",
        "a: !!set {x}",
        "a: !x b",
        'a: 1\nb: "x\\0"',
        '"\\ud800": 1',
        "? [a]\n: b",
        "a: <<",
        "<<: 3",
    ],
    ids=shown,
)
def test_parse_refuses(text: str, said: Said) -> None:
    with pytest.raises(BadInput) as error:
        parse(text)
    said(error.value)


@pytest.mark.parametrize(
    ("error", "message", "line"),
    [
        (BadField("population", "must be more", value=1), "population = 1: must be more", 1),
        (unknown("space", "learning_rat", ["agent"]), "space: 'learning_rat' does not exist; choose from agent", 4),
        (BadField("space.discount.low", "is high"), "space.discount.low: is high", 6),
        (BadField("space.discount", "no range"), "space.discount: no range", 5),
        (BadField("bottom", "is high", value=2).within("select"), "select.bottom = 2: is high", 9),
        (BadField("config.layers.0", "no number", "take 8"), "config.layers.0: no number; take 8", 13),
        (
            unknown("", "populaton", ["population"]),
            "the experiment: 'populaton' does not exist; did you mean population?",
            14,
        ),
        (
            BadField("interval", "too small, as is population"),
            "interval: too small, as is population",
            None,
        ),
        (BadField("env", "'gym:a.population' is none"), "env: 'gym:a.population' is none", None),
    ],
)
def test_a_field_knows_its_line(error: BadField, message: str, line: int | None) -> None:
    text = (
        "population: 1\nagent: ppo\nspace:\n  learning_rat: [0, 1]\n  discount:\n    low: 1\n"
        "select:\n  name: truncation\n  bottom: 2\n"
        "config:\n  num_minibatches: 3\n  rollout_length: 16\n  layers: [a]\npopulaton: 3\n"
    )
    assert str(error) == message
    assert error.line_in(parse(text)[1]) == line


def test_call_tells_wrong_options_from_errors_inside(said: Said) -> None:
    def wants(a: int, b: int = 2) -> int:
        return a + b

    def fails(a: int) -> int:
        raise TypeError("inside")

    assert call("agent", "it", wants, 1, b=3) == 4
    with pytest.raises(BadInput) as error:
        call("agent", "it", wants, 1, c=3)
    said(error.value)
    with pytest.raises(TypeError, match="inside"):
        call("agent", "it", fails, 1)


def test_descriptions_are_the_texts_under_the_fields() -> None:
    @dataclass
    class Described:
        """Not this."""

        one: int = 1
        """the first,
        in two lines"""
        two: int = 2
        three: int = 3
        """the third"""

    @dataclass
    class Other(Described):
        three: int = 4
        """another"""

    assert descriptions(Described) == {"one": "the first, in two lines", "three": "the third"}
    assert descriptions(Other) == {"one": "the first, in two lines", "three": "another"}
