"""A champion as an ONNX file: normaliser, network, squashing and bounds in one graph, for batches of any size."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax
import numpy as np
import onnx
import onnxruntime
from onnx import helper

from shoal.core.atomic import write_file
from shoal.core.errors import BadInput
from shoal.core.spec import Continuous, Discrete, Leaf
from shoal.core.types import PyTree
from shoal.export.graph import Graph, Known, Unsupported, Value, Wire, element
from shoal.export.metadata import about
from shoal.export.program import Program, by_path, program_of
from shoal.export.translate import translate
from shoal.run.champion import Champion

OPSET, IR = 17, 8  # which all runtimes since 2022 read
TOLERANCE = 1e-5  # of what the file computes, as a share of it where it is above 1
BATCHES, STEPS = (1, 7), 4  # with which it is checked


def write_onnx(champion: Champion, file: Path, measured: Champion | None = None) -> float:
    """Write a champion of one of Shoal's own agents, once onnxruntime computes the same from it.

    measured: the same as it was measured, where its layers compute in other numbers than those of the file
    Returns the largest difference to the actions of `Champion.act` of the latter; see `compare`. Raises BadInput.
    """
    program = program_of(champion)
    try:
        model = model_of(program, champion)
    except Unsupported as reason:
        raise BadInput(f"its network has {reason}, which ONNX cannot be told; a .npz holds its weights") from reason
    data = model.SerializeToString()
    difference = compare(data, program, champion)
    if not difference <= TOLERANCE:
        raise BadInput(f"not written: by onnxruntime its actions differ by {difference:.2g} from those in Shoal")
    if measured is not None:
        difference = compare(data, program, measured)
    write_file(file, data)
    return difference


def model_of(program: Program, champion: Champion) -> onnx.ModelProto:
    """The file's content. Raises Unsupported for an operation that it cannot hold."""
    spec = champion.spec
    assert spec is not None
    first = next(iter(program.obs))
    graph = Graph(first, program.obs[first].shape[0])
    weights: list[Value] = [Known(x, name) for name, x in program.learned.items()]
    inputs = {**program.obs, **program.memory}
    results = translate(
        graph, program.operations, [Known(x) for x in program.constants], [*weights, *map(Wire, inputs)]
    )
    types = dict.fromkeys(program.action, spec.action.native)
    types |= {name: x.dtype for name, x in program.next_memory.items()}
    shapes = program.action | program.next_memory
    for (name, dtype), value in zip(types.items(), results, strict=True):
        graph.output(value, name, dtype)
    outputs = [_typed(name, dtype, shapes[name].shape) for name, dtype in types.items()]
    if scores := _scores(graph, program, champion):
        outputs.append(scores)
    nodes, used = graph.needed([x.name for x in outputs])
    given = [_typed(name, x.dtype, x.shape) for name, x in inputs.items()]
    made = helper.make_graph(nodes, "policy", given, outputs, used)
    model = helper.make_model(
        made,
        opset_imports=[helper.make_opsetid("", OPSET)],
        ir_version=IR,
        producer_name="shoal",
    )
    helper.set_model_props(model, about(champion))
    onnx.checker.check_model(model, full_check=True)
    return model


def _scores(graph: Graph, program: Program, champion: Champion) -> onnx.ValueInfoProto | None:
    """An output with what the choice of each action is the largest of, where actions are choices of the network."""
    assert champion.spec is not None
    space = champion.spec.action
    if isinstance(space, Continuous):
        return None
    widths = [space.n] if isinstance(space, Discrete) else list(space.nvec)
    if [width for _, width in graph.scores] != widths:
        return None
    (action,) = program.action.values()
    parts = [x for x, _ in graph.scores]
    whole = graph.add("Concat", *parts, axis=-1) if len(parts) > 1 else parts[0]
    graph.output(whole, "scores", np.float32)
    return _typed("scores", np.float32, (action.shape[0], sum(widths)))


def _typed(name: str, dtype: Any, shape: tuple[Any, ...]) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, element(dtype), [n if isinstance(n, int) else str(n) for n in shape])


def compare(data: bytes, program: Program, champion: Champion) -> float:
    """How far the actions of a file are from those of a champion, on some episodes of random observations.

    The largest difference, as a share where actions are above 1; of choices, the share of those that are not the same.
    """
    assert champion.spec is not None
    continuous = isinstance(champion.spec.action, Continuous)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    try:
        session = onnxruntime.InferenceSession(data, options, providers=["CPUExecutionProvider"])
    except Exception as error:  # onnxruntime has an exception for every kind of refusal
        raise BadInput(f"not written: onnxruntime cannot run it: {' '.join(str(error).split())[:200]}") from error
    outputs = [x.name for x in session.get_outputs()]
    off: list[np.ndarray] = []
    for batch in BATCHES:
        champion.reset()
        memory = {name: np.zeros((batch, *x.shape[1:]), x.dtype) for name, x in program.memory.items()}
        for obs in _observations(champion, batch):
            found = dict(zip(outputs, session.run(outputs, by_path("obs", obs) | memory), strict=True))
            memory = {name: found[f"next_{name}"] for name in memory}
            action = champion.act(obs)
            if found["action"].dtype != action.dtype:
                return np.inf
            mine, its = found["action"].astype(np.float64), action.astype(np.float64)
            off.append((np.abs(mine - its) / np.maximum(1, np.abs(its)) if continuous else mine != its).reshape(-1))
    champion.reset()
    every = np.concatenate(off)
    return float(every.max() if continuous else every.mean())


def _observations(champion: Champion, batch: int) -> Iterator[PyTree]:
    """Random ones; whole numbers are those of images."""
    random = np.random.default_rng(batch)

    def draw(leaf: Leaf) -> np.ndarray:
        shape, whole = (batch, *leaf.shape), np.dtype(leaf.dtype).kind != "f"
        return (random.integers(0, 128, shape) if whole else random.normal(size=shape)).astype(leaf.dtype)

    for _ in range(STEPS):
        yield jax.tree.map(draw, champion.obs)
