"""Ways in which a file comes to be wrong: by accident, by hand, or by somebody who knows how it is read.

`draw` is a Random of hypothesis: what it draws is made simpler until a failure is as small as it can be.
"""

from __future__ import annotations

import copy
import json
import os
import re
import shutil
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random
from typing import Any


def _split(text: str) -> list[str]:
    """The values of a table, two spaces or a line apart."""
    return re.split(r" {2,}|\n", text.strip())


# Where a value of an experiment should be. Some are no YAML, some are YAML of another kind, some are far too large.
ODD = [
    *_split(r"""
~  null  yes  -  ?  [  {  ]  '  "  |  >  &a  *a  !x  @  %  `  :  <<  =  é  😀  ten  '4'  [/y]  [bold]x[/bold]
0  -1  1.5  -0.0  .nan  .inf  -.inf  1e400  1e30  1e-400  1e-30  0x_  0b2  1_000  1:99  017  2147483648
1000000000000  9223372036854775807  9223372036854775808  2020-01-01  2020-99-99  2020-01-01T99:99:99Z
!!int x  !!float x  !!bool x  !!null x  !!str [1]  !!timestamp x  !!binary '*'  !!set {a}  !!omap [a: 1]
!!python/object:os.system x  !!map [1]  !!seq 1  [1, 2, 3, 4]  [1, 2, 3]  [log, 1, 2]  [.nan, .inf]  []  [[]]  [a]
{}  {a: 1}  {name: x}  {name: 1}  {name: [a]}  {1: 2}  {~: 1}  {? [a] : b}  {? {a: b} : 1}  {replay: [a]}
&b [*b]  {<<: {a: 1}}  {<<: 1}  "\0"  "a\0b"  "\ud800"  "\x1b[31m"  "a\nb"  "\x9b31m"  "\x1b]0;x\a"  ../../x  /etc/passwd
..x:y  x:  :x  os:system  sys:exit  builtins:print  no_such_module:x  a b:c  object:x  os.path:join
truncation  pbt  es  dvd  keep  log  gym:CartPole-v1  gymnax:  directory  copy  training
"""),
    *("", "\u2028", "\u202e", "x" * 3000, "9" * 5000, "0x" + "f" * 5000, "[" * 200, "{a: " * 200, "- " * 200),
    *(str(sign * number) for sign in (1, -1) for number in (2**31, 2**62, 10**30, 9 * 10**18)),
]
NAMES = [
    "",
    *_split(r"""
population  env  space  hyper  config  select  explore  name  low  fitness  rows  method  agent  burn_in  workspace
exchange  worker  shards  learning_rate  <<  1  a.b  é  x\0
"""),
]
DEEP: Any = []
for _ in range(300):
    DEEP = [DEEP]
# Where a value of JSON should be.
TEXTS = [
    *_split("x  1  nan  ten  ../../x  /etc/passwd  <script>  {{data}}  [/y]  [bold]x[/bold]"),
    *("", "\ud800", "a\0b", "é\n", "x" * 3000, "\x1b[31m", "\x1b]0;x\a", "\x9b31m\r"),
]
VALUES: list[Any] = [
    *(None, True, False, 0, -1, 1, 1.5, -0.5, 1e308, float("nan"), float("inf"), float("-inf"), 10**400),
    *(2**31, 2**53, 2**62, 2**63, -(2**62), -(2**63), 10**30, -(10**30), 9 * 10**18, *TEXTS, DEEP),
    *([], {}, [[]], [None], ["x"], [1, 2, 3], [10**400], [{"a": ["b"]}]),
    *({"x": None}, {"": {}}, {"uid": 1}, {"generation": 10**30}, {"replay": ["a"]}),
]


def mutated_text(draw: Random, text: str) -> bytes:
    """A text file after one to three mutations of any kind."""
    for _ in range(draw.choice((1, 1, 2, 3))):
        text = draw.choice((_line, _line, _value, _value, _value, _name, _nest, _alias))(draw, text)
    data = text.encode("utf-8", "surrogatepass")
    return data if draw.randrange(5) < 4 else mutated_bytes(draw, data)


def mutated_bytes(draw: Random, data: bytes) -> bytes:
    """A file with some bytes that are others, missing, or too many."""
    at, end = (sorted(draw.randrange(len(data) + 1) for _ in range(2))) if data else (0, 0)
    junk = draw.choice(
        (b"\0", b"\xff", b"\xef\xbb\xbf", b"\r", b"\t", b"\xed\xa0\x80", draw.randbytes(8), b"[" * 200, b"\n")
    )
    return draw.choice(
        (
            lambda: data[:at],
            lambda: data[:at] + data[end:],
            lambda: data[:end] + data[at:],
            lambda: data[:at] + junk + data[at:],
            lambda: data[:at] + bytes([draw.randrange(256)]) + data[at + 1 :],
            lambda: data[:at] + bytes(x ^ (1 << draw.randrange(8)) for x in data[at : at + 3]) + data[at + 3 :],
            lambda: junk,
            lambda: b"",
            lambda: data + data,
            lambda: data.decode("latin-1").encode("utf-16"),
        )
    )()


