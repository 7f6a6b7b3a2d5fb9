"""The runs of all workers of a directory as one, and at a glance."""

from __future__ import annotations

import json
import re
import shutil
import signal
from io import StringIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.synthetic_run import write_about, write_run

from shoal.core.errors import BadInput
from shoal.core.run_files import is_workspace
from shoal.records.screen import Screen
from shoal.records.words import short, text
from shoal.report import workers
from shoal.report.comparison import differences, write_comparison
from shoal.report.page import write_report
from shoal.report.run import read_run
from shoal.report.schedule import schedule
from shoal.report.workers import watch_workspace
from shoal.report.workspace import read_workspace
from shoal.study.replay import follower

COUNT = 4  # members of a worker
PHASES = ("train", "evaluate", "evolve", "record")


def worker(path: Path, name: str, slot: int, generations: int, **more: Any) -> Path:
    """A worker's run, with the numbers that its slot gives its members."""
    run = write_run(path / "workers" / name, COUNT, generations, seed=slot, **more)
    (path / "slots").mkdir(exist_ok=True)
    (path / "slots" / f"{slot:04d}").write_text(name)
    for file in ("lineage.jsonl", "metrics.jsonl"):
        rows = [json.loads(line) for line in (run / file).read_text().splitlines()]
        for row in rows:
            for names in (row, row.get("champion") or {}):
                for key in ("uid", "parent"):
                    if key in names:
                        names[key] += COUNT * slot
        (run / file).write_text("".join(json.dumps(row) + "\n" for row in rows))
    if (run / "result.json").exists():
        result = json.loads((run / "result.json").read_text())
        result["champion"]["uid"] += COUNT * slot
        (run / "result.json").write_text(json.dumps(result))
    return run


def test_all_members_of_all_workers(tmp_path: Path) -> None:
    runs = [worker(tmp_path, name, slot, 12 + slot) for slot, name in enumerate(("b", "a", "c"))]
    assert is_workspace(tmp_path) and not is_workspace(runs[0])
    whole = read_workspace(tmp_path)
    assert whole.lineage.uids.tolist() == list(range(12))
    assert whole.lineage.generations.tolist() == list(range(14))
    assert whole.lineage.present.sum() == COUNT * (12 + 13 + 14)
    results = [json.loads((run / "result.json").read_text()) for run in runs]
    assert whole.result["environment_steps"] == sum(r["environment_steps"] for r in results)
    assert whole.result["seconds"] == max(r["seconds"] for r in results)
    best = max((r["champion"] for r in results), key=lambda c: c["selection_fitness"])
    assert whole.result["champion"] == best and whole.champion == (best["uid"], best["generation"])
    metrics = [[json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()] for run in runs]
    for entry in whole.metrics:
        parts = [rows[entry["generation"]] for rows in metrics if entry["generation"] < len(rows)]
        so_far = [rows[min(entry["generation"], len(rows) - 1)] for rows in metrics]  # some have fewer generations
        for name in ("steps", "evaluation_steps"):
            assert entry[name] == sum(p[name] for p in so_far)
        longest = max(parts, key=lambda p: sum(p["timing"][name] for name in PHASES))["timing"]
        assert all(
            entry["timing"][name] == longest[name] for name in PHASES
        )  # of one worker: they are parts of its time
        assert entry["timing"]["seconds"] == max(p["timing"]["seconds"] for p in so_far)
        assert entry["timing"]["steps_per_second"] == pytest.approx(sum(p["timing"]["steps_per_second"] for p in parts))


