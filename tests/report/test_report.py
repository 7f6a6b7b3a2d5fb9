"""The report: whole in itself, inert against hostile names, sensible on any run."""

from __future__ import annotations

import errno
import json
import os
import re
import subprocess
import sys
from contextlib import nullcontext, suppress
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from support.cases import every_slow
from support.synthetic_run import write_run

from shoal.core.errors import BadInput
from shoal.records import words
from shoal.report import charts
from shoal.report.charts import Axis
from shoal.report.page import CLOSED, write_report

SECTIONS = (
    "fitness", "lineage", "best", "hyperparameters", "tree", "throughput", "members", "experiment",
)  # fmt: skip
VOID = {"meta", "link", "br", "img", "input", "hr"}


class Page(HTMLParser):
    """Elements, text and nesting of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.words = ""
        self.data = ""
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] == "script" and self.tags[-1][1].get("id") == "data":
            self.data += data
        elif self.open and self.open[-1] not in ("script", "style"):
            self.words += data

    def ids(self) -> list[str]:
        return [attrs["id"] or "" for _, attrs in self.tags if "id" in attrs]


def report(run: Path, sections: tuple[str, ...] = SECTIONS) -> tuple[str, Page]:
    text = write_report(run).read_text(encoding="utf-8")
    page = Page(text)
    found = [attrs["id"] for tag, attrs in page.tags if tag == "section"]
    assert [name for name in found if name not in ("learning", "provenance")] == list(
        sections
    )  # where there is something
    json.loads(page.data, parse_constant=lambda name: pytest.fail(f"{name} is no JSON"))
    assert not re.search(r'="[^"]*\b(nan|inf)\b', re.sub(r'data-v="nan"', "", text)), (
        "a number that is none reached a figure"
    )
    return text, page


def change(run: Path, **fields: object) -> None:
    """Change fields of a run's experiment."""
    file = run / "experiment.yaml"
    file.write_text(yaml.safe_dump(yaml.safe_load(file.read_text()) | fields))


def test_key_facts(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run")
    result = json.loads((run / "result.json").read_text())
    _, page = report(run)
    champion = result["champion"]
    for fact in (
        "CartPole-v1", "learned by ppo", "finished", f"{champion['evaluation']['mean']:.4g}", "± 1.24",
        "over 100 held-out episodes", f"{champion['selection_fitness']:.4g}", "5.24M", "655k of each member",
        "8 agents learned side by side",
        "Not tuned: clip 0.2; trace 0.95", "interval: 32768",
    ):  # fmt: skip
        assert fact in page.words
    assert "no result yet" not in page.words


@pytest.mark.parametrize(
    ("population", "generations", "more"),
    [
        (8, 20, {}),
        (8, 20, {"finished": False}),
        (6, 12, {"copying": False}),
        (1, 10, {}),
        (1, 1, {"finished": False}),
        (5, 1, {}),
        (2, 2, {}),
        (8, 15, {"diverged": 0.3}),
        (4, 3, {"diverged": 1.0}),
        (250, 6, {}),
    ],
)
def test_any_run_has_a_page(tmp_path: Path, population: int, generations: int, more: dict[str, object]) -> None:
    _, page = report(write_run(tmp_path / "run", population, generations, **more))  # type: ignore[arg-type]
    assert ("no result yet" in page.words) == (not more.get("finished", True))
    if not more.get("copying", True):
        assert "Nobody copied anybody" in page.words
    if more.get("diverged") == 1.0:
        assert "there is no champion" in page.words


@pytest.mark.parametrize(
    ("replay", "words"), [("copy", "They copied the replay buffer too."), ("keep", "Each kept its own replay buffer.")]
)
def test_the_page_says_where_replay_buffers_went(tmp_path: Path, replay: str, words: str) -> None:
    change(write_run(tmp_path / "run", 4, 5), config={"buffer_size": 10}, method={"name": "pbt", "replay": replay})
    _, page = report(tmp_path / "run")
    assert words in page.words


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"fitness": {"source": "evaluation"}}, ("every member was evaluated", "Mean return ± standard error over")),
        ({"fitness": {"source": "training"}}, ("training episodes in a generation give its fitness", "Mean return ± ")),
        ({"fitness": {"objective": "success"}}, ("every member was evaluated", "Mean success ± ")),
        ({"fitness": {"objective": "cost", "direction": "minimize"}}, ("Negative mean cost ± ",)),
        ({"agent": "rl_games:PPO", "config": {"objective": "episode/success"}}, ("Mean episode/success ± ",)),
    ],
)
def test_the_page_says_what_fitness_is(tmp_path: Path, fields: dict[str, Any], words: tuple[str, ...]) -> None:
    change(write_run(tmp_path / "run", 4, 5), **fields)
    _, page = report(tmp_path / "run")
    assert all(word in page.words for word in words)


