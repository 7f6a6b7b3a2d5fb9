"""Population-based training (Jaderberg et al., arXiv 1711.09846): select, inherit, explore."""

from __future__ import annotations

import numpy as np

from shoal.core.errors import BadField
from shoal.core.evolution import Cards, Decision, Evolver, Explore, FirstValues, Range, Seed, Select
from shoal.core.keys import derive, draws
from shoal.core.user_code import call_own
from shoal.methods.pbt import explore as explorers
from shoal.methods.pbt import select as selectors
from shoal.methods.ranges import nearest, sample, validate


def pbt(
    select: Select,
    explore: Explore,
    space: dict[str, Range],
    start: dict[str, float],
    start_after: int = 0,
    first_values: FirstValues = "range",
) -> Evolver:
    """The evolver that applies `select` to the cards, then `explore` to what the children inherit.

    space: the hyperparameters that are tuned; a member's first values are sampled from their ranges, or are their `start`
    first_values: `half`: where a range has a `start`, half of the members begin anywhere in it all the same
    start: first values of all other hyperparameters
    start_after: environment steps before which a member neither copies nor explores
    """
    for name, r in space.items():
        validate(name, r)

    def init(key: Seed, uid: np.ndarray) -> tuple[tuple[()], dict[str, np.ndarray]]:
        hyper = {name: np.full(len(uid), value, np.float32) for name, value in start.items()}
        for name, r in space.items():
            anywhere = sample(r, draws(derive(key, "prior", name), uid, 1)[:, 0])
            usual = anywhere if r.start is None else nearest(r, np.full(len(uid), r.start))
            hyper[name] = np.where(_odd(uid), anywhere, usual) if first_values == "half" else usual
        return (), hyper

    def decide(key: Seed, state: tuple[()], cards: Cards, mine: np.ndarray) -> tuple[tuple[()], Decision]:
        parents, explores = selected(select, key, cards, mine, start_after)
        return state, Decision(parents, inherit(explore, key, cards, mine, parents, explores, space))

    # Try the explorer now, so that an error comes before the first interval.
    _explored(explore, (), init((), np.zeros(1, np.int64))[1], space, np.zeros(1, np.int64))
    return Evolver(init, decide)


def selected(
    select: Select, key: Seed, cards: Cards, mine: np.ndarray, start_after: int
) -> tuple[np.ndarray, np.ndarray]:
    """Parents int64 [N], and which members explore, bool [N]; before `start_after` steps neither, except that a member
    without a finite fitness copies one that has it.

    Raises BadInput where the selector fails, or gives anything else.
    """
    selection = call_own("method.select", _name(select), select, derive(key, "select"), cards, mine)
    if not isinstance(selection, tuple) or len(selection) != 2:
        raise BadField("method.select", f"it gave a {type(selection).__name__}", "it must give a Selection")
    members, visible = len(mine), len(cards.uid)
    parents, explores = (np.asarray(x) for x in selection)
    whole = parents.dtype.kind in "iu" and explores.dtype.kind == "b" and parents.shape == explores.shape == (members,)
    if not whole or not ((parents >= 0) & (parents < visible)).all():
        raise BadField(
            "method.select", f"of {members} members each needs a parent among the {visible} rows of the cards"
        )
    finite = np.isfinite(cards.fitness)
    ready = (cards.steps[mine] >= start_after) | (~finite[mine] & finite[parents])
    return np.where(ready, parents, mine), explores & ready


def inherit(
    explore: Explore,
    key: Seed,
    cards: Cards,
    mine: np.ndarray,
    donors: np.ndarray,
    explores: np.ndarray,
    space: dict[str, Range],
) -> dict[str, np.ndarray]:
    """The hyperparameters [N] that members go on with: those of their donors, int64 [N], changed where one explores.

    mine: int64 [N], the rows of the members. explores: bool [N]. Raises BadInput where the explorer fails, or gives
    anything else.
    """
    hyper = {name: values[donors] for name, values in cards.hyper.items()}
    if len(rows := np.flatnonzero(explores)):
        taken = {name: values[rows] for name, values in hyper.items()}
        changed = _explored(explore, derive(key, "explore"), taken, space, cards.uid[mine[rows]])
        for name, values in changed.items():
            hyper[name][rows] = values
    return hyper


def _explored(
    explore: Explore, key: Seed, hyper: dict[str, np.ndarray], space: dict[str, Range], uid: np.ndarray
) -> dict[str, np.ndarray]:
    """New values [N] of the same names. Raises BadInput where the explorer fails, or gives anything else."""
    changed = call_own("method.explore", _name(explore), explore, key, hyper, space, uid)
    if not isinstance(changed, dict) or changed.keys() != hyper.keys():
        raise BadField(
            "method.explore", f"it gave a {type(changed).__name__}", "it must give a dict of all hyperparameters"
        )
    numbers = {name: np.asarray(values) for name, values in changed.items()}
    for name, x in numbers.items():
        if x.dtype.kind not in "biuf" or x.shape not in ((), uid.shape):
            raise BadField("method.explore", f"of {len(uid)} members each needs one number as its {name}")
    return numbers


def _name(part: Select | Explore) -> str:
    return str(getattr(part, "__qualname__", type(part).__qualname__))


def _odd(uid: np.ndarray) -> np.ndarray:
    """bool [N]: whether the uid has an odd number of binary ones. So it is for half of all, and half of every second, every
    fourth, ..., such as the members of a sub-population."""
    return np.array([int(u).bit_count() % 2 == 1 for u in uid], bool)


def keep(space: dict[str, Range], start: dict[str, float], first_values: FirstValues = "range") -> Evolver:
    """The control: no member copies or explores. Many seeds or, with a space, random search."""
    return pbt(selectors.Keep(), explorers.Keep(), space, start, 0, first_values)
