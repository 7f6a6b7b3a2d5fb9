"""Members one by one, as on a CPU, and batched, as on an accelerator: the same results, and no work without need."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support.ppo_reference import Reference, hyper, linear
from support.tiny import close, hyper_of, make_agent, member, same

from shoal.core.types import Rollout
from shoal.rl import batching
from shoal.rl.batching import in_parts, per_member, repeat, when
from shoal.rl.independent import independent

FORMS = {"one by one": "cpu", "batched": "gpu"}
SIZES = (1, 3, 5, 8)
KEY = jax.random.key(0)


@pytest.fixture(params=FORMS)
def form(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setattr(jax, "default_backend", lambda: FORMS[request.param])
    return request.param


class Calls:
    """Counts how often something is computed for a member, when it runs and not when it is traced."""

    def __init__(self) -> None:
        self.count = 0

    def __call__(self, x: jax.Array) -> None:
        jax.debug.callback(self._called, x)

    def _called(self, x: Any) -> None:
        self.count += 1

    def take(self) -> int:
        jax.effects_barrier()
        count, self.count = self.count, 0
        return count


def lifted(function: Callable) -> Callable:
    """Over the member axis, as a learner does it within an agent's update."""

    def stateless(nothing: tuple[()], *arguments: Any) -> tuple[tuple[()], Any]:
        return nothing, function(*arguments)

    return jax.jit(jax.vmap(lambda *arguments: per_member(stateless)((), *arguments)[1]))


def test_per_member(form):
    """One by one there is a loop over members; batched the product is one of three dimensions."""
    x = np.random.default_rng(0).normal(size=(2, 5, 3, 3)).astype(np.float32)

    def step(state: dict, b: jax.Array, factor: jax.Array) -> tuple[dict, jax.Array]:
        return {"turns": state["turns"] + 1, "product": state["product"] @ b}, factor * b.sum()

    function = jax.jit(jax.vmap(per_member(step), (0, 0, None)))
    state = {"turns": np.arange(5, dtype=np.int32), "product": x[0]}
    got, result = function(state, x[1], np.float32(2))
    np.testing.assert_array_equal(got["turns"], np.arange(1, 6))
    close(got["product"], np.einsum("nij,njk->nik", *x), rtol=1e-4)
    close(result, 2 * x[1].sum((1, 2)), rtol=1e-4)
    text = str(jax.make_jaxpr(function)(state, x[1], np.float32(2)))
    assert ("scan" in text or "while" in text) == (form == "one by one")


# -------------------------------------------------------------------------------------------------- repeat


def compound(count: jax.Array, value: jax.Array, rate: jax.Array, calls: Calls | None = None) -> Any:
    """`value` grows `count` times by a rate and the number of the turn; beside it the turns are counted."""

    def body(i: jax.Array, state: Any, rate: jax.Array) -> Any:
        if calls:
            calls(state[1])
        return state[0] * rate + i.astype(jnp.float32), state[1] + 1

    return repeat(count, body, (value, jnp.int32(0)), rate)


def compounded(count: int, value: np.ndarray, rate: float) -> Any:
    for i in range(count):
        value = value * rate + i
    return value, count


def counts_of(size: int) -> dict[str, np.ndarray]:
    different = np.random.default_rng(size).integers(0, 6, size)
    some = np.where(np.arange(size) % 2, 3, 0)
    return {"none": np.zeros(size), "equal": np.full(size, 4), "different": different, "some": some}


@pytest.mark.parametrize("size", SIZES)
def test_repeat(form, size):
    """As many turns as each member asks for; what it has had, the longer turns of others leave alone."""
    rng = np.random.default_rng(size)
    value, rate = rng.normal(size=(size, 2)).astype(np.float32), rng.normal(size=size).astype(np.float32)
    function = lifted(compound)
    for name, count in counts_of(size).items():
        got = function(count.astype(np.int32), value, rate)
        for i in range(size):
            expected = compounded(int(count[i]), value[i].astype(np.float64), float(rate[i]))
            np.testing.assert_allclose(got[0][i], expected[0], rtol=1e-4, atol=1e-5, err_msg=name)
            assert got[1][i] == expected[1], name


def test_turns_that_are_taken(form):
    """One by one exactly those asked for; batched as many for all as the longest needs."""
    calls = Calls()
    function = lifted(lambda *arguments: compound(*arguments, calls=calls))
    for count in counts_of(5).values():
        function(count.astype(np.int32), np.ones((5, 2), np.float32), np.ones(5, np.float32))
        assert calls.take() == (count.sum() if form == "one by one" else 5 * count.max())


