"""A policy that samples its actions, with random numbers as an input in place of a key.

A key would need JAX's generator in every program that runs the file. Standard uniform and normal numbers are to be had
everywhere, and the same numbers give the same actions.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import Literal
from jax.interpreters import partial_eval

from shoal.core.errors import BadInput

Numbers = dict[str, Any]  # by distribution, `uniform` in [0, 1) or standard `normal`: float32 [B, count]
GENERATORS: dict[str, Callable] = {"normal": np.random.Generator.standard_normal, "uniform": np.random.Generator.random}

# Operations that call a program, and the parameter that holds it.
CALLS = {
    **dict.fromkeys(("jit", "pjit", "checkpoint"), "jaxpr"),
    **dict.fromkeys(("closed_call", "core_call", "custom_jvp_call", "custom_vjp_call"), "call_jaxpr"),
    "custom_vmap_call": "call",
}


def _scaled(uniform: jax.Array, *bounds: Any) -> jax.Array:
    low, high = _ordered(*bounds)
    return jnp.maximum(low, low + uniform * (high - low))  # as JAX does: rounding must not lead below


def _whole(uniform: jax.Array, *bounds: Any) -> jax.Array:
    low, high = _ordered(*bounds)
    return low + jnp.floor(uniform * (high - low))


def _ordered(*bounds: Any) -> tuple[jax.Array, jax.Array]:
    """Bounds as float32, which a traced program may have in either order."""
    one, other = (jnp.asarray(x, jnp.float32) for x in bounds)
    return jnp.minimum(one, other), jnp.maximum(one, other)


# The functions of `jax.random` that others call, by their names in a traced program: the numbers that each takes, and
# what it makes of them.
DRAWS: dict[str, tuple[str, Callable]] = {
    "_normal": ("normal", lambda normal: normal),
    "_uniform": ("uniform", _scaled),
    "_randint": ("uniform", _whole),
}


def called(step: Any) -> tuple[Any, Sequence[Any]] | None:
    """The program that an operation calls, and its constants; None for other operations."""
    if step.primitive.name not in CALLS:
        return None
    inner = step.params[CALLS[step.primitive.name]]
    return getattr(inner, "jaxpr", inner), getattr(inner, "consts", ())


def with_numbers(sampled: Callable) -> Callable:
    """Return (*given, numbers) -> what `sampled` returns for (*given, key).

    Raises BadInput where it draws random numbers of other distributions.
    """

    def act(*arguments: Any) -> Any:
        *given, numbers = arguments
        program, constants, results = _traced(sampled, *given)
        taken = dict.fromkeys(numbers, 0)

        def take(step: Any) -> jax.Array:
            name = DRAWS[step.params["name"]][0]
            first, taken[name] = taken[name], taken[name] + _count(step)
            return numbers[name][:, first : taken[name]].reshape(step.outvars[0].aval.shape)

        return results.unflatten(_run(program, constants, [*jax.tree.leaves(given), None], take))

    return act


def numbers_of(batch: Any, sampled: Callable, *given: Any) -> Numbers:
    """The shapes and dtypes of the numbers that `with_numbers(sampled)` takes for a batch of this size. Raises BadInput."""
    counts: dict[str, int] = {}
    for step in _draws(_traced(sampled, *given)[0]):
        if step.outvars[0].aval.shape[:1] != (batch,):
            raise BadInput("its policy draws random numbers for all observations at once, which a file cannot hold")
        name = DRAWS[step.params["name"]][0]
        counts[name] = counts.get(name, 0) + _count(step)
    return {name: jax.ShapeDtypeStruct((batch, n), np.dtype(np.float32)) for name, n in sorted(counts.items())}


def _traced(sampled: Callable, *given: Any) -> tuple[Any, Sequence[Any], Any]:
    """Trace `sampled`, without draws that no result depends on. Returns program, constants and structure of the results."""
    key = jax.eval_shape(lambda: jax.random.key(0))
    program, results = jax.make_jaxpr(sampled, return_shape=True)(*given, key)
    everything = [True] * len(program.out_avals), [True] * len(program.in_avals)
    return partial_eval.dce_jaxpr(program.jaxpr, *everything)[0], program.consts, jax.tree.structure(results)


def _count(step: Any) -> int:
    """Numbers that a draw takes for each observation."""
    return math.prod(step.outvars[0].aval.shape[1:])


def _is_key(x: Any) -> bool:
    return jax.dtypes.issubdtype(x.aval.dtype, jax.dtypes.prng_key)


def _is_draw(step: Any) -> bool:
    """True for functions of `jax.random`, which take a key; one of the user's may have the same name."""
    return step.params.get("name") in DRAWS and any(map(_is_key, step.invars))


def _draws(program: Any) -> Iterator[Any]:
    """The operations of a program that draw, in order."""
    for step in program.eqns:
        if _is_draw(step):
            yield step
        elif inner := called(step):
            yield from _draws(inner[0])


def _run(program: Any, constants: Sequence[Any], inputs: Sequence[Any], take: Callable) -> list[Any]:
    """The outputs of a program, with keys as None, and the numbers of its draws from `take`."""
    values = dict(zip((*program.constvars, *program.invars), (*constants, *inputs), strict=True))

    def read(x: Any) -> Any:
        return x.val if isinstance(x, Literal) else values[x]

    for step in program.eqns:
        given = [read(x) for x in step.invars]
        if _is_draw(step):
            made_of, bounds = DRAWS[step.params["name"]][1], [x for x in given if x is not None]
            made = [made_of(take(step), *bounds).astype(step.outvars[0].aval.dtype)]
        elif inner := called(step):
            made = _run(*inner, given, take)
        elif all(map(_is_key, step.outvars)):
            made = [None] * len(step.outvars)
        elif any(x is None for x in given):
            raise BadInput("its policy draws random numbers that are neither uniform, normal nor categorical")
        else:
            made = step.primitive.bind(*given, **step.params)
            made = made if step.primitive.multiple_results else [made]
        values.update(zip(step.outvars, made, strict=True))
    return [read(x) for x in program.outvars]
