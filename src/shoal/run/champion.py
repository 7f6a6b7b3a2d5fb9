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

from shoal.core import run_files, tree
from shoal.core.arrays import as_tree
from shoal.core.atomic import Damaged, Staging, expanded
from shoal.core.backend import on_jax
from shoal.core.candidates import Candidate
from shoal.core.errors import STRUCTURE, BadInput
from shoal.core.keys import derive, jax_key
from shoal.core.population import of_row
from shoal.core.schema import build
from shoal.core.spec import ActionSpace, Box, Discrete, Leaf, MultiDiscrete, Spec, describe, each
from shoal.core.types import PyTree
from shoal.experiment.build import policy_factory_of
from shoal.experiment.experiment import Experiment
from shoal.experiment.files import dump
from shoal.experiment.structures import with_structure
from shoal.experiment.trust import open_run
from shoal.experiment.validation import INT32
from shoal.members.acting import PolicyFactory
from shoal.records.words import text
from shoal.run import checkpoint
from shoal.run.members import Saved, read_members

KINDS: dict[str, Any] = {kind.__name__: kind for kind in (Discrete, MultiDiscrete, Box)}


class Champion:
    """A trained policy, ready to act.

    hyper: the hyperparameters that it last trained with. fitness: when it was selected, None if that is not known.
    obs: shapes and dtypes of the observations that it sees, None if they are not known.
    """

    def __init__(self, policy_factory: PolicyFactory, spec: Spec | None, best: Candidate, experiment: Experiment):
        self.spec, self.learned, self._best, self._run = spec, best.learned, best, experiment
        self.experiment = with_structure(experiment, best.hyper)
        self.policy_factory, self.policy = policy_factory, policy_factory.policy(best.learned, best.hyper)
        self.obs = None if spec is None else spec.obs
        if isinstance(self.obs, dict):
            self.obs = {key: self.obs[key] for key in self.policy.observation_keys or self.obs}
        self.hyper = {name: x for name, x in best.hyper.items() if not name.startswith(STRUCTURE)}
        self.uid, self.generation = best.uid, best.generation
        self.fitness = best.fitness if np.isfinite(best.fitness) else None
        self._sampled = 0  # actions so far: each has a key of its own

    def __repr__(self) -> str:
        fitness = "" if self.fitness is None else f", {text(self.fitness)}"
        generations = f"{self.generation + 1} generation{'s' * (self.generation > 0)}"
        who = f"member {self.uid} after {generations}{fitness}"
        return f"<champion of {self.experiment.env_name} by {self.experiment.agent_name}: {who}>"

    @on_jax()
    def predict(
        self, obs: Any, state: PyTree = None, episode_start: Any = None, deterministic: bool = True
    ) -> tuple[np.ndarray, PyTree]:
        """Return the action for one observation, or for a batch of them [B, ...], and the state for the next call.

        The arguments are those of Stable-Baselines3. Dictionary observations may lack the keys that the policy does not see.

        state: the recurrent state that the last call returned; None when episodes start, and for policies without one
        episode_start: bool [B], True where an episode starts and the recurrent state is reset
        deterministic: True for deterministic actions (the mode of the policy), False to sample

        Returns the action in the environment's space and dtype, [B, ...] for a batch, and the next state. Raises BadInput
        for observations of another shape or missing keys, for an empty batch, and if the spec is unknown.
        """
        if self.spec is None or self.obs is None:
            raise BadInput(f"{self.experiment.agent} does not say which observations and actions it has")
        given, axes = _arrays(obs, self.obs)
        batch = given if axes else jax.tree.map(lambda x: x[None], given)
        fresh = self.policy.carry(axes or (1,))
        carry = fresh if state is None else state
        if jax.tree.map(np.shape, carry) != jax.tree.map(np.shape, fresh):
            shape = jax.tree.map(np.shape, given)
            raise BadInput(
                f"obs has the shape {shape}, and state is that of other episodes; give none where they start"
            )
        if episode_start is not None:
            starts = np.asarray(episode_start, bool)
            if starts.shape not in ((), axes, axes or (1,)):
                raise BadInput(f"episode_start has the shape {starts.shape}; the batch of obs has {axes or (1,)}")
            carry = tree.where(np.broadcast_to(starts, axes or (1,)), fresh, carry)
        if deterministic:
            action, carry = self.policy.act_deterministic(self.learned, batch, carry)
        else:
            key = jax_key(derive((self.experiment.seed,), "predict", self._sampled))
            action, carry = self.policy.act_stochastic(self.learned, batch, carry, key)
            self._sampled += 1
        action = np.asarray(action).astype(self.spec.action.native)
        return action if axes else action[0], carry if jax.tree.leaves(carry) else None

    def save(self, path: str | Path) -> None:
        """Save the champion in a new folder, for `load_champion` and every command that takes the champion of a run.

        Raises BadInput if the folder is not empty or cannot be written.
        """
        folder = expanded(path)
        staging = Staging(folder, "champion")
        try:
            folder.mkdir(parents=True, exist_ok=True)
            if any(folder.iterdir()):
                raise BadInput(f"{folder} is not empty; choose a new folder")
            staging.open()
            staging.write(folder / run_files.EXPERIMENT, dump(self.experiment).encode())
            save(folder / "champion", replace(self._best, learned=self.learned), self.spec, staging)
        except OSError as error:
            raise BadInput(f"{folder} cannot be written: {error.strerror}") from error
        finally:
            staging.close()


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
    if 0 in axes:
        raise BadInput(f"obs has the shape {given}, which is a batch of none")
    return arrays, axes


