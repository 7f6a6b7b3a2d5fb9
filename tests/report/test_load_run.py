"""A run as tables and one figure."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from support.synthetic_run import write_run
from test_report_numbers import champion, descent

from shoal import BadInput, load_run
from shoal.report import load_run as module


def rows(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return write_run(tmp_path / "run", population=6, generations=5, diverged=0.1)


def test_one_generation_is_one(tmp_path: Path) -> None:
    assert repr(load_run(write_run(tmp_path / "run", 2, 1))).endswith(": pbt, 1 generation>")


def test_lineage_has_a_row_for_each_member_and_generation(path: Path) -> None:
    table = load_run(path).lineage
    for entry, (_, row) in zip(rows(path / "lineage.jsonl"), table.iterrows(), strict=True):
        for name in ("generation", "uid", "parent", "explored", "steps"):
            assert row[name] == entry[name]
        assert np.isnan(row.fitness) if entry["fitness"] is None else row.fitness == entry["fitness"]
        assert all(row[name] == value for name, value in entry["hyper"].items())
    told = rows(path / "metrics.jsonl")
    for name in told[0]["members"]:
        wide = table.pivot(index="generation", columns="uid", values=name)
        assert wide.to_numpy().tolist() == [entry["members"][name] for entry in told]


def test_a_metric_never_stands_in_place_of_a_hyperparameter(path: Path) -> None:
    """A trainer may report its learning rate, such as one that has fallen since."""
    told = rows(path / "metrics.jsonl")
    for row in told:
        row["members"]["learning_rate"] = [0.5] * 6
    (path / "metrics.jsonl").write_text("\n".join(map(json.dumps, told)) + "\n")
    table = load_run(path).lineage
    assert table.learning_rate.tolist() == [row["hyper"]["learning_rate"] for row in rows(path / "lineage.jsonl")]


def test_metrics_have_a_row_for_each_generation(path: Path) -> None:
    table, told = load_run(path).metrics, rows(path / "metrics.jsonl")
    assert table.generation.tolist() == list(range(5))
    assert table["fitness/best"].tolist() == [entry["fitness"]["best"] for entry in told]
    assert table["timing/train"].tolist() == [entry["timing"]["train"] for entry in told]


def test_without_pandas_tables_are_columns(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    frame = load_run(path).lineage
    monkeypatch.setattr(module, "find_spec", lambda name: None)
    columns = load_run(path).lineage
    assert isinstance(columns, dict) and isinstance(columns["fitness"], np.ndarray)
    pd.testing.assert_frame_equal(pd.DataFrame(columns), frame)


@pytest.mark.parametrize("generations", [0, 1, 5])
def test_the_figure_shows_members_champion_and_hyperparameters(tmp_path: Path, generations: int) -> None:
    write_run(tmp_path / "run", population=6, generations=max(generations, 1))
    if not generations:
        (tmp_path / "run/lineage.jsonl").unlink()
    figure = load_run(tmp_path / "run").plot()
    names = [axes.get_ylabel() for axes in figure.axes]
    tuned = ["learning rate", "discount", "entropy", "epochs", "num minibatches"] if generations else []
    assert names == ["fitness", *tuned]
    assert [len(axes.lines) for axes in figure.axes] == [7 if generations else 0] * len(names)
    assert figure._repr_png_()[1:4] == b"PNG"  # the name by which notebooks ask for a picture
    if generations:
        path = tmp_path / "run"
        members = [row["hyper"]["entropy"] for row in rows(path / "lineage.jsonl")]
        lines = [line.get_ydata().tolist() for line in figure.axes[3].lines]
        assert lines[:6] == [members[uid::6] for uid in range(6)]
        assert lines[6] == [row["hyper"]["entropy"] for row in descent(path, *champion(path))]


def test_what_is_no_run_and_what_is_not_there_yet(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="holds no run"):
        load_run(tmp_path)
    run = load_run(write_run(tmp_path / "run", generations=2, finished=False))
    assert run.result == {} and "2 generations" in repr(run)
    with pytest.raises(BadInput, match="holds no champion"):
        _ = run.champion