def test_turns_that_all_take_need_no_mask(monkeypatch):
    """NaN of turns beyond a member's own never reach it; a turn that none takes is not computed at all."""
    monkeypatch.setattr(batching, "_one_by_one", lambda: False)  # private: the form is that of the machine

    def body(i: jax.Array, x: jax.Array, limit: jax.Array) -> jax.Array:
        return jnp.where(i < limit, x + 1, jnp.nan)

    count = np.int32([2, 5, 0])
    got = lifted(lambda n: repeat(n, body, jnp.float32(0), n))(count)
    np.testing.assert_array_equal(got, count)


def test_repeat_with_what_all_members_share(form):
    """A count, a state or an argument without the member axis."""

    def body(i: jax.Array, state: Any, step: jax.Array) -> Any:
        return state[0] + step, state[1] * 2

    def outer(count: jax.Array, step: jax.Array) -> Callable:
        return jax.jit(jax.vmap(lambda x, n, s: repeat(n, body, (x, jnp.float32(1)), s), (0, count, step)))

    x = np.arange(3, dtype=np.float32)
    for count, step in ((None, 0), (0, None), (0, 0)):
        n = np.int32(2) if count is None else np.int32([0, 2, 3])
        s = np.float32(5) if step is None else np.float32([1, 2, 3])
        times = np.broadcast_to(n, 3)
        got = outer(count, step)(x, n, s)
        np.testing.assert_array_equal(got[0], x + times * np.broadcast_to(s, 3))
        np.testing.assert_array_equal(got[1], 2.0**times)


def test_repeat_for_one_member():
    value, turns = jax.jit(compound)(jnp.int32(3), jnp.ones(2), jnp.float32(2))
    np.testing.assert_array_equal(value, [12, 12])  # ((1 * 2 + 0) * 2 + 1) * 2 + 2
    assert turns == 3


# ---------------------------------------------------------------------------------------------------- when


def flip(state: Any, factor: jax.Array) -> Any:
    return {"x": state["x"] * factor, "n": state["n"] + 1}


