"""The checks of the conformance kit. Each raises AssertionError with one line that says what a trainer does wrong."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from shoal.core.errors import BadInput
from shoal.methods.ranges import validate
from shoal.testing.trainee import Trainee, episode, made
from shoal.trainers.process import Raised
from shoal.trainers.trainer import TrainerState
from shoal.trainers.trainers import described

SEEDS = (11, 12, 13)  # of the episodes of an evaluation
CLOSE = 1e-3  # a relative difference that comes from sums in another order


def check_description(t: Trainee) -> None:
    """The trainer's description of itself, before anything is made."""
    assert t.hyper, "hyper is empty: there is nothing that a population could tune"
    try:
        _, space, limits, _ = described(t.process.description)
        for name, values in space.items():
            validate(name, values)
    except BadInput as error:
        raise AssertionError(str(error)) from error
    for name, (low, high) in limits.items():
        assert low <= t.hyper[name] <= high, f"the default {name} = {t.hyper[name]:g} is not within its limits"


def check_seeds(t: Trainee) -> None:
    """The same seeds give the same training, other seeds another one."""
    wrong = "the same seeds gave different training: begin must seed every generator"
    t.expect_equal(t.train(t.member(), 1), t.expected[0], wrong)
    assert t.differences(t.train(t.member(), 9), t.expected[0]), "the seed of begin has no effect"
    assert t.differences(t.train(t.member(seed=9), 1), t.expected[0]), "the seed of make has no effect"


def check_live_equals_built(t: Trainee) -> None:
    """A value that is set on a live model does what it does in a model that was built with it."""
    _each(t, lambda t, name, hyper: _live_equals_built(t, f"{name} = {hyper[name]:g}", hyper))


def live_equals_built_at_once(t: Trainee) -> None:
    """Check all values together, which takes less time; check them one by one if that fails."""
    try:
        _live_equals_built(t, "another value of everything", t.others)
    except (AssertionError, Raised) as error:
        check_live_equals_built(t)
        raise AssertionError(f"{error}; each value alone does") from error


def _live_equals_built(t: Trainee, what: str, hyper: dict[str, float]) -> None:
    wrong = f"{what}, set on a live model, does not do what it does in a model that was built with it"
    live = t.member()
    live.evaluate(SEEDS[:1])  # builds it, with the defaults
    live.hyper = hyper
    t.expect_equal(t.train(live, 1), t.train(t.member(hyper=hyper), 1), wrong)
    live = t.member()
    t.train(live, 1)
    live.hyper = hyper
    t.expect_equal(t.train(live, 2), t.train(t.member(t.expected[0], hyper), 2), f"{wrong}, once it has trained")


def check_every_hyperparameter_has_an_effect(t: Trainee) -> None:
    """Each of `hyper` changes what is learned."""
    _each(t, _has_an_effect)


def _has_an_effect(t: Trainee, name: str, hyper: dict[str, float]) -> None:
    member = t.member(t.expected[0], hyper)
    t.train(member, 2)
    # Another interval with the defaults: what then differs is what was learned, not the value itself.
    member.hyper = t.hyper
    wrong = f"{name} has no effect: {hyper[name]:g} instead of {t.hyper[name]:g} changes nothing that is learned"
    assert t.differences(t.train(member, 3), t.expected[2]), wrong


def check_state_is_complete(t: Trainee) -> None:
    """The result of `get_state`, set in an instance of a new process, continues as if nothing had happened."""
    with t.new_process() as process:
        wrong = "a member that goes on from its state in a new process trains differently: the state lacks something"
        t.expect_equal(t.train(t.member(t.expected[0], seed=9, process=process), 2), t.expected[1], wrong)


def check_file(t: Trainee) -> None:
    """A model that `export` has written is whole again once `load` has read it; where the trainer has both."""
    able = t.process.description
    if not (able["export"] and able["load"]):
        return
    with TemporaryDirectory() as folder:
        first, *_ = t.member(t.expected[0]).export(Path(folder) / "model")
        loaded = t.member(seed=9).load(Path(first))
    wrong = "a model that export has written is another one once load has read it"
    t.expect_equal(loaded._replace(replay_buffer={}), t.expected[0]._replace(replay_buffer={}), wrong)


