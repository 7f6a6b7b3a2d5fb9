"""`shoal export`: the champion, or another member, as a file for other programs."""

from __future__ import annotations

import importlib.util
from pathlib import Path

from shoal.core.atomic import absolute, check_target
from shoal.core.backend import on_jax
from shoal.core.errors import BadInput, error_context
from shoal.core.extras import install
from shoal.core.spec import Box
from shoal.experiment.files import of_run
from shoal.run.champion import Champion, load_champion


@on_jax()
def export(
    run: Path,
    file: Path,
    trust_code: bool = False,
    member: int | None = None,
    generation: int | None = None,
    stochastic: bool = False,
) -> list[str]:
    """Write the champion of a run as ONNX or arrays, by the ending of `file`, or as its library saves it.

    Returns a description of each file. Raises BadInput.

    trust_code: import code that the run names. member, generation: write this one, as `load_champion` finds it.
    stochastic: its actions are sampled, as in training.
    """
    file = absolute(file)  # a trainer may write it from another directory
    champion = measured = load_champion(run, trust_code, member, generation)
    if champion.policy.save is not None:
        if stochastic:
            problem = f"the file of {champion.experiment.agent} is a model of its library, which can sample by itself"
            raise BadInput(f"--stochastic: {problem}")
        return champion.policy.save(file)
    if champion.experiment.config.get("precision") == "bfloat16":
        # Weights are float32, the only precision of many programs. Of choices, the run's own champion may have others.
        config = {**of_run(run).config, "precision": "float32"}
        champion = load_champion(run, trust_code, member, generation, config=config)
        champion.experiment = measured.experiment
    check_target(file)
    ending = file.suffix.lower()
    with error_context(str(file)):
        if ending == ".onnx":
            return [_as_onnx(champion, file, measured, stochastic)]
        if ending == ".npz":
            from shoal.export.program import write_npz

            write_npz(champion, file, stochastic)
            return [str(file)]
    raise BadInput(f"{file}: the file must end in .onnx (the policy) or .npz (its weights)")


def _as_onnx(champion: Champion, file: Path, measured: Champion, stochastic: bool) -> str:
    """Write the champion as ONNX; return a text: the file, and how its actions differ from those in Shoal.

    measured: the champion as it was evaluated, which may compute in bfloat16
    """
    for package in ("onnx", "onnxruntime"):
        if importlib.util.find_spec(package) is None:
            raise BadInput(f"ONNX needs the package {package}: {install('onnx')}")
    from shoal.export.onnx_file import write_onnx

    difference = write_onnx(champion, file, measured, stochastic)
    assert champion.spec is not None
    text = f"{difference:.1%} of its choices differ from those in Shoal"
    if isinstance(champion.spec.action, Box):
        text = f"its actions differ from those in Shoal by at most {difference:.1g}"
    why = "" if measured is champion else ", where layers compute in bfloat16 instead of float32"
    return f"{file} (run by onnxruntime, {text}{why})"
