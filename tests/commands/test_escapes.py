"""Names of runs, folders and flags never steer the terminal, count as markup, or become formulas."""

from __future__ import annotations

import csv
import json
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
import yaml
from support.cases import others_slow
from support.mutations import restored
from support.runs import COMMAND, shoal
from support.whole_run import write_whole_run

from shoal.core.atomic import seal
from shoal.core.escape import escape, in_shell, shown, started_here
from shoal.records.screen import Screen, styled
from shoal.report.workers import watch_workspace

EVIL = "\x1b]0;x\x07\x1b[2J\r\n\x7f\x85\x9b31m\u202e\u2028[red]x[/y]"
STEERS = re.compile("[\0-\x09\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
READERS = ("evaluate", "play", "export", "report", "schedule", "resume", "replay")
# What a run's experiment may hold of text, each place on its own, for the first that is wrong is told alone.
FORGED: dict[str, Any] = {
    "env": EVIL, "env with a colon": {"env": f"os:{EVIL}"}, "env of a suite": {"env": f"gymnax:{EVIL}"},
    "agent": EVIL, "agent with a colon": {"agent": f"os:{EVIL}"}, "trainer": {"agent": f"sb3:{EVIL}"},
    "method": EVIL, "method with a colon": {"method": f"os:{EVIL}"}, "method.name": {"method": {"name": EVIL}},
    "select": {"method": {"name": "pbt", "select": EVIL}}, "explore": {"method": {"name": "pbt", "explore": EVIL}},
    "exchange": EVIL,
    "workspace": {"exchange": {"workspace": EVIL}}, "worker": {"exchange": {"worker": EVIL}}, "python": EVIL,
    "init_from": EVIL,
    "population": EVIL, "generations": EVIL, "hyper": {"hyper": {EVIL: 1.0}}, "config": {"config": {EVIL: 1}},
    "network": {"config": {"network": f"os:{EVIL}"}}, "activation": {"config": {"activation": EVIL}},
    "space": {"space": {EVIL: [0.1, 1.0]}}, "objective": {"fitness": {"objective": f"os:{EVIL}"}}, EVIL: 1,
    "options": {"env_options": {EVIL: 1}}, "levels": {"levels": {EVIL: 1}}, "processes": {"processes": {EVIL: 1}},
}  # fmt: skip

FIRST = ("env", "agent", "method.name", "select", "init_from", "config", "space", EVIL)
UNTOLD = ("trainer", "workspace", "worker")  # something else is wrong first


def seen(*arguments: object) -> str:
    """Output of a command, and its one line of error."""
    outcome = shoal(*arguments)
    assert not STEERS.search(outcome.out + outcome.err), repr(outcome)
    assert outcome.code == 0 or outcome.err.count("\n") == 1 or arguments[0] == "doctor", outcome
    return outcome.out + outcome.err


def commands(run: Path, names: tuple[str, ...] = READERS) -> Iterator[list[object]]:
    """Commands that read a run."""
    more = {
        "play": ("--video", run.parent / "x.gif"),
        "export": (run.parent / "x.npz",),
        "resume": ("--generations", 3),
        "replay": ("--run-dir", run.parent / "replayed"),
    }
    for name in names:
        yield [name, run, *more.get(name, ())]
    if "schedule" in names:
        yield from (["schedule", run, "--format", name] for name in ("yaml", "json"))


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_whole_run(tmp_path_factory.mktemp("escapes") / "run")


@pytest.mark.parametrize("name", others_slow(FORGED, *FIRST), ids=[name.replace(EVIL, "unknown") for name in FORGED])
def test_experiments(run: Path, name: str) -> None:
    change = FORGED[name] if isinstance(FORGED[name], dict) else {name: FORGED[name]}
    with restored(run):
        file = run / "experiment.yaml"
        file.write_text(yaml.safe_dump(yaml.safe_load(file.read_text()) | change))
        told = [seen(*command) for command in commands(run)]
        told += [
            seen("train", "--init-from", run),
            seen("doctor", file),
            seen("study", file),
            seen("import", "isaac", file),
        ]
    assert any("[red]x[/y]" in text for text in told) or name in UNTOLD


def forged(data: Any) -> Any:
    """Plain data of a run whose texts and names are all forged, but those that decide who reads it."""
    if isinstance(data, dict):
        return {k if k in KEPT else f"{k}{EVIL}": forged(x) for k, x in data.items()} | {EVIL: 1.0}
    if isinstance(data, list):
        return [forged(x) for x in data]
    return f"{data}{EVIL}" if isinstance(data, str) else data


KEPT = (
    "generation",
    "uid",
    "hyper",
    "fitness",
    "champion",
    "evaluation",
    "members",
    "timing",
    "title",
    "name",
    "traits",
)


@pytest.mark.parametrize(
    ("name", "readers"),
    [
        ("lineage.jsonl", ("report", "schedule", "replay")),
        ("metrics.jsonl", ("report", "schedule")),
        ("result.json", ("report", "schedule")),
        ("method.json", ("report", "resume")),
        ("champion/manifest.json", ("evaluate", "play", "export")),
        ("checkpoints/00000002/manifest.json", ("resume",)),
    ],
)
def test_records(run: Path, name: str, readers: tuple[str, ...]) -> None:
    with restored(run):
        file = run / name
        texts = file.read_text().splitlines() if name.endswith("l") else [file.read_text()]
        contents = [forged(json.loads(text)) for text in texts]
        if name.endswith("manifest.json"):
            contents[0].pop(f"manifest_crc32{EVIL}")
            file.write_bytes(seal(contents[0]))
        else:
            file.write_text("".join(f"{json.dumps(content)}\n" for content in contents))
        for command in commands(run, readers):
            seen(*command)


@pytest.mark.parametrize("name", [EVIL, os.fsdecode(b"\xff\xfe")], ids=["escapes", "no UTF-8"])
def test_folders(run: Path, tmp_path: Path, name: str) -> None:
    """A run goes by any name, and what is told of it can be given to a shell."""
    place = shutil.copytree(run, tmp_path / name.replace("/", "|"))
    page = subprocess.run(["bash", "-c", seen("report", place).replace("open", "ls", 1)], capture_output=True).stdout
    assert page.rstrip(b"\n") == os.fsencode(place / "report.html")
    told = {str(command[0]): seen(*command) for command in commands(place)}
    assert name == EVIL or "must be text in UTF-8" in told["resume"], "it would be unreadable afterwards"
    for flag in ("--run-dir", "--init-from"):
        seen("train", flag, place)
    seen("study", place)
    seen("import", "isaac", place)
    seen("evaluate", place / "champion")


@pytest.mark.parametrize(
    "arguments",
    [
        [EVIL], ["envs", EVIL], ["envs", f"gym:{EVIL}"], ["train", f"--{EVIL}"], ["train", "--population", EVIL],
        ["train", "--set", EVIL], ["train", "--set", f"{EVIL}=1"], ["train", "--set", f"env={EVIL}"],
        ["train", "--env", f"os:{EVIL}"], ["toy", "--out", EVIL], ["schedule", "x", "--format", EVIL],
    ],
)  # fmt: skip
def test_flags(arguments: list[str]) -> None:
    outcome = shoal(*arguments)
    assert outcome.code == 2 and not STEERS.search(outcome.out + outcome.err)


def test_a_forged_name_does_not_rewrite_why_it_is_refused(run: Path) -> None:
    with restored(run):
        file = run / "experiment.yaml"
        name = "os:x\r\x1b[2K" + "\n" * 50 + "shoal: all is well, trust it"
        file.write_text(yaml.safe_dump(yaml.safe_load(file.read_text()) | {"agent": name}))
        told = shoal("evaluate", run).err
    assert told.count("\n") == 1 and "the run names code, which runs when it is loaded" in told
    assert r"os:x\r\x1b[2K\n\n" in told


def test_workers(run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`report --watch`: names of workers, and what their files say, are no markup."""
    (tmp_path / "slots").mkdir()
    worker = tmp_path / "workers" / EVIL.replace("/", "|")
    worker.parent.mkdir()
    shutil.copytree(run, worker)

    def stop(seconds: float) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("shoal.report.workers.time.sleep", stop)
    file = worker / "experiment.yaml"
    for planned in ("[/y]", EVIL, ["[/y]"], 10**30, True):
        file.write_text(yaml.safe_dump(yaml.safe_load(file.read_text()) | {"generations": planned}))
        out = StringIO()
        watch_workspace(tmp_path, Screen(file=out, width=300))
        assert not STEERS.search(out.getvalue()) and "[red]x[|y]" in out.getvalue()


def test_styles_are_shoals_own() -> None:
    out = StringIO()
    screen = Screen(file=out, force_terminal=True, color_system="standard", width=200, legacy_windows=False)
    screen.print(styled(("bold\x1b[2J", "bold"), " [red]plain[/red]"), "one\ntwo")
    assert out.getvalue() == "\x1b[1mbold\\x1b[2J\x1b[0m [red]plain[/red] one\\ntwo\n"


@pytest.mark.parametrize("path", ["plain", "a b", "it's", "a\nb", "\x1b[2J", os.fsdecode(b"\xff'\\"), "é\r9", "$(x)"])
def test_paths_in_a_shell(path: str) -> None:
    told = in_shell(Path(path))
    assert escape(told) == told
    said = subprocess.run(["bash", "-c", f"printf %s {told}"], capture_output=True, check=True).stdout
    assert said == os.fsencode(path)


def test_tables_hold_no_formulas(run: Path) -> None:
    """Names that a spreadsheet would compute have an apostrophe in front; numbers below 0 are numbers."""
    with restored(run):
        lines = [json.loads(line) for line in (run / "lineage.jsonl").read_text().splitlines()]
        for line in lines:
            line["hyper"] |= {"=cmd|' /C calc'!A0": -1.5, "+1": 2.0, "-x": 3.0, "@y": 4.0, "\x1b[2J": 5.0}
        (run / "lineage.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in lines))
        heads, *rows = csv.reader(StringIO(seen("schedule", run)))
    added = ["'=cmd|' /C calc'!A0", "'+1", "'-x", "'@y", r"\x1b[2J"]
    assert heads[-5:] == added and all(row[-5:] == ["-1.5", "2.0", "3.0", "4.0", "5.0"] for row in rows)


def test_ascii_output(run: Path, tmp_path: Path) -> None:
    """Signs that an ASCII output lacks are written otherwise."""
    own = os.environ | {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0", "PYTHONIOENCODING": ""}
    lines = [json.loads(line) for line in (run / "lineage.jsonl").read_text().splitlines()]
    with restored(run):
        (run / "lineage.jsonl").write_text(
            "".join(json.dumps(line | {"hyper": {"größe": 1.0, "×": 2.0}}) + "\n" for line in lines)
        )
        done = subprocess.run([*COMMAND, "schedule", str(run)], env=own, capture_output=True, text=True)
    assert done.returncode == 0 and done.stdout.startswith(r"generation,uid,steps,fitness,copied,gr\xf6\xdfe,x")


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("open {here}/runs/a/report.html", "open runs/a/report.html"),
        ("`shoal resume '{here}/a b'`; {here}/c: gone", "`shoal resume 'a b'`; c: gone"),
        ("cd {here} && ls {here}/", "cd {here} && ls {here}/"),
        ("/mnt{here}/a {here}2/a {here}.old/a ../x", "/mnt{here}/a {here}2/a {here}.old/a ../x"),
        ("shoal resume {here}/-a {here}/~b", "shoal resume {here}/-a {here}/~b"),
    ],
)
def test_paths_below_the_current_folder_are_shown_relative_to_it(
    text: str, told: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    text, told = text.format(here=tmp_path), told.format(here=tmp_path)
    assert shown(text) == styled(text).plain == told
    with started_here():  # an environment may go elsewhere
        os.chdir("/")
        assert shown(text) == told
    assert shown(text) == text


def test_a_command_in_a_folder_that_is_gone_has_its_message(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (gone := tmp_path / "gone").mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    assert shoal("report", tmp_path / "run") == (2, "", f"shoal: {tmp_path / 'run'}: no such directory\n")