def due_of(size: int) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(size)
    one = {f"only {i}": np.arange(size) == i for i in {0, size // 2, size - 1}}
    return one | {"nobody": np.zeros(size, bool), "all": np.ones(size, bool), "some": rng.random(size) < 0.5}


@pytest.mark.parametrize("size", SIZES)
def test_when(form, size):
    """Those that are due are changed, the others keep every bit: NaN, infinities and negative zeros too."""
    rng = np.random.default_rng(size)
    state = {"x": rng.normal(size=(size, 2)).astype(np.float32), "n": np.arange(size, dtype=np.int32)}
    state["x"][-1] = np.nan, -0.0
    factor = rng.normal(size=size).astype(np.float32)
    function = lifted(lambda due, state, factor: when(due, flip, state, factor))
    for name, due in due_of(size).items():
        got = jax.tree.map(np.asarray, function(due, state, factor))
        np.testing.assert_array_equal(got["n"], state["n"] + due, err_msg=name)
        np.testing.assert_array_equal(got["x"], np.where(due[:, None], state["x"] * factor[:, None], state["x"]))
        assert got["x"][~due].tobytes() == state["x"][~due].tobytes()


def computed(form: str, size: int, due: int) -> int:
    """Members for which something is computed: those due, batched in whole tiles of a quarter of all."""
    width = -(-size // 4)
    return due if form == "one by one" else -(-due // width) * width


@pytest.mark.parametrize("size", SIZES)
def test_those_not_due_cost_nothing(form, size):
    calls = Calls()

    def costly(x: jax.Array) -> jax.Array:
        calls(x)
        return x + 1

    function = lifted(lambda due, x: when(due, costly, x))
    for due in due_of(size).values():
        function(due, np.zeros(size, np.float32))
        assert calls.take() == computed(form, size, due.sum())
    assert computed(form, size, 0) == 0


def test_when_is_a_real_branch_within_repeated_updates(form):
    """As TD3 uses it: a branch one by one, a loop over tiles of due members when batched; never both sides for all."""

    def body(i: jax.Array, x: jax.Array, delay: jax.Array) -> jax.Array:
        return when((i + 1) % delay == 0, jnp.cos, x)

    function = lifted(lambda count, x, delay: repeat(count, body, x, delay))
    count, x, delay = np.int32([6, 5, 6]), np.float32([1, 2, 3]), np.int32([1, 2, 4])
    expected = x.astype(np.float64)
    for i in range(3):
        for _ in range(count[i] // delay[i]):
            expected[i] = np.cos(expected[i])
    np.testing.assert_allclose(function(count, x, delay), expected, rtol=1e-5)
    text = str(jax.make_jaxpr(function)(count, x, delay))
    assert (" cond[" in text) == (form == "one by one")


def test_when_with_what_all_members_share(form):
    """A decision for all at once, and an argument without the member axis."""
    state = {"x": np.ones((5, 2), np.float32), "n": np.arange(5, dtype=np.int32)}
    function = jax.jit(jax.vmap(lambda due, s, f: when(due, flip, s, f), (None, 0, None)))
    for due in (True, False):
        got = function(jnp.bool(due), state, jnp.float32(3))
        np.testing.assert_array_equal(got["x"], np.full((5, 2), 3 if due else 1))
        np.testing.assert_array_equal(got["n"], state["n"] + due)


def test_when_for_one_member():
    for due in (True, False):
        assert jax.jit(lambda d, x: when(d, jnp.negative, x))(due, jnp.float32(2)) == (-2 if due else 2)


# -------------------------------------------------------------------------------------------------- agents


def test_members_of_ppo_make_epochs_of_their_own(form: str) -> None:
    """What they learn together is what each learns alone."""
    agent = linear("discrete", num_minibatches=4)
    start, rollout = jax.jit(agent.init)(KEY, agent.hyper), Reference(agent, "discrete", True, True).rollout
    several = [hyper(agent, epochs=epochs) for epochs in (3, 0, 1)]
    alone = [agent.update(start, values, rollout, KEY) for values in several]
    stacked = jax.tree.map(lambda *values: np.stack(values), *several)
    together = jax.jit(jax.vmap(agent.update, (None, 0, None, None)))(start, stacked, rollout, KEY)
    together = jax.device_get(together)
    for i, expected in enumerate(alone):
        close(member(together, i), expected, rtol=1e-4, atol=1e-5)
    assert same(member(together[0].learned.params, 1), start.learned.params)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "actions"), [("td3", "continuous"), ("sac", "continuous"), ("dqn", "discrete")])
def test_a_population_updates_alike_in_both_forms(monkeypatch, name, actions):
    """Four members with different numbers of updates, delays and periods; two rounds."""
    agent, members = make_agent(name, actions, buffer_size=32), 4
    hyper = hyper_of(name, agent, members)
    unequal = {
        "update_ratio": [0.0, 0.1, 0.25, 0.4],
        "policy_delay": [1, 2, 3, 1],
        "target_update_interval": [1, 2, 3, 1],
    }
    hyper = hyper._replace(**{k: np.float32(v) for k, v in unequal.items() if k in hyper._fields})
    rng, shape = np.random.default_rng(0), (members, agent.rollout_length, agent.num_envs)
    obs, next_obs = rng.normal(size=(2, *shape, 2)).astype(np.float32)
    terminated, truncated = rng.random((2, *shape)) < 0.15
    reward = rng.normal(size=shape).astype(np.float32)
    discrete = actions == "discrete"
    action = rng.integers(2, size=shape, dtype=np.int32) if discrete else rng.uniform(-1, 1, (*shape, 1))
    action = action if discrete else action.astype(np.float32)
    rollout = Rollout(obs, action, reward, next_obs, terminated, truncated, ())
    learner, ends = independent(agent), []
    start = jax.jit(learner.init)(jax.random.key(0), jnp.arange(members), hyper)
    for one_by_one in FORMS.values():
        # Private: the form is that of the machine.
        monkeypatch.setattr(batching, "_one_by_one", lambda one_by_one=one_by_one: one_by_one)
        # Traced anew for each form: a function of its own.
        update, population = jax.jit(lambda *arguments: learner.update(*arguments)), start
        for i in range(2):
            population, metrics = update(population, rollout, jax.random.split(jax.random.key(i), members))
        learned = population.members.learned
        np.testing.assert_array_equal(learned.updates, [0, 3, 8, 12])
        assert same(member(learned, 0), member(start.members.learned, 0))
        ends.append((population, metrics))
    close(*ends, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize(("images", "rows", "parts"), [(12, 5, 3), (12, 100, 1), (7, 4, 7)])
def test_sums_over_parts_of_a_batch(form: str, images: int, rows: int, parts: int) -> None:
    """The sizes of the parts divide the batch; together they give what NumPy gives for all of it."""
    batch, sizes = np.random.default_rng(0).normal(size=(images, 3)).astype(np.float32), []

    def sums(weights: jax.Array, x: jax.Array) -> dict[str, jax.Array]:
        sizes.append(len(x))
        return {"value": (x @ weights).sum(), "square": (x**2).sum(0)}

    weights = np.array([1.0, -2.0, 0.5], np.float32)
    found = jax.jit(in_parts(sums, rows))(weights, batch)
    np.testing.assert_allclose(found["value"], (batch @ weights).sum(), atol=1e-5)
    np.testing.assert_allclose(found["square"], (batch**2).sum(0), rtol=1e-5)
    assert set(sizes) == {images // parts if form == "one by one" else images}


def test_a_function_of_one_member_is_traced_once(form: str) -> None:
    """Tracing is what a start waits for."""
    traced = []

    def function(state: jax.Array, x: jax.Array) -> tuple[jax.Array, jax.Array]:
        traced.append(x)
        return state + x, x * x

    jax.jit(jax.vmap(per_member(function))).lower(jnp.zeros(3), jnp.ones(3))
    assert len(traced) == 1
