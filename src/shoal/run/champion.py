"""The champion: the best member a run has seen, kept apart so that nothing overwrites it."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import jax
import numpy as np

from shoal.core.arrays import as_tree
from shoal.core.atomic import Damaged, Staging
from shoal.core.backend import on_jax
from shoal.core.errors import BadInput
from shoal.core.population import ChampionSoFar
from shoal.core.schema import build
from shoal.core.spec import ActionSpace, Continuous, Discrete, Leaf, MultiDiscrete, Spec, describe, each
from shoal.core.types import PyTree
from shoal.experiment.build import acting_of
from shoal.experiment.experiment import Experiment
from shoal.experiment.rules import INT32
from shoal.experiment.trust import open_run
from shoal.members.acting import ActingPolicy
from shoal.run import checkpoint
from shoal.run.members import read_members

KINDS: dict[str, Any] = {kind.__name__: kind for kind in (Discrete, MultiDiscrete, Continuous)}


class Champion:
    """A trained policy, ready to act. One with a memory remembers from call to call, until `reset`.

    hyper: the hyperparameters it last trained with. fitness: as measured when it was selected. obs: what it sees of the
    observations of its environment, where these are known.
    """

    def __init__(self, policy: ActingPolicy, spec: Spec | None, best: ChampionSoFar, experiment: Experiment):
        self.spec, self.experiment, self.policy, self.learned = spec, experiment, policy, best.learned
        self.obs = None if spec is None else spec.obs
        if isinstance(self.obs, dict):
            self.obs = {key: self.obs[key] for key in policy.sees or self.obs}
        self.hyper = best.hyper
        self.fitness, self.uid, self.generation = best.fitness, best.uid, best.generation
        self.reset()

    def __repr__(self) -> str:
        who = f"member {self.uid} after generation {self.generation}, {self.fitness:.4g}"
        return f"<champion of {self.experiment.env_name} by {self.experiment.agent_name}: {who}>"

    def reset(self) -> None:
        """New episodes begin: forget the last ones. It matters to a policy with a memory only."""
        self._memory: PyTree = None

    @on_jax()
    def act(self, obs: Any) -> np.ndarray:
        """The best action for one observation, or for a batch of them [B, ...]; one of the environment's own space.

        Of observations that are dictionaries, what the policy does not see may be missing. To a policy with a memory, the
        calls until `reset` are the steps of one episode, or of B side by side.
        """
        if self.spec is None or self.obs is None:
            raise BadInput(f"{self.experiment.agent} does not say which observations and actions it has")
        given, axes = _arrays(obs, self.obs)
        batch = given if axes else jax.tree.map(lambda x: x[None], given)
        fresh = self.policy.carry(axes or (1,))
        memory = fresh if self._memory is None else self._memory
        if jax.tree.map(np.shape, memory) != jax.tree.map(np.shape, fresh):
            shape = jax.tree.map(np.shape, given)
            raise BadInput(f"obs has the shape {shape}; this champion remembers other episodes: call reset() first")
        action, self._memory = self.policy.greedy(self.learned, batch, memory)
        action = np.asarray(action).astype(self.spec.action.native)
        return action if axes else action[0]


def _arrays(obs: Any, seen: Leaf | dict[str, Leaf]) -> tuple[PyTree, tuple[int, ...]]:
    """Select what is `seen` of one observation, or of a batch of them; and the axes of that batch, () for a single one.

    Raises BadInput where it is something else.
    """
    if isinstance(seen, dict):
        if lacking := [key for key in seen if not isinstance(obs, Mapping) or key not in obs]:
            raise BadInput(f"obs has no {', '.join(lacking)}; this champion takes a dictionary with {describe(seen)}")
        obs = {key: obs[key] for key in seen}
    try:
        arrays = each(lambda leaf, x: np.asarray(x, leaf.dtype), seen, obs)
    except (OverflowError, TypeError, ValueError) as error:
        kinds = jax.tree.map(lambda x: type(x).__name__, obs)
        raise BadInput(f"obs is {kinds}; this champion takes {describe(seen)}, or a batch of them") from error
    single, given = (jax.tree.map(lambda x: x.shape, tree) for tree in (seen, arrays))
    leaf, x = jax.tree.leaves(seen)[0], jax.tree.leaves(arrays)[0]
    axes = x.shape[: max(0, x.ndim - len(leaf.shape))]
    if given != jax.tree.map(lambda leaf: (*axes, *leaf.shape), seen):
        raise BadInput(f"obs has the shape {given}; this champion takes {single}, or a batch of them")
    return arrays, axes


def save(folder: Path, best: ChampionSoFar, spec: Spec | None, staging: Staging) -> None:
    """Write the champion's weights and manifest. spec: of its environment, where that is known."""
    manifest = best.about()
    if spec is not None:
        space = {"kind": type(spec.action).__name__, **asdict(spec.action)}
        manifest["spec"] = asdict(spec) | {"action": space}
    checkpoint.write(folder, best.learned, manifest, staging)