def test_the_schedule_of_a_worker_reaches_into_those_that_it_copied_from(tmp_path: Path) -> None:
    """By hand: a member of b, which b's own lineage begins with, was copied from a two generations behind."""
    older, run = worker(tmp_path, "a", 0, 3), worker(tmp_path, "b", 1, 6)
    result = json.loads((run / "result.json").read_text())
    child = result["champion"]["uid"] = 5
    result["champion"]["generation"] = 5
    (run / "result.json").write_text(json.dumps(result))
    for file, parents in ((older, {}), (run, {4: (1, 2)})):
        rows = [json.loads(line) for line in (file / "lineage.jsonl").read_text().splitlines()]
        for row in rows:
            row["parent"], row["parent_generation"] = row["uid"], row["generation"]
            if row["uid"] == child and row["generation"] in parents:
                row["parent"], row["parent_generation"] = parents[row["generation"]]
        (file / "lineage.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    found = schedule(run)
    assert [(row["uid"], row["generation"]) for row in found] == [(1, 0), (1, 1), (1, 2), (child, 5)]
    assert [row["copied"] for row in found] == [False, False, False, True]
    follows, said = follower(run), list[str]()
    names = follows.method["rows"][0].keys()
    assert follows.method["rows"] == [{name: row[name] for name in names} for row in found] and follows.generations == 4
    copied = shutil.copytree(run, tmp_path / "elsewhere")
    assert follower(copied, note=said.append).generations == 1
    assert said == [
        f"the schedule begins after generation 5: the lineage of {copied} holds nothing of its champion before"
    ]


def test_counts_of_a_workspace_are_those_of_a_run(tmp_path: Path) -> None:
    """A comparison would call 6 and 6.0 generations a difference."""
    worker(tmp_path, "a", 0, 6)
    alone = write_run(tmp_path / "alone", COUNT, 6)
    assert differences({"alone": read_run(alone), "workspace": read_workspace(tmp_path)}) == []


def say(run: Path, **changes: Any) -> None:
    """Change the result of a run, and its champion in it."""
    result = json.loads((run / "result.json").read_text())
    champion = result["champion"] | changes.pop("champion", {})
    (run / "result.json").write_text(json.dumps(result | changes | {"champion": champion}))


def words(page: Path) -> str:
    """The words of a page, without what it is drawn with."""
    return " ".join(
        re.sub(r"<script.*?</script>|<style.*?</style>|<[^>]*>", " ", page.read_text(), flags=re.DOTALL).split()
    )


def test_compiling_is_part_of_the_time_that_is_told(tmp_path: Path) -> None:
    """Both are of the worker that took longest, and not of all together."""
    for slot, (name, seconds, compiling) in enumerate((("a", 24.8, 9.0), ("b", 23.0, 21.5))):
        say(worker(tmp_path, name, slot, 3), seconds=seconds, compile_seconds=compiling)
    result = read_workspace(tmp_path).result
    assert (result["seconds"], result["compile_seconds"]) == (24.8, 9.0)
    shown = words(write_report(tmp_path))
    assert "24.8 s of the worker that took longest, 9 s of it compiling" in shown and "8 members of 2 workers" in shown


def test_the_champion_is_the_best_on_fresh_episodes(tmp_path: Path) -> None:
    """And not that of the first worker, or the one that was lucky when it was selected."""
    names = ("first", "lucky", "<best>")
    for slot, (name, selected, fresh) in enumerate(
        zip(names, (500.0, 510.0, 500.0), (450.0, 460.0, 498.5), strict=True)
    ):
        champion = {
            "selection_fitness": selected,
            "evaluation": {"mean": fresh, "standard_error": 1.25, "episodes": 100},
        }
        say(worker(tmp_path, name, slot, 3), champion=champion)
    whole = read_workspace(tmp_path)
    assert whole.result["champion"]["evaluation"]["mean"] == 498.5 and whole.champion is not None
    shown = words(write_report(tmp_path))
    assert f"Champion: member {whole.champion[0]} of worker &lt;best&gt; after generation" in shown
    assert "of the champions of 3 workers this one did best on the held-out episodes" in shown
    assert "nothing was selected on the held-out episodes" not in shown
    listed = shown.split("What each worker did")[1]
    assert "The champion comes from worker &lt;best&gt;." in listed
    for name, told in (("first", "450 ± 1.25 500"), ("lucky", "460 ± 1.25 510"), ("&lt;best&gt;", "498.5 ± 1.25 500")):
        assert f"{name} {told} " in listed


def test_levels_of_the_test_choose_no_champion(tmp_path: Path) -> None:
    for slot, (name, new, test) in enumerate((("a", 0.5, 0.4), ("b", 0.3, 0.9))):
        levels = {purpose: {"mean": mean} for purpose, mean in (("train", 0.5), ("validation", new), ("test", test))}
        say(worker(tmp_path, name, slot, 3), champion={"levels": levels, "evaluation": levels["test"]})
    assert read_workspace(tmp_path).result["champion"]["evaluation"]["mean"] == 0.4


def test_what_workers_do_not_agree_on_is_of_none(tmp_path: Path) -> None:
    for slot, (name, status) in enumerate((("a", "done"), ("b", "stopped"))):
        say(worker(tmp_path, name, slot, 3), status=status, seed=slot, env="CartPole-v1")
    result = read_workspace(tmp_path).result
    assert result["status"] == "stopped" and "seed" not in result and result["env"] == "CartPole-v1"


def test_workers_that_measure_one_population_each_tell_of_the_whole(tmp_path: Path) -> None:
    runs = [worker(tmp_path, name, 0, 12) for name in ("a", "b")]
    for run in runs:
        write_about(run, "es")
    whole, one = read_workspace(tmp_path), json.loads((runs[0] / "result.json").read_text())
    assert whole.population == COUNT
    for name, times in (("environment_steps", 1), ("evaluation_steps", 2)):
        assert whole.result[name] == times * one[name]
    last = json.loads((runs[0] / "metrics.jsonl").read_text().splitlines()[-1])
    assert whole.metrics[-1]["steps"] == last["steps"]
    assert whole.metrics[-1]["timing"]["steps_per_second"] == pytest.approx(last["timing"]["steps_per_second"], rel=0.5)


def test_a_workspace_at_work(tmp_path: Path) -> None:
    worker(tmp_path, "a", 0, 5)
    worker(tmp_path, "b", 1, 3, finished=False)
    (tmp_path / "workers" / "c").mkdir()
    (tmp_path / "workers" / "c" / "experiment.yaml").write_text("population: 4\n")
    whole = read_workspace(tmp_path)
    assert not whole.result and whole.champion is not None
    uid, generation = whole.champion
    latest = {4: whole.lineage.fitness[4, :4].max(), 2: whole.lineage.fitness[2, 4:].max()}
    assert whole.lineage.fitness[generation, uid] == max(latest.values())
    page = write_report(tmp_path)
    assert page == tmp_path / "report.html" and "12" in page.read_text()
    steps = sum(
        json.loads((tmp_path / f"workers/{name}/metrics.jsonl").read_text().splitlines()[-1])["steps"] for name in "ab"
    )
    assert f"Environment steps {short(steps)}" in words(page), "of both, though one is behind"


def test_a_workspace_is_compared_by_its_curves(tmp_path: Path) -> None:
    """The best and the median member of all workers, generation by generation: it had no curve beside that of a run."""
    for slot, name in enumerate(("a", "b")):
        worker(tmp_path / "two", name, slot, 6)
    fitness = read_workspace(tmp_path / "two").lineage.fitness
    write_comparison([tmp_path / "two", write_run(tmp_path / "one", COUNT, 6)], tmp_path / "page.html")
    shown = words(tmp_path / "page.html")
    for end in (np.nanmax(fitness[-1]), np.nanmedian(fitness[-1])):
        assert f"two ends at {text(float(end))}; one ends at" in shown
    assert len(re.findall(r'<path class="curve c\d"', (tmp_path / "page.html").read_text())) == 4


def test_a_parent_whose_worker_was_behind(tmp_path: Path) -> None:
    """The family tree has a line from the generation that was copied."""
    worker(tmp_path, "a", 0, 2, finished=False)
    lineage = worker(tmp_path, "b", 1, 5, finished=False) / "lineage.jsonl"
    rows = [json.loads(line) for line in lineage.read_text().splitlines()]
    rows[3 * COUNT] |= {"parent": 1, "parent_generation": 1}
    lineage.write_text("".join(json.dumps(row) + "\n" for row in rows))
    write_report(tmp_path)


def test_nobody_has_begun(tmp_path: Path) -> None:
    for name in ("workers", "slots"):
        (tmp_path / name).mkdir()
    with pytest.raises(BadInput, match="no worker has begun yet"):
        read_workspace(tmp_path)


def test_each_worker_has_a_run_of_its_own_at_weights_and_biases(tmp_path: Path) -> None:
    """The page of all of them leads to none of these."""
    for slot, name in enumerate("ab"):
        run = worker(tmp_path, name, slot, 3)
        (run / "wandb.json").write_text(json.dumps({"ids": {"population": name}, "url": "https://wandb.here/1"}))
        experiment = (run / "experiment.yaml").read_text()
        (run / "experiment.yaml").write_text(f"{experiment}wandb: {{project: walkers}}\n")
    assert "it is in project walkers" in " ".join(write_report(tmp_path).read_text().split()).replace("\n", " ")
    assert "https://wandb.here/1" in write_report(tmp_path / "workers" / "b").read_text()


def test_the_latest_copy_of_a_worker(tmp_path: Path) -> None:
    """Its generation is that of the file, of which the first lines may be damaged."""
    run = worker(tmp_path, "a", 0, 5, copying=False)
    rows = [json.loads(line) for line in (run / "lineage.jsonl").read_text().splitlines()]
    copies = [row | {"parent": 99} if row["generation"] == 3 and row["uid"] == 1 else row for row in rows]
    (run / "lineage.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in copies if row["generation"] > 1))
    console = Screen(file=StringIO(), width=160)
    console.print(workers.status(tmp_path))
    assert "1 ← 99 of ?, generation 4" in console.file.getvalue()  # type: ignore[attr-defined]


def test_at_a_glance(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    worker(tmp_path, "a", 0, 5)
    worker(tmp_path, "b", 1, 3, finished=False)
    worker(tmp_path, "silent", 2, 2, finished=False)
    (tmp_path / "workers" / "new").mkdir()
    (tmp_path / "workers" / "new" / "experiment.yaml").write_text("generations: 7\n")
    (tmp_path / "leases").mkdir()
    for name in ("b", "new"):
        (tmp_path / "leases" / name).touch()
    looks: list[int] = []

    def look(seconds: float) -> None:
        looks.append(1)
        if len(looks) == 60:
            signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(workers.time, "sleep", look)
    console = Screen(file=StringIO(), width=120)
    watch_workspace(tmp_path, console)
    assert len(looks) == 60
    shown = {line.split()[0]: line for line in console.file.getvalue().splitlines() if line.strip()}  # type: ignore[attr-defined]
    assert "5/5" in shown["a"] and "done" in shown["a"]
    assert "3/3" in shown["b"] and "at work" in shown["b"]
    assert "stopped" in shown["silent"] and "0/7" in shown["new"]


def test_watching_ends_with_the_last_worker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It went on until Ctrl-C. The last one has its result before the final selection, for which it keeps its lease."""
    worker(tmp_path, "a", 0, 5)
    run = worker(tmp_path, "b", 1, 3, finished=False)
    (tmp_path / "leases").mkdir(exist_ok=True)
    (lease := tmp_path / "leases" / "b").touch()
    looks: list[int] = []

    def look(seconds: float) -> None:
        looks.append(1)
        if len(looks) == 30:
            (run / "result.json").write_text('{"status": "done"}')
        if len(looks) == 90:
            lease.unlink()

    monkeypatch.setattr(workers.time, "sleep", look)
    console = Screen(file=StringIO(), width=120)
    watch_workspace(tmp_path, console)
    assert len(looks) == 120 and "at work" not in console.file.getvalue()  # type: ignore[attr-defined]


@pytest.mark.parametrize(("fields", "planned"), [("", "5/7"), ("budget: 90\n", "5/?"), ("time_limit: 9\n", "5/?")])
def test_a_budget_or_a_time_limit_plans_no_generations(tmp_path: Path, fields: str, planned: str) -> None:
    """The file has the most that there can be, which is a million where they are of whole episodes."""
    run = worker(tmp_path, "a", 0, 5)
    text = (run / "experiment.yaml").read_text().replace("generations: 5", "generations: 7")
    (run / "experiment.yaml").write_text(text + fields)
    console = Screen(file=StringIO(), width=120)
    console.print(workers.view(tmp_path))
    assert f" {planned} " in console.file.getvalue()  # type: ignore[attr-defined]


def test_nothing_to_watch(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="is not a workspace"):
        watch_workspace(tmp_path, Screen())


@pytest.mark.parametrize(
    ("name", "text"),
    [
        *(("experiment.yaml", text) for text in ("population: many", "population: [1]\ngenerations: {}", "[", "")),
        *(
            ("metrics.jsonl", text)
            for text in ('{"timing": 3}', '{"generation": 0, "timing": [1], "champion": 4}', "[[")
        ),
        *(
            ("result.json", text)
            for text in ('{"champion": {"uid": 1}}', '{"champion": {"selection_fitness": "x"}}', "3")
        ),
    ],
)
def test_a_worker_whose_files_say_nothing_of_use(tmp_path: Path, name: str, text: str) -> None:
    """The page and the live table are about the others then."""
    for folder in ("slots", "workers"):
        (tmp_path / folder).mkdir()
    for worker in ("a", "b"):
        write_run(tmp_path / "workers" / worker, population=4, generations=3)
    (tmp_path / "workers" / "a" / name).write_text(text)
    assert write_report(tmp_path).read_text().startswith("<!")
    Screen(file=StringIO()).print(workers.view(tmp_path))