def save(folder: Path, best: Candidate, spec: Spec | None, staging: Staging) -> None:
    """Write the champion's weights and manifest. spec: of its environment, where that is known."""
    manifest = best.manifest()
    if not np.isfinite(best.fitness):  # of a member whose fitness is not known
        del manifest["fitness"]
    if spec is not None:
        space = {"kind": type(spec.action).__name__, **asdict(spec.action)}
        manifest["spec"] = asdict(spec) | {"action": space}
    checkpoint.write(folder, best.learned, manifest, staging)


@on_jax()
def load_champion(
    run: str | Path, trust_code: bool = False, member: int | None = None, generation: int | None = None, **given: Any
) -> Champion:
    """Load the champion of a run directory, or another member. Raises BadInput if there is none.

    trust_code: import code that the run names and that is not Shoal's
    member: its uid; by default the champion, or the fittest member if a generation is given
    generation: counted from 0; by default the newest checkpoint, if a member is given
    given: agent, method and config, where the run was started with objects that have no importable name
    """
    run = expanded(run)
    experiment, folder = open_run(run, trust_code, **given), run / "champion"
    try:
        arrays, manifest = checkpoint.read_arrays(folder, run)
        best = champion_of_manifest(manifest, f"{folder}: ")
        spec = _spec(folder, manifest.get("spec"))
        policy_factory = policy_factory_of(with_structure(experiment, best.hyper), spec, folder)
        learned = checkpoint.restore(folder, arrays, policy_factory.learned)
    except Damaged as error:
        if os.path.lexists(folder):
            raise
        problem = "holds no champion yet: no generation has ended with a member that has a fitness"
        raise BadInput(f"{run} {problem}") from error
    champion = Champion(policy_factory, spec, replace(best, learned=learned), experiment)
    if member is None and generation is None:
        return champion
    saved = read_members(run, generation)
    if member is None:
        return _member(champion, saved, int(np.argmax(np.nan_to_num(saved.fitness, nan=-np.inf))))
    if member not in saved.uid:
        here = ", ".join(map(str, sorted(saved.uid)))
        problem = f"has no member {member} in the checkpoint of generation {saved.generation + 1}; it has: {here}"
        raise BadInput(f"{run} {problem}")
    return _member(champion, saved, saved.uid.index(member))


def load_members(
    run: str | Path, trust_code: bool = False, generation: int | None = None, **given: Any
) -> list[Champion]:
    """Load all members of a run as policies, by uid. Raises BadInput if there are none, or if they are not saved.

    generation: counted from 0; by default the newest checkpoint
    given: as for `load_champion`
    """
    champion, saved = load_champion(run, trust_code, **given), read_members(expanded(run), generation)
    return [_member(champion, saved, row) for row in np.argsort(saved.uid).tolist()]


def _member(champion: Champion, saved: Saved, row: int) -> Champion:
    """Make a policy of a saved member. Its fitness is not known yet: it may be a child."""
    run, policy_factory, hyper = champion._run, champion.policy_factory, of_row(saved.hyper, row)
    if (own := with_structure(run, hyper)) != champion.experiment:
        policy_factory = policy_factory_of(own, champion.spec, Path("champion"))
    learned = as_tree(saved.learned[row], policy_factory.learned)
    one = Candidate(learned, saved.uid[row], saved.generation, hyper=hyper)
    return Champion(policy_factory, champion.spec, one, run)


def champion_of_manifest(fields: Any, place: str) -> Candidate:
    """Read what `Candidate.manifest` returned, without the weights. Raises BadInput, with `place` in front."""
    if isinstance(fields, dict):
        fitness = {"fitness": fields["fitness"]} if "fitness" in fields else {}
        fields = {name: fields.get(name) for name in ("uid", "generation", "hyper", "smoothed")} | fitness
    return build(Candidate, fields, place)


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
