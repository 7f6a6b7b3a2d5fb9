"""Figure 2 of the PBT paper, against closed forms and an independent simulation."""

import subprocess
import sys
from functools import cache

import numpy as np
import pytest
from support.cases import every_slow
from support.messages import shown

from shoal.commands import toy
from shoal.core.errors import BadInput
from shoal.records.screen import Screen

STEPS = np.arange(toy.STEPS + 1)
RUN = cache(toy.run)
SAME = ("exploit", "grid", "exploit_hyper")


@pytest.fixture(scope="module")
def finals():
    """Of arms that draw nothing but who wins a tie, fewer seeds say the same."""
    return {arm: over(arm, 60) for arm in ("pbt", "explore")} | {arm: over(arm, 12) for arm in SAME}


@pytest.fixture
def once(monkeypatch):
    """Each run is made once: those of PB2 take long."""
    monkeypatch.setattr(toy, "run", RUN)


def over(arm, seeds):
    return np.array([toy.final(arm, seed) for seed in range(seeds)])


def test_grid_search_in_closed_form():
    path = toy.run("grid", seed=0)
    shrunk = 0.9 * 0.96**STEPS
    np.testing.assert_allclose(path.theta[:, 0], np.stack([shrunk, np.full_like(shrunk, 0.9)], 1))
    np.testing.assert_allclose(path.theta[:, 1], np.stack([np.full_like(shrunk, 0.9), shrunk], 1))
    np.testing.assert_allclose(path.q, np.tile((1.2 - 0.81 - shrunk**2)[:, None], 2))
    assert path.q[-1] == pytest.approx([0.39, 0.39], abs=1e-6) and not path.copied.any()


def test_exploit_only_by_hand():
    """The worse one takes the weights of the better one at every tenth step, and keeps its own h."""
    path = toy.run("exploit", seed=3)
    theta, h = np.full((2, 2), 0.9), np.eye(2)
    for step in STEPS[1:]:
        theta = theta - 0.04 * h * theta
        if step % 10 == 0:
            q = 1.2 - (theta**2).sum(1)
            winner = int(path.copied[step].argmin()) if q[0] == q[1] else int(q.argmax())
            theta = theta[[winner, winner]]
        np.testing.assert_allclose(path.theta[step], theta)
    assert np.all(path.hyper == h) and path.copied[10].sum() == 1


def test_explore_only_never_copies():
    path = toy.run("explore", seed=1)
    assert not path.copied.any()
    changes = np.flatnonzero((np.diff(path.hyper, axis=0) != 0).any((1, 2))) + 1
    assert set(changes) <= set(range(10, 201, 10)) and len(changes) > 10  # at the bounds a step may be clipped to none
    assert path.hyper.min() >= 0 and path.hyper.max() <= 1


def test_published_and_simulated_numbers(finals):
    """Means over 500 seeds of an independent simulation; here 60 seeds, so within four standard errors of any draws."""
    mean = {arm: q.mean() for arm, q in finals.items()}
    assert mean["grid"] == pytest.approx(0.39, abs=1e-6)
    assert mean["exploit_hyper"] == pytest.approx(0.39, abs=1e-6)
    assert mean["exploit"] == pytest.approx(1.2, abs=1e-3) and finals["exploit"].std() < 1e-6
    assert mean["pbt"] == pytest.approx(1.187, abs=0.02)
    assert mean["explore"] == pytest.approx(1.143, abs=0.045)
    assert np.percentile(finals["explore"], 5) == pytest.approx(0.965, abs=0.18)


def test_successors_reach_the_top_too(once):
    """PB2 learns within a few copies that both h pay; sub-populations have both kinds of members from the start."""
    assert over("pb2", 3).mean() == pytest.approx(1.2, abs=1e-3) and over("mf_pbt", 20).mean() > 1.17
    path = toy.run("mf_pbt", 0)
    assert path.theta.shape == (toy.STEPS + 1, 8, 2) and path.hyper[0, :, 0].tolist() == [1] * 4 + [0] * 4
    fast, slow = (np.flatnonzero(path.copied[:, i::2].any(1)) for i in (0, 1))
    assert set(fast) <= set(range(10, 201, 10)) and len(fast) > 10 and set(slow) <= {50, 100, 150, 200}


def test_both_members_win_ties():
    first_copies = {tuple(toy.run("pbt", seed).copied[10].tolist()) for seed in range(12)}
    assert first_copies == {(True, False), (False, True)}


def test_runs_repeat_and_seeds_differ():
    one, again, other = toy.run("pbt", 5), toy.run("pbt", 5), toy.run("pbt", 6)
    assert all(np.array_equal(a, b) for a, b in zip(one, again, strict=True))
    assert not np.array_equal(one.q, other.q)


@pytest.mark.parametrize(("suffix", "head"), every_slow([("svg", b"<?xml"), ("pdf", b"%PDF")], 1))
def test_figure(tmp_path, once, suffix, head):
    path = tmp_path / "new folder" / f"toy.{suffix}"
    toy.figure(path)
    assert path.read_bytes().startswith(head) and path.stat().st_size > 10_000


def test_main_prints_every_arm_and_saves_the_figure(tmp_path, once, capsys):
    """The ending of its name may be in capitals."""
    path = tmp_path / "TOY.PNG"
    toy.main(path, 2, Screen())
    printed = capsys.readouterr().out
    assert all(arm.title in printed for arm in toy.ARMS.values()) and "0.390" in printed
    assert path.read_bytes().startswith(b"\x89PNG") and path.stat().st_size > 10_000


@pytest.mark.parametrize(("name", "seeds"), [("toy.gif", 1), ("toy", 1), ("a.png", 0)], ids=shown)
def test_bad_flags(tmp_path, name, seeds, said):
    with pytest.raises(BadInput) as error:
        toy.main(tmp_path / name, seeds, Screen())
    said(error.value)
    assert not list(tmp_path.iterdir())


def test_evolution_imports_neither_jax_nor_plotting():
    heavy = "{'jax', 'scipy', 'matplotlib', 'rich'}"
    imports = "import sys, shoal.commands.toy, shoal.methods"
    code = f"{imports}; assert not {heavy} & set(sys.modules), {heavy} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)