def mutated_json(draw: Random, data: Any) -> Any:
    """Plain data with one to three values that are others, missing, too many, or under another name."""
    data = {"": json.loads(json.dumps(data))}
    for _ in range(draw.choice((1, 1, 2, 3))):
        place, key = draw.choice([(p, k) for p, k in _places(data) if p is not data] or [(data, "")])
        kind = draw.randrange(7)
        if kind == 0:
            del place[key]
        elif kind == 1 and isinstance(place, dict):
            place[draw.choice((*TEXTS, f"{key}x"))] = place.pop(key)
        elif kind == 2:
            place[key] = draw.choice(([place[key]], {draw.choice(("a", "uid", str(key))): place[key]}))
        elif kind == 6 and not isinstance(place[key], dict | list):
            place[key] = str(place[key])
        elif kind == 3 and isinstance(place[key], int | float):
            place[key] += draw.choice((1, -1, 0.5, 1e9))
        else:
            value = draw.choice(VALUES)
            place[key] = value if value is DEEP else copy.deepcopy(value)
        if "" not in data:
            return None
    return data[""]


def replaced(draw: Random, path: Path) -> None:
    """Something else lies where the file was."""
    path.unlink()
    draw.choice(
        (lambda: None, path.mkdir, lambda: os.mkfifo(path), lambda: path.symlink_to("nowhere"), path.touch, path.mkdir)
    )()


@contextmanager
def restored(folder: Path) -> Iterator[None]:
    """Whatever happens to a folder inside is undone."""
    kept = folder.with_name(f"{folder.name}.kept")
    shutil.copytree(folder, kept)
    try:
        yield
    finally:
        shutil.rmtree(folder)
        kept.rename(folder)


@contextmanager
def at_most(seconds: float) -> Iterator[None]:
    """Raises TimeoutError inside when it takes longer."""

    def late(number: int, frame: Any) -> None:
        raise TimeoutError(f"longer than {seconds} s")

    before = signal.signal(signal.SIGALRM, late)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def _line(draw: Random, text: str) -> str:
    """A line twice, missing, moved, further in, further out, or run together with the next."""
    lines = text.split("\n")
    i, j = draw.randrange(len(lines)), draw.randrange(len(lines))
    kind = draw.randrange(6)
    if kind == 0:  # the simplest: as it was
        lines[i], lines[j] = lines[j], lines[i]
    elif kind == 1:
        lines.insert(j, lines[i])
    elif kind == 2:
        del lines[i]
    elif kind == 3:
        lines[i] = draw.choice((" ", "  ", "\t", "- ", "# ")) + lines[i]
    elif kind == 4:
        lines[i] = lines[i].lstrip()
    else:
        lines[i : i + 2] = ["".join(lines[i : i + 2])]
    return "\n".join(lines)


def _value(draw: Random, text: str) -> str:
    """Another value in place of one."""
    found = list(re.finditer(r"(?<=: )[^\n,\]}]+|(?<=\[)[^\n,\]}]+|(?<=, )[^\n,\]}:]+(?=[,\]}])", text))
    return _in_place(
        draw, text, found, lambda old: draw.choice((draw.choice(ODD), old * 2, f"[{old}]", f"'{old}'", f"-{old}"))
    )


def _name(draw: Random, text: str) -> str:
    """Another name in place of one."""
    found = list(re.finditer(r"[\w.]+(?=:)", text))
    return _in_place(draw, text, found, lambda old: draw.choice((draw.choice(NAMES), old[:-1], old.upper(), old + old)))


def _nest(draw: Random, text: str) -> str:
    """A value that is inside of something."""
    depth = draw.choice((1, 2, 40, 60, 200))
    found = list(re.finditer(r"(?<=: )[^\n]+", text))
    return _in_place(
        draw,
        text,
        found,
        lambda old: draw.choice(("[" * depth + old + "]" * depth, "{a: " * depth + old + "}" * depth)),
    )


def _alias(draw: Random, text: str) -> str:
    """Values that stand for others, up to without end."""
    rows = [f"x{i}: &x{i} [{', '.join([f'*x{i - 1}' if i else '1'] * 9)}]" for i in range(draw.choice((2, 3, 9, 20)))]
    bomb = "\n".join(rows)
    return draw.choice(
        (f"{text}\n{bomb}", f"&r\n{text}\nconfig: *r", f"{text}\nspace: &s {{<<: *s}}", f"hyper: &h {{x: *h}}\n{text}")
    )


def _in_place(draw: Random, text: str, found: list[re.Match[str]], change: Callable[[str], str]) -> str:
    if not found:
        return text
    at = draw.choice(found)
    return text[: at.start()] + change(at[0]) + text[at.end() :]


def _places(data: Any) -> Iterator[tuple[Any, Any]]:
    """Every container inside, with every key of it."""
    items = data.items() if isinstance(data, dict) else enumerate(data) if isinstance(data, list) else ()
    for key, value in list(items):
        yield data, key
        if value is not DEEP:
            yield from _places(value)
