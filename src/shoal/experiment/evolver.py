"""The decisions alone, for scripts that train their members themselves: ask and tell, over plain dictionaries."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from shoal.core.errors import STRUCTURE, BadField, BadInput
from shoal.core.keys import derive
from shoal.core.population import Decision, PopulationStats
from shoal.core.schema import convert
from shoal.core.space import Range, SearchSpace
from shoal.experiment.validation import beyond_limits
from shoal.methods.components import make_component
from shoal.methods.pbt import Pbt


class Evolver:
    """Population-based training as ask and tell.

    ```python
    evolver = Evolver(space={"learning_rate": [1e-5, 1e-2, "log"]}, population=4)
    for member in evolver.ask():  # {"uid": 0, "hyper": {"learning_rate": 0.003}, "copy_from": None}
        ...  # copy the weights of `copy_from`, unless it is None; set `hyper`; train; measure
    evolver.tell({0: 13.5, 1: 20.0, 2: 17.25, 3: 9.0})  # decides; `ask` then says what comes next
    ```

    The decisions are those of a run with `method: pbt` and the same space, population and seed.
    """

    def __init__(
        self,
        space: Mapping[str, Any],
        population: int = 8,
        select: Any = "truncation",
        explore: Any = "perturb",
        burn_in: int = 0,
        seed: int = 0,
    ):
        """Create an evolver. Arguments are the experiment fields of the same names. Raises BadInput for invalid ones."""
        given = {"population": population, "burn_in": burn_in, "seed": seed}
        population, burn_in, seed = (convert(int, value, name) for name, value in given.items())
        for name, value in (("population", population), ("seed", seed)):
            if error := beyond_limits(name, value):
                raise error
        for name in map(str, space if isinstance(space, Mapping) else ()):
            if name.startswith(STRUCTURE):
                raise BadField(
                    "space", "is a choice of structure, into which no other weights can be copied", name=name
                )
        self._ranges = convert(dict[str, Range], space, "space")
        parts = {"select": make_component(select, "select"), "explore": make_component(explore, "explore")}
        method = Pbt(**parts, burn_in=burn_in)
        no_agent: Any = None
        search = SearchSpace(self._ranges, {}, {})
        try:
            method.validate(no_agent, population)
        except BadField as error:  # its advice is about the file of an experiment
            raise BadField(error.field, error.problem, value=error.value) from None
        self._evolver, self._seed, self._burn_in = method.evolver(search, population), seed, burn_in
        self._uid = np.arange(population)
        self._parents, self._generation = self._uid, 0
        self._hyper = self._evolver.init(derive((seed,), 0, "hyper"), self._uid)[1]

    def ask(self) -> list[dict[str, Any]]:
        """Return a dict for each member, the same until the next `tell`: `uid` (0, 1, ...), `hyper` and `copy_from`.

        hyper: hyperparameters to train with until the next `tell`
        copy_from: uid of the member whose weights to copy before training, or None

        Copy all from one snapshot: a parent may itself be a child of another one.
        """
        numbers = {name: int if r.integer else float for name, r in self._ranges.items()}
        return [
            {
                "uid": uid,
                "hyper": {name: number(self._hyper[name][uid]) for name, number in numbers.items()},
                "copy_from": None if parent == uid else parent,
            }
            for uid, parent in enumerate(self._parents.tolist())
        ]

    def tell(self, fitness: Mapping[int, float | Sequence[float]], steps: Mapping[int, int] | None = None) -> None:
        """Decide who copies whom, and the next hyperparameters, from the fitness of every member.

        fitness: by uid, a number to be maximised, or the returns of its episodes, whose mean is the fitness (`t_test` needs
            returns); NaN for a member that has diverged
        steps: by uid, environment steps made in all; `burn_in` needs them

        Raises BadInput if a member is missing.
        """
        if self._burn_in and steps is None:
            raise BadField("burn_in", "needs the steps of all members in tell", value=self._burn_in)
        n = len(self._uid)
        returns = [np.atleast_1d(x) for x in self._of_all("fitness", fitness, np.float64)]
        made = [0] * n if steps is None else self._of_all("steps", steps, np.int64)
        stats = PopulationStats(
            self._uid,
            np.full(n, self._generation),
            np.array(made, np.int64),
            np.array([x.mean() if x.size and np.isfinite(x).all() else np.nan for x in returns]),
            np.array([x.std(ddof=1) if x.size > 1 and np.isfinite(x).all() else np.nan for x in returns]),
            np.array([x.size for x in returns]),
            self._hyper,
        )
        _, decision = self._evolver.decide(derive((self._seed,), self._generation, "decide"), (), stats, self._uid)
        assert isinstance(decision, Decision), "its members live on"
        self._parents, self._hyper, self._generation = decision.parents, decision.hyper, self._generation + 1

    def state_dict(self) -> dict[str, Any]:
        """Return the state as JSON-serialisable data."""
        return {"generation": self._generation, "members": self.ask()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Load a `state_dict` of an Evolver with the same arguments. Raises BadInput for another one."""
        try:
            generation, members = int(state["generation"]), state["members"]
            uid = [member["uid"] for member in members]
            copied = [member["copy_from"] for member in members]
            hyper = {name: np.array([m["hyper"][name] for m in members], np.float32) for name in self._ranges}
            more = {name for member in members for name in member["hyper"]} - hyper.keys()
        except (KeyError, TypeError, ValueError) as error:
            raise BadInput(f"this is no state of such an Evolver: {type(error).__name__}: {error}") from error
        if uid != self._uid.tolist():
            raise BadInput(f"this is the state of {len(uid)} members, and there are {len(self._uid)}")
        if more:
            raise BadInput(f"this is the state of an Evolver whose space has {', '.join(sorted(more))} too")
        self._generation, self._hyper = generation, hyper
        self._parents = np.array([u if parent is None else parent for u, parent in zip(uid, copied, strict=True)])

    def _of_all(self, what: str, values: Mapping[int, Any], kind: type) -> list[np.ndarray]:
        """The values of all members, in order of uid. Raises BadInput where there are others, or what is no number."""
        if set(values) != set(self._uid.tolist()):
            raise BadField(what, f"has uids {[*values]}", f"give one of each of 0 to {len(self._uid) - 1}")
        try:
            return [np.asarray(values[uid], kind) for uid in self._uid.tolist()]
        except (TypeError, ValueError) as error:
            raise BadField(what, "must be numbers", value=dict(values)) from error
