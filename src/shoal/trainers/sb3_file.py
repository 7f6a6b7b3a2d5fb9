"""A model of Stable-Baselines3 as a file, with the statistics of VecNormalize beside it. Part of the adapter `sb3.py`."""

from __future__ import annotations

import json
import operator
import pickle
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from shoal_trainers import adapter
from shoal_trainers.live import LIVE
from shoal_trainers.sb3_state import COUNTERS, statistics
from stable_baselines3.common.save_util import data_to_json, load_from_zip_file, recursive_setattr

SPACES = ("observation_space", "action_space")
# What a file says of a space in plain text.
OF_SPACE = ("dtype", "_shape", "n", "start", "nvec", "low", "high", "spaces")
# Attributes by which algorithms differ. Models of earlier versions have no n_steps off policy.
OF_ALGORITHM = LIVE["sb3"].keys() - {"n_steps"}
# What NumPy's numbers are pickled with, whatever the protocol and the version.
REBUILDERS: list[Any] = [x.__reduce_ex__(protocol)[0] for x in (np.zeros(1), np.float64(0)) for protocol in (2, 5)]
NUMBERS = {"ndarray": np.ndarray, "dtype": np.dtype} | {rebuild.__name__: rebuild for rebuild in REBUILDERS}


def save(model: Any, path: str) -> list[str]:
    """Write it as SB3 does, and its statistics. Returns the files written."""
    file = path if Path(path).suffix else f"{path}.zip"  # as SB3 completes a name without an ending
    model.save(file, exclude=["exploration_schedule"])  # which SB3's own `load` makes anew
    if (normalizer := model.get_vec_normalize_env()) is None:
        return [file]
    normalizer.save(_beside(file))
    return [file, _beside(file)]


def load(model: Any, path: str) -> None:
    """The weights, optimisers, counters and statistics that were saved; hyperparameters stay as they are.

    Nothing but numbers is read, and no code of the files runs. Raises ValueError for what does not fit.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            data = json.loads(archive.read("data"))
        _, params, variables = load_from_zip_file(path, load_data=False, device=model.device)
    except (OSError, zipfile.BadZipFile, pickle.UnpicklingError, KeyError, RuntimeError, ValueError) as error:
        raise ValueError(f"{path} is no model of Stable-Baselines3: {_first(error)}") from error
    kind = type(model).__name__
    if odd := sorted((data.keys() ^ vars(model).keys()) & OF_ALGORITHM):
        has = "has" if odd[0] in data else "has no"
        raise ValueError(f"{path} was not saved by {kind}: it {has} {odd[0]}")
    here = json.loads(data_to_json({name: getattr(model, name) for name in SPACES}))
    for name in SPACES:
        _check_space(path, name, data.get(name), here[name])
    try:
        for name in (name for name in params if name.endswith("optimizer")):
            _check_optimizer(name, params[name], operator.attrgetter(name)(model))
        model.set_parameters(params, exact_match=True, device=model.device)
        for name, x in (variables or {}).items():
            recursive_setattr(model, f"{name}.data", x.data)
    except (AttributeError, KeyError, RuntimeError, ValueError) as error:
        raise ValueError(f"{path} does not fit the networks of this {kind}: {_first(error)}") from error
    for name in COUNTERS:
        if name in vars(model):
            setattr(model, name, int(data.get(name, getattr(model, name))))
    _load_statistics(model, Path(_beside(path)))


def _beside(file: str) -> str:
    """Path of the statistics of a model."""
    return f"{file.removesuffix('.zip')}.vecnormalize.pkl"


def _load_statistics(model: Any, file: Path) -> None:
    """Take up the statistics of VecNormalize, where there are some. Raises ValueError."""
    normalizer = model.get_vec_normalize_env()
    if normalizer is None and not file.exists():
        return
    if normalizer is None:
        raise ValueError(f"it has learned with the statistics in {file}; write normalize: true in config")
    try:
        with file.open("rb") as saved:
            there = adapter.arrays(statistics(_NumbersOnly(saved).load()))
    except Exception as error:  # whatever a damaged pickle raises
        raise ValueError(f"config has normalize, and {file}, the statistics of the model, cannot be read") from error
    here = adapter.arrays(statistics(normalizer))
    kinds = [{name: (x.shape, x.dtype) for name, x in arrays.items()} for arrays in (there, here)]
    if kinds[0] != kinds[1]:
        raise ValueError(f"{file} has statistics of {', '.join(sorted(there))} in other shapes than config.normalize")
    adapter.set_arrays(statistics(normalizer), there)


class _Inert:
    """A pickled object of any class: its attributes, without its code."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        """Ignore what the class would be made with."""

    def __new__(cls, *arguments: Any, **options: Any) -> _Inert:
        return super().__new__(cls)

    def __setstate__(self, state: Any) -> None:
        if isinstance(state, dict):
            vars(self).update(state)

    def __setitem__(self, key: Any, value: Any) -> None:
        """Ignore the items of a mapping, such as those of a space."""


class _NumbersOnly(pickle.Unpickler):
    """An unpickler that makes NumPy's numbers and plain containers; objects of every other class are `_Inert`."""

    def find_class(self, module: str, name: str) -> Any:
        return NUMBERS.get(name, _Inert) if module.split(".")[0] == "numpy" else _Inert


def _check_space(path: str, name: str, there: Any, here: Mapping[str, Any]) -> None:
    """Raise ValueError where a space that a file tells of in words is another one."""
    if not isinstance(there, Mapping):
        raise ValueError(f"{path} does not say what its {name} is")
    for part in (part for part in OF_SPACE if part in here or part in there):
        if str(there.get(part)) != str(here.get(part)):
            what = f"{part.strip('_')} is {there.get(part)}, here {here.get(part)}"
            raise ValueError(f"{path} has another {name}: {what}")


def _check_optimizer(name: str, there: Mapping[str, Any], here: Any) -> None:
    """Raise ValueError where the state is one of another kind of optimiser."""
    if odd := sorted(there["param_groups"][0].keys() - here.param_groups[0].keys()):
        raise ValueError(f"{name} is no {type(here).__name__}: it has {', '.join(odd)}")


def _first(error: Exception) -> str:
    """First line of an error: PyTorch lists all arrays that do not fit."""
    return " ".join(" ".join(str(error).split("\n")[:2]).split())