def test_values_that_are_equal_at_the_end_are_no_range(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", 1, 5)
    rate = json.loads((run / "lineage.jsonl").read_text().splitlines()[-1])["hyper"]["learning_rate"]
    assert f"At the end all members have {words.text(rate)}." in report(run)[1].words


def test_a_run_that_has_not_begun(tmp_path: Path) -> None:
    (tmp_path / "experiment.yaml").write_text("env: Pendulum-v1\nagent: sac\n")
    _, page = report(tmp_path)
    assert "Pendulum-v1 learned by sac" in page.words and "nothing has been learned yet" in page.words


def test_lines_alone_are_enough(tmp_path: Path) -> None:
    """Neither experiment, metrics nor result, and of every line only what it cannot do without."""
    run = write_run(tmp_path / "run", 4, 5)
    entries = [json.loads(line) for line in (run / "lineage.jsonl").read_text().splitlines()]
    needed = ("generation", "uid", "parent", "fitness")
    (run / "lineage.jsonl").write_text("".join(json.dumps({n: e[n] for n in needed}) + "\n" for e in entries))
    for name in ("experiment.yaml", "metrics.jsonl", "result.json"):
        (run / name).unlink()
    _, page = report(run)
    assert (
        "Nothing was tuned" in page.words and "No timing" in page.words and "experiment.yaml is missing" in page.words
    )


@pytest.mark.parametrize("name", ["lineage.jsonl", "metrics.jsonl", "result.json", "experiment.yaml", "method.json"])
def test_a_file_cut_anywhere(tmp_path: Path, name: str) -> None:
    run = write_run(tmp_path / "run", 4, 4, finished=True)
    whole = (run / name).read_bytes()
    for size in np.linspace(0, len(whole) - 1, 12).astype(int):
        (run / name).write_bytes(whole[:size])
        with suppress(BadInput) if name == "experiment.yaml" else nullcontext():  # without it, little makes sense
            report(run)


@pytest.mark.parametrize("value", every_slow([None, float("nan"), "text", [], {}, float("inf"), -1, 0, True], 5))
def test_odd_values_anywhere(tmp_path: Path, value: object) -> None:
    run = write_run(tmp_path / "run", 4, 4)
    for name in ("lineage.jsonl", "metrics.jsonl"):
        entries = [json.loads(line) for line in (run / name).read_text().splitlines()]
        for at, entry in enumerate(entries):
            for field in list(entry)[2 if name == "lineage.jsonl" else 1 :][at % 2 :: 2]:
                entry[field] = value
        (run / name).write_text("".join(json.dumps(entry) + "\n" for entry in entries))
    result = json.loads((run / "result.json").read_text())
    for field in result:
        (run / "result.json").write_text(json.dumps(result | {field: value}))
        report(run)
    (run / "result.json").write_text(json.dumps(result | {"champion": result["champion"] | {"evaluation": value}}))
    report(run)
    (run / "experiment.yaml").write_text(
        f"space: {{learning_rate: {json.dumps(value)}}}\ngenerations: {json.dumps(value)}"
    )
    report(run)


def test_hostile_names_stay_text(tmp_path: Path) -> None:
    evil = "</script></title><img src=x onerror=alert(1)>\"'&{{data}}<!--"
    run = write_run(tmp_path / 'r"un<i>&', env=evil, agent=evil)
    for name in ("lineage.jsonl", "experiment.yaml"):
        text = (run / name).read_text()
        (run / name).write_text(text.replace("learning_rate", "<svg onload=1> & </script>"))
    text, page = report(run)
    assert {tag for tag, _ in page.tags} & {"img", "i"} == {"i"}
    assert not any(name.startswith("on") for _, attrs in page.tags for name in attrs)
    assert evil in page.words and "<svg onload=1> & </script>" in page.words
    assert text.count("</script>") == 2 and "<!--" not in text
    assert "<svg onload=1> & </script>" in json.loads(page.data)["members"]


def test_nothing_is_loaded_from_anywhere(tmp_path: Path) -> None:
    text, page = report(write_run(tmp_path / "run"))
    assert "http" not in text and "//cdn" not in text and "@import" not in text and "url(" not in text
    for tag, attrs in page.tags:
        assert "src" not in attrs
        assert (attrs.get("href") or "#").startswith(("#", "data:")), tag


def test_the_script_knows_the_scale_of_every_axis(tmp_path: Path) -> None:
    """It places values under the cursor; minus exploitability has a scale of its own."""
    run = write_run(tmp_path / "run", 4, 5)
    change(run, fitness={"source": "exploitability"})
    text, page = report(run)
    scales = {json.loads(a["data-chart"] or "")["scale"] for _, a in page.tags if "data-chart" in a}
    (known,) = re.findall(r"const count = \{(.*)\};", text)
    assert "minus_log" in scales and scales <= set(re.findall(r"(\w+): ", known))


def test_closed_sections_say_what_they_found(tmp_path: Path) -> None:
    """Pictures that few need are one click away; their sentences are not."""
    page, _ = report(write_run(tmp_path / "run"))
    for section in {*CLOSED} - {"provenance"}:
        inside = re.search(
            rf'<section id="{section}"><details><summary>(.*?)</summary>(.*?)</section>', page, re.DOTALL
        )
        assert inside and "<h2>" in inside[1] and "<figure>" not in inside[1]
        findings = re.findall(r'<p class="finding">(.*?)</p>', inside[2])
        assert all(finding in inside[1] for finding in findings) and bool(findings) == ('class="found"' in inside[1])
    assert '<section id="fitness"><h2>' in page


def test_figures_speak(tmp_path: Path) -> None:
    """Every drawing has its figure's name, a description and a table behind it; every sentence stands over its figure."""
    text, page = report(write_run(tmp_path / "run"))
    drawings = text.count("<svg role=")
    assert text.count("<title>") == drawings + 1 and text.count("<desc>") == drawings
    assert set(re.findall(r"<title>([^<]*)</title><desc>", text)) <= set(re.findall(r"<h[34]>([^<]*)</h[34]>", text))
    assert "<desc></desc>" not in text and text.count('class="finding"') == text.count("<figure>")
    assert text.count("The numbers") >= 10
    assert "log" in text and text.count('class="view"') == 2  # the two curved scales


def test_advice_to_widen(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", 8, 8)
    entries = [json.loads(line) for line in (run / "lineage.jsonl").read_text().splitlines()]
    for entry in entries:
        entry["hyper"] |= {
            "learning_rate": 1.0001e-5,
            "discount": 0.98,
            "entropy": 0.05,
            "epochs": 7.0,
            "num_minibatches": 2,
        }
    (run / "lineage.jsonl").write_text("".join(json.dumps(entry) + "\n" for entry in entries))
    _, page = report(run)
    assert "learning_rate, entropy: a wider range is worth a try." in page.words
    assert page.words.count("Widen the range downwards") == page.words.count("Widen the range upwards") == 1
    assert page.words.count("Fine as it is.") == 3


def test_written_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = write_run(tmp_path / "run", 2, 2)
    before = write_report(run).read_text()
    files = sorted(os.listdir(run))

    def fail(*_: object) -> None:
        raise OSError(errno.ENOSPC, "no space")

    monkeypatch.setattr(os, "replace", fail)
    with pytest.raises(OSError, match="no space"):
        write_report(run)
    assert (run / "report.html").read_text() == before and sorted(os.listdir(run)) == files


def test_the_same_run_gives_the_same_page(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", 5, 6)
    assert write_report(run).read_text() == write_report(run).read_text()


@pytest.mark.slow
def test_large_runs_stay_small(tmp_path: Path) -> None:
    text, page = report(write_run(tmp_path / "run", 80, 300))
    assert len(text) < 4_000_000
    assert "too often to mark each" in page.words and "Every fork is a copy with descendants" in page.words


def test_no_heavy_imports() -> None:
    code = "import sys, shoal.report.page; assert not {'jax', 'flax', 'matplotlib', 'torch'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True, env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)})


@pytest.mark.parametrize(
    ("axis", "words"),
    [
        (Axis(0, 10), ["0", "2", "4", "6", "8", "10"]),
        (Axis(-1, 1), ["-1", "-0.5", "0", "0.5", "1"]),
        (Axis(0, 3, whole=True), ["0", "1", "2", "3"]),
        (Axis(0, 2_000_000, short=True), ["0", "500k", "1M", "1.5M", "2M"]),
        (Axis(-5, -2, scale="log"), ["1e-5", "1e-4", "0.001", "0.01"]),
        (Axis(-3.2, -2.8, scale="log"), ["0.001"]),
        (Axis(1, 3, scale="one_minus_log"), ["0.9", "0.99", "0.999"]),
        (Axis(1.9, 2.4, scale="one_minus_log"), ["0.99", "0.995"]),
        (Axis(0, 2, choices=(1, 2, 4)), ["1", "2", "4"]),
    ],
)
def test_ticks(axis: Axis, words: list[str]) -> None:
    ticks = axis.ticks()
    assert [word for _, word in ticks if word in words] == words
    assert all(-1e-6 <= place <= 1 + 1e-6 for place, _ in ticks)
    assert 1 <= len(ticks) <= 9


@pytest.mark.parametrize("scale", ["linear", "log", "one_minus_log"])
def test_an_axis_holds_its_values(scale: str) -> None:
    values = np.array([0.2, 0.9, np.nan, 0.99])
    places = Axis.over(values, pad=0.1, scale=scale).place(values)
    assert np.isnan(places[2])
    assert np.all(np.diff(places[[0, 1, 3]]) > 0) and places[0] > 0 and places[3] < 1
    assert np.isfinite(Axis.over([np.nan], scale=scale).low) and Axis.over([0.5, 0.5], scale=scale).place(0.5) == 0.5


def test_paths() -> None:
    x, y = np.array([0, 0.5, 1]), np.array([0, np.nan, 1])
    assert charts.line(x, np.array([0, 0.5, 1])) == "M0 1000l1000 -500l1000 -500"
    assert charts.line(x, y) == "M0 1000h.1M2000 0h.1"  # points on their own are dots
    assert charts.dots(x, y) == "M0 1000h.1M2000 0h.1"
    edges, steps = np.array([0, 0.25, 0.5, 1]), np.array([0, 0, 1])
    assert charts.stairs(edges, steps) == "M0 1000H1000V0H2000"
    assert charts.stairs(edges, steps, risers=False) == "M0 1000H1000M1000 0H2000"
    assert charts.stairs(np.array([0, 0.5]), np.array([np.nan])) == ""
    assert charts.band(x, np.zeros(3), y) == "M0 1000L0 1000ZM2000 0L2000 1000Z"


@pytest.mark.parametrize(
    ("value", "said"),
    [(0, "0"), (0.00025, "2.5e-4"), (1.0, "1"), (0.99953, "0.99953"), (3.14159, "3.142"), (12345.6, "12,346"),
     (-1e9, "-1e9"), (float("nan"), "–"), (float("inf"), "–")],
)  # fmt: skip
def test_numbers_for_people(value: float, said: str) -> None:
    assert words.text(value) == said


def test_where_else_the_curves_are(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run")
    experiment = yaml.safe_load((run / "experiment.yaml").read_text())
    experiment["wandb"] = {"project": "walkers", "entity": "a lab", "mode": "offline"}
    (run / "experiment.yaml").write_text(yaml.safe_dump(experiment))
    (run / "wandb.json").write_text(json.dumps({"ids": {"population": "1f"}, "url": "javascript:alert()"}))
    text, page = report(run)
    assert '<a href="https://wandb.ai/a%20lab/walkers/runs/1f">https://' in text
    (run / "wandb.json").write_text(json.dumps({"ids": {}, "url": "https://wandb.here/us/walkers/runs/2"}))
    assert '<a href="https://wandb.here/us/walkers/runs/2">' in report(run)[0]
    (run / "wandb.json").write_text("[]")
    assert "At Weights &amp; Biases it is in project walkers, once" in " ".join(report(run)[0].split())
    assert "once wandb sync wandb/offline-run-* has sent it" in page.words
    assert "tensorboard --logdir tensorboard shows its curves" in page.words