def check_own_hyperparameters_win(t: Trainee) -> None:
    """A child trains with its own hyperparameters, not with those of the parent whose state it gets."""
    parent, child = t.member(), t.member()
    t.train(parent, 1)
    t.train(child, 1)
    parent.hyper = t.others
    child.state = t.train(parent, 2)
    parent.hyper = t.hyper
    wrong = "a child that got its parent's state trains with the parent's hyperparameters instead of its own"
    t.expect_equal(t.train(child, 3), t.train(parent, 3), wrong)


def check_housemates(t: Trainee) -> None:
    """Members of one process do not influence one another."""
    with t.new_process() as process:
        member, other = t.member(process=process), t.member(hyper=t.others, seed=9, process=process)
        t.train(member, 1)
        alone = member.evaluate(SEEDS)
        t.train(other, 8)
        beside = member.evaluate(SEEDS)
        other.evaluate(SEEDS)
        assert np.array_equal(beside, alone), (
            f"evaluate gave {alone.tolist()}, and {beside.tolist()} once another member of the process had trained: they "
            "share something"
        )
        wrong = "a member trains differently beside another one in its process: they share something"
        t.expect_equal(t.train(member, 2), t.expected[1], wrong)


def check_evaluation(t: Trainee) -> None:
    """Evaluation can be repeated, depends on what was learned alone, and changes nothing."""
    member = t.member()
    t.train(member, 1)
    returns = member.evaluate(SEEDS)
    assert np.isfinite(returns).all(), f"evaluate gave {returns.tolist()} for weights that are finite"
    wrong = "two evaluations with the same seeds differ: it must be deterministic, and seed episodes"
    assert np.array_equal(member.evaluate(SEEDS), returns), wrong
    other = t.member(TrainerState(t.expected[0].learned, {}), seed=9).evaluate(SEEDS)
    assert np.array_equal(other, returns), "an evaluation depends on something that is not in `learned`"
    wrong = "a member trains differently after an evaluation: it changed something"
    t.expect_equal(t.train(member, 2), t.expected[1], wrong)


def check_episodes(t: Trainee) -> None:
    """Each seed has an episode of its own, whichever others are played beside it; where that is possible."""
    if not t.seeded:
        return
    member = t.member(t.expected[0])
    returns, turned = member.evaluate(SEEDS), member.evaluate(SEEDS[::-1])
    assert np.allclose(turned[::-1], returns, rtol=CLOSE), (
        f"evaluate gave {returns.tolist()} for the seeds {list(SEEDS)}, and {turned.tolist()} for the same backwards: "
        "it must play one episode for each seed, which depends on that seed alone"
    )


def check_evaluation_of_a_set_state(t: Trainee) -> None:
    """A member that has trained is evaluated with the state that it was given since."""
    member = t.member(seed=9)
    t.train(member, 8)
    member.evaluate(SEEDS)
    member.state = t.expected[0]
    live, new = member.evaluate(SEEDS), t.member(t.expected[0]).evaluate(SEEDS)
    assert np.array_equal(live, new), (
        f"a member that had trained gave {live.tolist()} after set_state, and a new one {new.tolist()}: evaluate and act "
        "must go by the state that was set last"
    )


