"""The members of one worker, among those that others publish in a shared directory."""

from __future__ import annotations

from contextlib import suppress
from functools import partial

import numpy as np

from shoal.core.arrays import pack, unpack
from shoal.core.atomic import Damaged
from shoal.core.errors import BadField
from shoal.core.population import Decision, PopulationStats
from shoal.core.types import PyTree
from shoal.distributed.directory import Lost, Published, Workspace
from shoal.distributed.rows import columns, from_rows, sound, to_rows
from shoal.distributed.synchronous import Decide, Evolved, KnownMembers
from shoal.members.protocol import Kind, Shard


class Worker:
    """A shard that decides for itself alone, with all others that can be seen; it never waits."""

    def __init__(self, workspace: Workspace, kind: Kind, shard: Shard):
        self._workspace, self._kind, self.shard = workspace, kind, shard

    def share(self, metrics: dict[str, np.ndarray], stop: bool, seconds: float) -> KnownMembers:
        """Stats of this worker's members."""
        stats = self.shard.stats()
        return KnownMembers(stats, *self.shard.individuals(stats, metrics), self.shard.evaluation_steps, stop, seconds)

    def evolve(self, shared: KnownMembers, decide: Decide) -> Evolved:
        """Decide for these members among all that are no further than they are.

        Where the state of a chosen parent is gone, or is not what its manifest says, the decision is taken again without it.
        """
        stats, learned = shared.members, self.shard.learned()
        packed = [pack(self.shard.snapshot(row)) for row in range(len(stats.uid))]
        generation, names, rows = int(stats.generation[0]), columns(stats), to_rows(stats, {}, [])
        own: list[tuple[Published | None, int]] = [(None, row) for row in range(len(rows))]
        while True:
            others = self._others(stats, generation, names)
            table = np.concatenate([rows, *(manifest.rows for manifest in others)])
            order = np.argsort(table[:, 0], kind="stable")  # by uid, so that the order is the same for every worker
            visible, _, _ = from_rows(table[order], stats, {})
            sources = own + [(manifest, row) for manifest in others for row in range(len(manifest.rows))]
            own_rows = np.argsort(order)[: len(rows)]
            evolution, decision = decide(visible, own_rows)
            if not isinstance(decision, Decision):
                raise BadField("method", "its evolver weighs members for a mean, which workers do not share")
            parents = [sources[row] for row in order[decision.parents]]
            with suppress(Lost):
                arrived = {
                    i: self._read(manifest, row) for i, (manifest, row) in enumerate(parents) if manifest is not None
                }
                break
        local = np.array([row if manifest is None else i for i, (manifest, row) in enumerate(parents)])
        metrics = self.shard.apply(decision.part(np.arange(len(rows)), local), arrived)
        publish = partial(self._workspace.publish, generation, names, rows, packed)
        chosen = visible.take(decision.parents)
        metrics = dict(decision.metrics) | metrics
        return Evolved(evolution, chosen, decision.hyper, lambda rows: [learned(row) for row in rows], metrics, publish)

    def _read(self, manifest: Published, row: int) -> PyTree:
        """Weights of a member of another worker. Raises Lost, and the manifest is no longer visible."""
        data = self._workspace.read(manifest, row)
        try:
            return unpack(data, self._kind.snapshot)
        except Damaged as error:
            self._workspace.reject(manifest, f"{error}")
            raise Lost(manifest.worker) from error

    def _others(self, stats: PopulationStats, generation: int, names: list[str]) -> list[Published]:
        """Stats of others who have done half as many generations or more: members of a worker that has ended, or has just
        begun, would be the worst for ever. A member that is there twice, in a copied folder perhaps, is seen once."""
        seen, others = set(stats.uid.tolist()), list[Published]()
        for manifest in self._workspace.visible(generation, names):
            if not sound(manifest.rows, names, manifest.generation):
                self._workspace.reject(manifest, "its statistics are not valid")
                continue
            if 2 * (manifest.generation + 1) <= generation:
                continue
            uid = set(manifest.rows[:, 0].astype(np.int64).tolist())
            if seen & uid or len(uid) < len(manifest.rows):
                self._workspace.reject(manifest, "its members are another worker's")
            else:
                seen |= uid
                others.append(manifest)
        return others
