"""A run says by what it was made, and what of that has changed when it goes on."""

from __future__ import annotations

import json
import os
import platform
import shutil
import socket
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest
from support.messages import Said
from support.runs import Signals, flags, rows, shoal, tiny

from shoal import __version__
from shoal.experiment.experiment import Fitness
from shoal.report.page import write_report
from shoal.run.provenance import checked_out, command
from shoal.run.train import resume, train


def git(folder: Path, *words: str) -> str:
    who = ("-c", "user.name=a", "-c", "user.email=a@b")
    return subprocess.run(
        ("git", "-C", folder, *who, *words), check=True, capture_output=True, text=True
    ).stdout.strip()


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the command is called: under git, with one file."""
    folder = tmp_path / "mine"
    folder.mkdir()
    (folder / "notes.txt").write_text("one")
    for words in (("init", "-q"), ("add", "."), ("commit", "-qm", "first")):
        git(folder, *words)
    monkeypatch.chdir(folder)
    return folder


def forge(run: Path, **changes: object) -> None:
    """The run's first line says something else."""
    first, *more = rows(run / "provenance.jsonl")
    lines = [first | changes, *more]
    (run / "provenance.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in lines))


def test_a_run_says_by_what_it_was_made(tmp_path: Path, repository: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["/somewhere/bin/shoal", "train", "a file.yaml"])
    run = tmp_path / "run"
    assert shoal(*flags(run, "--quiet")).code == 0
    (line,) = rows(run / "provenance.jsonl")
    assert json.loads((run / "result.json").read_text())["provenance"] == line
    versions = {"shoal": __version__, "python": platform.python_version()}
    versions |= {name: metadata.version(name) for name in ("jax", "jaxlib", "flax", "optax", "numpy", "gymnax")}
    assert line["versions"] == versions
    assert (line["host"], line["generation"], line["device"]) == (socket.gethostname(), 0, "cpu")
    assert line["command"] == "shoal train 'a file.yaml'"
    assert (line["commit"], line["clean"]) == (git(repository, "rev-parse", "HEAD"), True)
    page = (run / "report.html").read_text()
    for told in (line["commit"], versions["jax"], socket.gethostname(), line["date"]):
        assert told in page


def test_workers_with_other_versions_are_named(tmp_path: Path, said: Said) -> None:
    """At the start of a worker that finds them there, once; and in its records."""

    def worker(name: str, generations: int = 1) -> tuple[list[str], dict[str, object]]:
        exchange = {"name": "directory", "workspace": str(tmp_path), "worker": name}
        heard = Signals(9, "never")
        fitness = Fitness(episodes=2, step_limit=60, final_selection=0.0)
        run = train(tiny(exchange=exchange, generations=generations, fitness=fitness), [heard]).run_dir
        return heard.notes, rows(run / "provenance.jsonl")[-1]

    assert worker("a")[0] == worker("b")[0] == []
    for name, shoal_there in (("a", "0.1.7"), ("b", "0.1.7"), ("c", "0.1.9")):
        if name == "c":
            worker(name)
        run = tmp_path / "workers" / name
        forge(run, versions=rows(run / "provenance.jsonl")[0]["versions"] | {"shoal": shoal_there})
    (tmp_path / "workers" / "d").mkdir()
    (tmp_path / "workers" / "d" / "provenance.jsonl").write_text('{"generation": 0, "versions": [1]}\n')
    (tmp_path / "workers" / "file").touch()
    (tmp_path / "workers" / "f" / "provenance.jsonl").mkdir(parents=True)
    (note,), line = worker("e")
    said(note)
    assert note.endswith(str(line["other_versions"]))
    note, line = worker("e", generations=2)[0][-1], rows(tmp_path / "workers/e/provenance.jsonl")[-1]
    assert "worker a, b" in note and line["generation"] == 1 and "worker c" in line["other_versions"]
    assert "worker a, b: shoal 0.1.7" in write_report(tmp_path).read_text()


def test_a_changed_tree_is_not_clean(tmp_path: Path, repository: Path) -> None:
    (repository / "notes.txt").write_text("another text")
    result = train(tiny(tmp_path / "run"))
    assert not result.summary["provenance"]["clean"]
    assert f"{git(repository, 'rev-parse', 'HEAD')}, with changes" in write_report(result.run_dir).read_text()


def test_the_commit_is_that_of_the_users_own_code(
    tmp_path: Path, repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (repository / "selector_under_git.py").write_text("from shoal.methods.select import Truncation as Mine\n")
    monkeypatch.syspath_prepend(repository)
    monkeypatch.chdir(tmp_path)
    run = tmp_path / "run"
    done = train(tiny(run, select="selector_under_git:Mine"))
    assert done.summary["provenance"]["commit"] == git(repository, "rev-parse", "HEAD")
    git(repository, "commit", "-qm", "second", "--allow-empty")
    notes = shoal("resume", run, "--generations", 3, "--trust-code").out
    assert f"commit {done.summary['provenance']['commit']} → {git(repository, 'rev-parse', 'HEAD')}" in notes


def test_resume_says_what_has_changed(tmp_path: Path) -> None:
    run = tmp_path / "run"
    train(tiny(run))
    (line,) = rows(run / "provenance.jsonl")
    forge(run, host="elsewhere\x1b[2J", date="1999", versions=line["versions"] | {"jax": "0.1"})
    more = shoal("resume", run, "--generations", 3)
    changed = f"host elsewhere\\x1b[2J → {socket.gethostname()}, jax 0.1 → {line['versions']['jax']}"
    assert f"has changed, by which results may differ: {changed}\n" in more.out
    assert [line["generation"] for line in rows(run / "provenance.jsonl")] == [0, 2]
    assert "changed" not in shoal("resume", run, "--generations", 4, "--quiet").out


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return train(tiny(tmp_path_factory.mktemp("once") / "run")).run_dir


@pytest.mark.parametrize("left", ["", "[1]\n", '{"generation": 0, "versions": 3, "host": {"a": NaN}}\n', "{"])
def test_a_run_whose_provenance_is_missing_or_damaged_goes_on(whole: Path, tmp_path: Path, left: str) -> None:
    run = shutil.copytree(whole, tmp_path / "run")
    (run / "provenance.jsonl").unlink() if not left else (run / "provenance.jsonl").write_text(left)
    write_report(run)
    assert resume(run, 3).summary["provenance"]["generation"] == 2
    write_report(run)


def test_no_program_that_a_repository_names_is_run(tmp_path: Path, repository: Path) -> None:
    """Its settings are as foreign as its files: a run directory may be one. Git without precautions runs each of these."""
    ran, loud = tmp_path / "ran", tmp_path / "loud"
    loud.write_text(f'#!/bin/sh\necho "$1" >> {ran}\nexit 1\n')
    loud.chmod(0o755)
    hook = repository / ".git/hooks/post-index-change"
    hook.parent.mkdir(exist_ok=True)
    hook.write_text(f"#!/bin/sh\n{loud} hook\n")
    (repository / ".gitattributes").write_text("a filter=a=b\nb filter=b\n")
    for name in "ab":
        (repository / name).write_text(name)
    git(repository, "add", ".")
    git(repository, "commit", "-qm", "filtered")
    programs = {"core.fsmonitor": "fsmonitor", "filter.a=b.clean": "clean", "filter.b.process": "process"}
    programs |= {"core.sshCommand": "ssh", "diff.external": "diff", "remote.o.uploadpack": "fetch"}
    missing = {"core.repositoryformatversion": "1", "extensions.partialClone": "o", "remote.o.promisor": "true"}
    settings = {name: f"{loud} {word}" for name, word in programs.items()} | missing
    for name, value in (settings | {"remote.o.url": str(tmp_path), "protocol.allow": "always"}).items():
        git(repository, "config", name, value)
    hook.chmod(0o755)
    ran.unlink(missing_ok=True)

    def touched() -> Path:
        """The repository, where git has to look into files."""
        for name in "ab":
            os.utime(repository / name, (0, 0))
        return repository

    head = git(repository, "rev-parse", "HEAD")
    assert checked_out(touched()) == {"commit": head, "clean": True}
    tree = git(repository, "rev-parse", "HEAD^{tree}")
    (repository / ".git/objects" / tree[:2] / tree[2:]).unlink()  # which git would fetch
    assert checked_out(touched()) == {}
    assert not ran.exists(), ran.read_text()
    for spared in ("core.fsmonitor=false", "filter.b.process="):
        subprocess.run(("git", "-C", touched(), "-c", spared, "describe", "--always", "--dirty"), capture_output=True)
    assert {"fsmonitor", "clean", "process", "hook", "fetch"} <= {*ran.read_text().split()}


@pytest.mark.parametrize(
    "given",
    [
        ("--set", "env_options={api_key: hidden, speed: 2}"),
        ("--set", "env_options.token=hidden"),
        ("--wandb-key", "hidden"),
        ("--password=hidden",),
        ("https://me:hidden@example.org/a",),
        ("0123456789abcdef0123456789abcdef01hidden".replace("hidden", "234567"),),
        ("wandb_v1_hidden",),
    ],
)
def test_no_secret_of_the_command_line_is_written(given: tuple[str, ...]) -> None:
    written = command(["/bin/shoal", "train", *given, "--seed", "3"])
    assert "hidden" not in written and "0123456789" not in written
    assert "***" in written
    assert written.endswith("--seed 3")


def test_what_is_no_secret_is_written() -> None:
    words = ["train", "experiments/keydoor.yaml", "--set", "hyper.discount=0.9", "--env", "gym:Monkey-v0"]
    assert command(["-", *words]).split()[1:] == words