def check_act(t: Trainee) -> None:
    """`act` plays the episodes of `evaluate`, and `spec` says what it sees and gives.

    Of a trainer that has both; where the environment can be made here, with gymnasium, else by the shapes alone.
    """
    spec = t.process.description["spec"]
    if spec is None or not t.process.description["act"]:
        return
    member, seen, action = t.member(t.expected[0]), tuple(spec["obs_shape"]), spec["action"]
    shape = (len(action["low"]),) if action["kind"] == "continuous" else ()
    for batch in (1, 3):
        try:
            given = member.act(np.zeros((batch, *seen), spec["obs_dtype"])).shape
        except Raised as error:
            wrong = f"spec has obs_shape = {list(seen)}, of which act makes no actions: {error}"
            raise AssertionError(wrong) from error
        assert given == (batch, *shape), (
            f"act gave actions of shape {list(given)} for observations {[batch, *seen]}, which must be {[batch, *shape]}"
        )
    if (env := made(t.recipe)) is None:
        return
    with closing(env):
        there = np.shape(env.reset(seed=SEEDS[0])[0])
        assert there == seen, f"spec has obs_shape = {list(seen)}, and the environment gives observations {list(there)}"
        played = [episode(env, member, spec["obs_dtype"], seed) for seed in SEEDS]
    if None in played:
        return  # they do not end
    returns = member.evaluate(SEEDS)
    assert np.allclose(np.array(played, float), returns, rtol=CLOSE), (
        f"episodes that act plays return {played}, and evaluate gave {returns.tolist()} for the same seeds: both must begin "
        "with reset(seed=seed), and act must see observations as the environment gives them, and normalise them alike"
    )


def check_returns(t: Trainee) -> None:
    """The returns of an interval are those of its own training episodes."""
    wrong = "returns are those of the training episodes that ended in this interval"
    for interval in t.life:
        count, steps = len(interval.report.returns), interval.report.steps
        assert count <= steps, f"train gave {count} returns for {steps} steps: {wrong}"
    again = t.member(t.expected[0], seed=9).train(2, t.steps).report.returns
    lived, close = t.life[1].report.returns, 0.0 if t.exact else CLOSE
    assert len(again) == len(lived) and np.allclose(again, lived, close, close), (
        f"train gave {len(lived)} returns, and {len(again)} or others in an instance that began with this interval: {wrong}"
    )


def check_steps(t: Trainee) -> None:
    """Steps that are reported are steps that were made."""
    made = []
    for asked in (1, 2, t.steps):
        interval = t.member(t.expected[0]).train(2, asked)
        steps = interval.report.steps
        assert steps >= asked, f"train({asked}) made only {steps} steps"
        made.append((steps, interval.state))
    for (a, before), (b, after) in itertools.pairwise(made):
        if t.differences(before, after):
            assert a != b, f"two intervals report {a} steps each, but one of them trained for longer"
        else:
            assert a == b, f"two intervals report {a} and {b} steps, but they trained for equally long"


def check_what_diverged(t: Trainee) -> None:
    """Weights that are no numbers are seen to be so."""
    state = t.expected[0]
    broken = {k: np.full_like(x, np.nan) if x.dtype.kind == "f" else x for k, x in state.learned.items()}
    member = t.member(state._replace(learned=broken))
    returns = member.evaluate(SEEDS)
    assert np.isnan(returns).all(), f"weights that are not finite have returns {returns.tolist()}, not NaN"
    try:
        finite = member.train(2, t.steps).finite
    except Raised as error:
        wrong = f"weights that are not finite made it fail, but its state looks finite: {error}"
        raise AssertionError(wrong) from error
    assert not finite, "the state of weights that are not finite looks finite: it must show what is there"


def check_nothing_is_left(t: Trainee) -> None:
    """After `close` there is nothing left of a trainer."""
    with t.new_process() as process:
        member = t.member(process=process)
        t.train(member, 1)
        member.evaluate(SEEDS)
        pid = process.pid
        assert pid is not None
        left = process.close()
        assert not left["threads"], f"close leaves threads running: {', '.join(left['threads'])}"
        assert not left["processes"], "close leaves processes running"
        with suppress(ProcessLookupError):
            os.killpg(pid, 0)
            raise AssertionError("the process does not end")


QUICK = (check_description, check_seeds, live_equals_built_at_once, check_every_hyperparameter_has_an_effect)


def _each(t: Trainee, check: Callable[[Trainee, str, dict[str, float]], None]) -> None:
    """A check of every hyperparameter that is to be tried; all that is wrong in one message."""
    wrong = []
    for name in t.probed:
        other = t.others[name]
        try:
            check(t, name, t.hyper | {name: other})
        except AssertionError as error:
            wrong.append(str(error))
        except Raised as error:
            wrong.append(f"{name} = {other:g}, set on a live model: {error}")
    assert not wrong, "; ".join(wrong)
