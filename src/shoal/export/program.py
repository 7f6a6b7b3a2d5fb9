"""A champion without Shoal: its policy as a traced program, its metadata, and its weights as a file."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict
from io import BytesIO
from itertools import compress
from pathlib import Path
from typing import Any, NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
from jax import export
from jax.interpreters import partial_eval

from shoal.core.atomic import write_file
from shoal.core.errors import BadInput
from shoal.core.spec import each
from shoal.core.user_code import one_line
from shoal.core.yaml_text import plain
from shoal.experiment.files import dump
from shoal.export.sampling import numbers_of, with_numbers
from shoal.rl.images import Conv
from shoal.run.champion import Champion

Named = dict[str, Any]  # by name, in the order of a program's inputs or outputs


class PolicyProgram(NamedTuple):
    """(learned, obs, state, numbers) -> (action, next state), for a batch of any size.

    operations: the traced program, with inputs and outputs in the order below
    learned:    the weights that it needs, by their path in the tree
    obs:        shapes and dtypes for a symbolic batch size; state: the same of a recurrent state that actions depend on
    numbers:    the same of the random numbers that sampled actions depend on, by their distribution
    action, next_state: the same of the outputs
    """

    operations: Any  # jax.extend.core.Jaxpr
    constants: list[np.ndarray]
    learned: Named
    obs: Named
    state: Named
    numbers: Named
    action: Named
    next_state: Named


def program_of(champion: Champion, stochastic: bool = False) -> PolicyProgram:
    """Trace the policy of one of Shoal's own agents, with deterministic or with sampled actions.

    Raises BadInput if it does not take every batch size, or for random numbers that a file cannot hold.
    """
    policy = champion.policy
    (batch,) = export.symbolic_shape("batch")

    def of_batch(x: Any) -> jax.ShapeDtypeStruct:
        return jax.ShapeDtypeStruct((batch, *x.shape[1:]), x.dtype)

    initial = policy.carry((1,))
    if any(np.asarray(x).any() for x in jax.tree.leaves(initial)):
        raise BadInput("its initial recurrent state is not zero, which a file cannot hold")
    obs = jax.tree.map(lambda x: jax.ShapeDtypeStruct((batch, *x.shape), np.dtype(x.dtype)), champion.obs)
    state = jax.tree.map(of_batch, initial)
    act: Callable = policy.act_deterministic
    given: tuple[Any, ...] = champion.learned, obs, state
    numbers: Named = {}
    try:
        with nn.intercept_methods(_plainly):
            if stochastic:
                numbers = numbers_of(batch, policy.act_stochastic, *given)
                act, given = with_numbers(policy.act_stochastic), (*given, numbers)
            traced, (action, after) = jax.make_jaxpr(act, return_shape=True)(*given)
    except BadInput:
        raise
    except Exception as error:  # of the user's network, for a symbolic size
        raise BadInput(f"its network does not take batches of any size: {one_line(error)}") from error
    weights, seen, before = by_path("", champion.learned), by_path("obs", obs), by_path("state", state)
    actions, later = by_path("action", action), by_path("next_state", after)
    remembered, needed = None, [False] * len(before)
    while remembered != needed:  # until it has all states that actions depend on, now or later
        remembered = needed
        # Observations are inputs of the file even if the network ignores them. Numbers are needed, as `numbers_of` says.
        kept = [False] * len(weights) + [True] * len(seen) + remembered + [True] * len(numbers)
        operations, used = partial_eval.dce_jaxpr(traced.jaxpr, [True] * len(actions) + remembered, kept)
        needed = used[len(weights) + len(seen) :][: len(before)]
    return PolicyProgram(
        operations,
        [np.asarray(x) for x in traced.consts],
        {name: np.asarray(x) for name, x in compress(weights.items(), used)},
        seen,
        dict(compress(before.items(), needed)),
        numbers,
        actions,
        dict(compress(later.items(), needed)),
    )


def metadata(champion: Champion) -> dict[str, str]:
    """Texts by name: observation, action and champion as JSON, and the experiment as YAML."""
    spec = champion.spec
    assert spec is not None
    action = {"kind": type(spec.action).__name__, "dtype": spec.action.native, **asdict(spec.action)}
    action.pop("native", None)
    obs = champion.obs
    names = {key: f"obs.{key}" for key in obs} if isinstance(obs, dict) else "obs"  # in the order of the network
    texts = {
        "observation": each(lambda leaf, name: {"name": name, **asdict(leaf)}, obs, names),
        "action": {"name": "action", "shape": spec.action.shape, **action},
        "champion": {"uid": champion.uid, "generation": champion.generation, "fitness": champion.fitness},
    }
    return {name: json.dumps(plain(x)) for name, x in texts.items()} | {"experiment": dump(champion.experiment)}


def write_npz(champion: Champion, file: Path, stochastic: bool = False) -> None:
    """Write the weights of one of Shoal's own agents by their paths, and metadata as `about.NAME`. Raises BadInput.

    stochastic: those that sampled actions depend on
    """
    texts = {f"about.{name}": np.array(text) for name, text in metadata(champion).items()}
    data = BytesIO()
    np.savez(data, allow_pickle=False, **program_of(champion, stochastic).learned, **texts)
    write_file(file, data.getvalue())


def by_path(name: str, tree: Any) -> Named:
    """The leaves of a tree by their paths, such as params.policy.kernel; a single leaf has the name alone."""
    leaves = jax.tree_util.tree_flatten_with_path(tree)[0]
    paths = [jax.tree_util.keystr(path, simple=True, separator=".") for path, _ in leaves]
    return {".".join(filter(None, (name, path))): x for path, (_, x) in zip(paths, leaves, strict=True)}


def _plainly(call: Callable, arguments: tuple, options: dict, context: Any) -> Any:
    """Trace Shoal's convolution as a single operation, without its training optimisations."""
    module = context.module
    if not isinstance(module, Conv) or context.method_name != "__call__":
        return call(*arguments, **options)
    (x,) = arguments
    kernel, bias = (module.get_variable("params", name) for name in ("kernel", "bias"))
    y = jax.lax.conv_general_dilated(
        x.reshape(-1, *x.shape[-3:]),
        kernel.reshape(module.size, module.size, x.shape[-1], module.features),
        (module.stride, module.stride),
        [(module.padding, module.padding)] * 2,
        dimension_numbers=("NHWC", "HWIO", "NHWC"),
    )
    return (y + jnp.broadcast_to(bias, y.shape)).reshape(*x.shape[:-3], *y.shape[1:])
