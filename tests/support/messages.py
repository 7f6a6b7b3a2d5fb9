"""What tests pin of messages, in one file: `tests/messages.txt` has them under the test and the case that said them.

A test asks for the fixture `said` and calls it with each message, which must be the next one of its case in the file. There
`TMP` stands for a directory of tests, `x.py, line ...` for any line, and `...`, once it is written by hand, for any text.
After rewording, `pytest --update-messages` runs the tests with this fixture, writes anew what those that pass have said, and
drops what no test says any more.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]
FILE = TESTS / "messages.txt"
CASE, MESSAGE = "  ", "    "  # what lines begin with; those of tests with nothing
Key = tuple[str, str]  # a test, such as `core/test_keys.py::test_words`, and its case, if it has several


def shown(value: object) -> str | None:
    """The id of a case that says what is given, on one line."""
    if not isinstance(value, (str, dict, list, tuple)):
        return None
    text = re.sub(r" at 0x\w+", "", " ".join(str(value).split()))
    return text if len(text) <= 200 else f"{text[:150]} ... {text[-45:]}"


def read() -> dict[Key, list[str]]:
    found: dict[Key, list[str]] = {}
    test = case = ""
    for line in FILE.read_text().split("\n") if FILE.exists() else []:
        if line.startswith(MESSAGE):
            found.setdefault((test, case), []).append(line.removeprefix(MESSAGE))
        elif line.startswith(CASE):
            case = line.removeprefix(CASE)
        elif line:
            test, case = line, ""
    return found


def write(messages: dict[Key, list[str]]) -> None:
    text, last = "", ""
    for (test, case), lines in messages.items():
        text += "" if test == last else f"\n{test}\n"
        text += f"{CASE}{case}\n" if case else ""
        text += "".join(f"{MESSAGE}{line}\n" for line in lines)
        last = test
    FILE.write_text(text.lstrip("\n"))


class Book:
    """The messages of the file, which tests are collected, and what those that passed have said, where that is asked."""

    def __init__(self, update: bool):
        self.update, self.messages, self.heard = update, read(), dict[Key, list[str]]()
        self.collected: list[Key] = []
        self._files: set[str] = set()

    def collect(self, items: list[pytest.Item], whole: bool) -> None:
        """whole: whether of each file all tests are here."""
        self.collected = [_key(item) for item in items if _says(item)]
        self._files = {_file(_key(item)) for item in items} if whole else set()

    def left_over(self) -> list[Key]:
        """What no test says any more."""
        known = set(self.collected)
        gone = self._files | {file for file in map(_file, self.messages) if not (TESTS / file).exists()}
        return [key for key in self.messages if _file(key) in gone and key not in known]

    def rewrite(self) -> None:
        """The file anew, in the order of the tests."""
        old = self.left_over()
        now = {key: lines for key, lines in (self.messages | self.heard).items() if lines and key not in old}
        keys = [*self.collected, *now] if self._files else [*now, *self.collected]
        order = {key: i for i, key in enumerate(dict.fromkeys(keys))}
        write({key: now[key] for key in sorted(now, key=lambda key: (_file(key), order[key]))})


BOOK = pytest.StashKey[Book]()


class Said:
    """What one case says, message after message."""

    def __init__(self, book: Book, key: Key, place: str):
        self._book, self._key, self._place = book, key, place
        self._pinned, self._heard = book.messages.get(key, []), list[str]()

    def __call__(self, message: object) -> None:
        heard = re.sub(self._place, "TMP", str(message)).removesuffix("\n")
        heard = re.sub(r"(?<=\.py, line )\d+", "...", heard)
        assert "\n" not in heard
        said_before = len(self._heard)
        pinned = self._pinned[said_before] if said_before < len(self._pinned) else None
        if pinned is not None and re.fullmatch(".*".join(map(re.escape, pinned.split("..."))), heard):
            heard = pinned
        assert self._book.update or heard == pinned, "is it said otherwise now? pytest --update-messages"
        self._heard.append(heard)

    def close(self) -> None:
        """The test has passed."""
        if self._book.update:
            self._book.heard[self._key] = self._heard
        else:
            assert self._pinned == self._heard, "not all is said any more; pytest --update-messages drops it"


def _says(item: pytest.Item) -> bool:
    return "said" in getattr(item, "fixturenames", ())


def _file(key: Key) -> str:
    return key[0].partition("::")[0]


def _key(item: pytest.Item) -> Key:
    test, several, case = item.nodeid.partition("[")
    return test.removeprefix("tests/"), case.removesuffix("]") or (several and "''")


@pytest.fixture
def said(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Said:
    """Holds a message against the next one of this case in `tests/messages.txt`."""
    place = re.escape(str(tmp_path_factory.getbasetemp())) + r"/[\w.-]+"
    return Said(request.config.stash[BOOK], _key(request.node), place)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update-messages", action="store_true", help="write tests/messages.txt anew")


def pytest_configure(config: pytest.Config) -> None:
    update = config.getoption("--update-messages")
    if update and config.getoption("numprocesses", None):
        raise pytest.UsageError("--update-messages goes with one process: leave -n out")
    config.stash[BOOK] = Book(update)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item], config: pytest.Config) -> None:
    whole = not config.getoption("lf", False) and not any("::" in argument for argument in config.args)
    book = config.stash[BOOK]
    book.collect(items, whole)
    if book.update:
        config.hook.pytest_deselected(items=[item for item in items if not _says(item)])
        items[:] = filter(_says, items)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Iterator[None]:
    yield
    if isinstance(said := getattr(item, "funcargs", {}).get("said"), Said):
        said.close()


def pytest_sessionfinish(session: pytest.Session) -> None:
    book = session.config.stash[BOOK]
    if book.update:
        book.rewrite()
