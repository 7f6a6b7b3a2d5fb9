"""A champion as an ONNX file: normaliser, network, squashing and bounds in one graph, for batches of any size."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import jax
import numpy as np
import onnx
import onnxruntime
from onnx import helper

from shoal.core.atomic import write_file
from shoal.core.errors import BadInput
from shoal.core.spec import MASK, Box, Discrete, Leaf
from shoal.core.types import PyTree
from shoal.environments.spaces import to_bounds
from shoal.export.graph import Graph, Known, Unsupported, Wire, typed
from shoal.export.operations import translate
from shoal.export.program import PolicyProgram, by_path, metadata, program_of
from shoal.export.sampling import GENERATORS, with_numbers
from shoal.run.champion import Champion

OPSET, IR = 17, 8  # all runtimes since 2022 support them
TOLERANCE = 1e-5  # see `compare`
BATCHES, STEPS = (1, 7), 4  # of the check


def write_onnx(champion: Champion, file: Path, measured: Champion | None = None, stochastic: bool = False) -> float:
    """Write a champion of one of Shoal's own agents, after a check with onnxruntime.

    Returns the difference to its actions in Shoal, those of `measured` if it is given; see `compare`. Raises BadInput.

    measured: the champion as it was evaluated, if its layers compute in another precision than the file
    stochastic: with sampled actions, of which the random numbers are inputs
    """
    program = program_of(champion, stochastic)
    try:
        model = model_of(program, champion)
    except Unsupported as reason:
        unsupported = "which ONNX export does not support; a .npz holds its weights"
        raise BadInput(f"its network has {reason}, {unsupported}") from reason
    data = model.SerializeToString()
    difference = compare(data, program, champion)
    if not difference <= TOLERANCE:
        raise BadInput(f"not written: actions in onnxruntime differ by {difference:.2g} from those in Shoal")
    if measured not in (None, champion):
        difference = compare(data, program, measured)
    write_file(file, data)
    return difference


def model_of(program: PolicyProgram, champion: Champion) -> onnx.ModelProto:
    """The ONNX model. Raises Unsupported for an operation that ONNX cannot hold, and BadInput for types that it has not."""
    assert champion.spec is not None
    space, inputs = champion.spec.action, program.obs | program.state | program.numbers
    first = next(iter(inputs))
    batch = inputs[first].shape[0]
    graph = Graph(first, batch)
    weights = [Known(x, name) for name, x in program.learned.items()]
    constants = [Known(x) for x in program.constants]
    results = translate(graph, program.operations, constants, [*weights, *map(Wire, inputs)])
    outputs = []
    for (name, x), value in zip((program.action | program.next_state).items(), results, strict=True):
        outputs.append(graph.output(name, value, space.native if name in program.action else x.dtype, x.shape))
    widths = [space.n] if isinstance(space, Discrete) else [*getattr(space, "nvec", ())]
    if not program.numbers and widths and [width for _, width in graph.logits] == widths:
        # Discrete actions are an argmax of logits: these are an output too.
        parts = [logits for logits, _ in graph.logits]
        whole = graph.add("Concat", *parts, axis=-1) if len(parts) > 1 else parts[0]
        outputs.append(graph.output("logits", whole, np.float32, (batch, sum(widths))))
    nodes, used = graph.needed([x.name for x in outputs])
    taken = {name for node in nodes for name in node.input}
    given = [
        typed(name, x.dtype, x.shape) for name, x in inputs.items() if name in taken or name not in program.numbers
    ]
    made = helper.make_graph(nodes, "policy", given, outputs, used)
    opset = [helper.make_opsetid("", OPSET)]
    model = helper.make_model(made, opset_imports=opset, ir_version=IR, producer_name="shoal")
    helper.set_model_props(model, metadata(champion))
    with _refused("ONNX does not allow it"):  # such as `and` of integers
        onnx.checker.check_model(model, full_check=True)
    return model


@contextmanager
def _refused(why: str) -> Iterator[None]:
    """Raise BadInput for any error of onnx and onnxruntime, which have many kinds."""
    try:
        yield
    except Exception as error:
        raise BadInput(f"not written: {why}: {' '.join(str(error).split())[:200]}") from error


def compare(data: bytes, program: PolicyProgram, champion: Champion) -> float:
    """The difference between the actions of a file and of a champion, on random observations and numbers.

    Box: the largest difference, relative to the bounds, or to the action if it is larger. Discrete: the share of
    actions that differ.
    """
    assert champion.spec is not None
    space = champion.spec.action
    reach = None  # float64 [A]: the largest absolute action in this space, above 0
    if isinstance(space, Box):
        ends = [to_bounds(space, np.full(space.shape, end, np.float32)) for end in (-1, 1)]
        reach = np.abs(ends).max(axis=0).astype(np.float64).clip(np.finfo(np.float32).tiny)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 4  # its errors are raised
    with _refused("onnxruntime cannot run it"):
        session = onnxruntime.InferenceSession(data, options, providers=["CPUExecutionProvider"])
    outputs, random = [x.name for x in session.get_outputs()], np.random.default_rng(0)
    taken, sampled = {x.name for x in session.get_inputs()}, jax.jit(with_numbers(champion.policy.act_stochastic))
    off: list[np.ndarray] = []
    for batch in BATCHES:
        state = None
        carried = {name: np.zeros((batch, *x.shape[1:]), x.dtype) for name, x in program.state.items()}
        for obs in _observations(champion, batch):
            numbers = {
                name: GENERATORS[name](random, (batch, x.shape[1]), np.float32) for name, x in program.numbers.items()
            }
            given = {name: x for name, x in (by_path("obs", obs) | carried | numbers).items() if name in taken}
            with _refused("onnxruntime cannot run it"):
                found = dict(zip(outputs, session.run(outputs, given), strict=True))
            carried = {name: found[f"next_{name}"] for name in carried}
            if numbers:
                state = champion.policy.carry((batch,)) if state is None else state
                action, state = sampled(champion.learned, obs, state, numbers)
                action = np.asarray(action).astype(space.native)
            else:
                action, state = champion.predict(obs, state)
            if found["action"].dtype != action.dtype:
                return np.inf
            mine, its = found["action"].astype(np.float64), action.astype(np.float64)
            apart = mine != its if reach is None else np.abs(mine - its) / np.maximum(reach, np.abs(its))
            off.append(apart.reshape(-1))
    every = np.concatenate(off)
    return float(every.mean() if reach is None else every.max())


def _observations(champion: Champion, batch: int) -> Iterator[PyTree]:
    """Random observations; integers are pixels, but for an action mask."""
    random = np.random.default_rng(batch)

    def draw(leaf: Leaf) -> np.ndarray:
        shape, whole = (batch, *leaf.shape), np.dtype(leaf.dtype).kind != "f"
        return (random.integers(0, 128, shape) if whole else random.normal(size=shape)).astype(leaf.dtype)

    for _ in range(STEPS):
        obs = jax.tree.map(draw, champion.obs)
        if isinstance(obs, dict) and MASK in obs:
            obs[MASK] = random.integers(0, 2, obs[MASK].shape).astype(obs[MASK].dtype)
        yield obs