@on_jax()
def load_champion(run: str | Path, trust_code: bool = False, **given: Any) -> Champion:
    """The champion of a run directory. Raises BadInput when there is none.

    trust_code: import what the run names, where it is not Shoal's.
    given: the agent, where the run was started with an object that no name leads to.
    """
    run = Path(run)
    experiment, folder = open_run(run, trust_code, **given), run / "champion"
    try:
        arrays, manifest = checkpoint.read_arrays(folder, run)
        best = champion_told(manifest, f"{folder}: ")
        spec = _spec(folder, manifest.get("spec"))
        acting = acting_of(experiment, spec, folder)
        learned = checkpoint.restore(folder, arrays, acting.learned)
    except Damaged as error:
        if os.path.lexists(folder):
            raise
        problem = "holds no champion yet: no generation has ended with a member that has a fitness"
        raise BadInput(f"{run} {problem}") from error
    policy = acting.policy(learned, best.hyper)
    return Champion(policy, spec, replace(best, learned=learned), experiment)


def load_members(run: str | Path, trust_code: bool = False) -> list[Champion]:
    """The members of a run after its last checkpoint, able to act as its champion does; their fitness is not known yet.

    Raises BadInput where there are none, as `load_champion` does, or where they are not saved.
    """
    champion = load_champion(run, trust_code)
    if champion.policy.save is not None:
        raise BadInput(f"{run}: its members are those of trainers, of which only the champion acts")
    saved = read_members(Path(run))
    learned = [as_tree(arrays, champion.learned) for arrays in saved.learned]
    return [
        Champion(
            champion.policy,
            champion.spec,
            ChampionSoFar(learned[i], uid, saved.generation, np.nan, {k: float(x[i]) for k, x in saved.hyper.items()}),
            champion.experiment,
        )
        for i, uid in enumerate(saved.uid)
    ]


def champion_told(told: Any, place: str) -> ChampionSoFar:
    """Read what `ChampionSoFar.about` wrote, without the weights. Raises BadInput, with `place` in front."""
    names = ("uid", "generation", "fitness", "hyper", "level")
    return build(ChampionSoFar, {name: told.get(name) for name in names} if isinstance(told, dict) else told, place)


def _spec(folder: Path, data: Any) -> Spec | None:
    """Read the environment's spec in the manifest of a champion; those of trainers may say nothing. Raises Damaged."""
    if data is None:
        return None
    try:
        fields = {k: tuple(v) if isinstance(v, list) else v for k, v in data["action"].items()}
        action: ActionSpace = KINDS[str(fields.pop("kind"))](**fields)
        shape = data["obs_shape"]
        shape = {key: tuple(x) for key, x in shape.items()} if isinstance(shape, dict) else tuple(shape)
        sees = {who: tuple(data[who]) for who in ("actor", "critic") if who in data}
        spec = Spec(shape, data["obs_dtype"], action, **sees)
        leaves = jax.tree.leaves(spec.obs)
        counts = [n for leaf in leaves for n in leaf.shape]
        counts += [*action.shape, *getattr(action, "nvec", ()), getattr(action, "n", 1)]
        numbers = [x for name, v in fields.items() if name != "native" for x in (v if isinstance(v, tuple) else (v,))]
        sound = all(type(x) in (int, float) and x == x for x in numbers)
        sound &= all(np.dtype(str(name)).kind in "biuf" for name in (*(x.dtype for x in leaves), action.native))
        sound &= {*spec.actor, *spec.critic} <= set(shape if isinstance(shape, dict) else ())
        sound &= all(type(x) is int and 0 < x <= INT32 for x in counts)
        if sound and leaves and all(math.prod(leaf.shape) <= INT32 for leaf in leaves):
            return spec
    except (AttributeError, KeyError, TypeError, ValueError):
        pass
    raise Damaged(f"{folder}: this is no champion")
