"""DvD-TD3 (Parker-Holder et al. 2020, arXiv 2002.00632): actors with shared critics, rewarded for diverse behaviour.

One update, for actors pi[1..N] and probe states x from the shared replay buffer, with λ = `hyper.diversity`:

    descend the loss of the critics, over a batch of each actor          as TD3
    b[i] = pi[i](x), the behaviour of an actor
    K[i, j] = exp(-|b[i] - b[j]|² / 2), with the mean over entries       equation 5
    every `policy_delay` updates:
        ascend (1 - λ) sum over i of Q1(s, pi[i](s)) + λ log det K
        move the target networks                                         as TD3
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import numpy as np

from shoal.agents.declared import AGENTS, Declaration, td3_hyper
from shoal.core.errors import BadField, check_least
from shoal.core.keys import derive, draws, member_keys
from shoal.core.population import Decision, PopulationStats, PureEvolver, Seed
from shoal.core.space import HyperparameterSpec, SearchSpace
from shoal.core.types import Agent, Learner, Member, Population, PyTree, Rollout, Tunable
from shoal.methods.method import Method, same_for_all

if TYPE_CHECKING:
    import jax

    from shoal.methods import shared_critic
    from shoal.rl import replay_buffer as ring

RATIO = HyperparameterSpec("joint updates per step of a member: each of them takes a batch of every actor", least=0)
DIVERSITY = HyperparameterSpec("lambda; the weight of the values is 1 - lambda", least=0, most=1)
HYPER = td3_hyper("DvdHyper", update_ratio=(1.0, RATIO), diversity=(0.5, DIVERSITY))

# wins and losses int64 [arms]; arm: the one of this generation; best: the best fitness of the one before, or NaN
State = dict[str, np.ndarray]


class DvdShared(NamedTuple):
    """The state that all members share."""

    critic: shared_critic.Critic
    replay_buffer: ring.ReplayBuffer  # [S, N * B, ...]: the steps of all members side by side
    pending_updates: jax.Array  # float32, the fraction of an update that is still to be made


@dataclass(frozen=True)
class Dvd(Method):
    """DvD: actors with shared critics and replay buffer, rewarded for diverse behaviour.

    All learn from one critic and one replay buffer, and are rewarded not for return alone but also for behaving
    differently from one another; a bandit may choose anew for each generation how much that counts.
    """

    arms: tuple[float, ...] = (0.0, 0.5)
    """possible weights of diversity"""
    probes: int = 20
    """states in which behaviours are compared"""
    redraw: int = 20
    """updates after which new states are sampled"""

    agents: ClassVar[dict[str, Declaration]] = {"td3": AGENTS["td3"]._replace(hyper=HYPER)}
    title: ClassVar[str] = "DvD"
    chosen: ClassVar[dict[str, str]] = {"diversity": "arms"}

    def __post_init__(self) -> None:
        check_least(1, self, "probes", "redraw")
        if not self.arms or not all(0 <= arm <= 1 for arm in self.arms):
            raise BadField("arms", "needs numbers, each within 0 and 1", value=list(self.arms))

    def validate(self, agent: Tunable, population: int) -> None:
        if population < 2:
            raise BadField("population", "method dvd compares members", "it needs at least 2", value=population)

    def learner(self, agent: Agent, population: int) -> Learner:
        """Make T x B x `update_ratio` joint updates after a rollout of T steps in B environments of every member.

        Every actor learns as often as if it were alone, as in the paper. `config.capacity` and `config.warm_up` count
        the steps of all members. Raises BadInput where the agent is not TD3.
        """
        import jax
        import jax.numpy as jnp

        from shoal.core import tree
        from shoal.methods import shared_critic
        from shoal.rl import diversity
        from shoal.rl import replay_buffer as ring
        from shoal.rl.independent import independent
        from shoal.rl.steps import usable

        net, n = shared_critic.networks_of(agent, "dvd"), population
        config = net.config
        environments, steps = n * config.environments, config.rollout * config.environments
        slots = -(-config.capacity // (config.rollout * environments)) * config.rollout
        bound = steps * config.updates_per_step

        def behaviours(policies: PyTree, states: PyTree) -> jax.Array:
            """Embeddings [N, probes * A]."""
            return jax.vmap(net.policy, (0, None))(policies, states).reshape(n, -1)

        def bonus(policies: PyTree, hyper: Any, states: PyTree) -> jax.Array:
            embeddings, weight = behaviours(policies, states), hyper.diversity[:, None]
            constant = jax.lax.stop_gradient(embeddings)
            weighted = constant + weight * (embeddings - constant)  # same values; gradients times each member's weight
            return diversity.log_determinant(diversity.kernel(diversity.squared_distances(weighted)))

        joint = shared_critic.joint_update(net, bonus, lambda hyper: 1 - hyper.diversity)

        def init(key: jax.Array, uid: jax.Array, hyper: Any) -> Population:
            own_key, common_key = jax.random.split(key)
            members = jax.vmap(one.init)(member_keys(own_key, uid), hyper)
            critic = shared_critic.new_critic(net.init(common_key)[1])
            buffer = ring.empty(net.spec, slots, environments)
            return Population(members, DvdShared(critic, buffer, jnp.float32(0)), hyper)

        def update(population: Population, rollout: Rollout, keys: jax.Array) -> tuple[Population, dict[str, Any]]:
            common, hyper = population.shared, population.hyper
            together = jax.tree.map(side_by_side, rollout._replace(extras=()))
            buffer = ring.store(common.replay_buffer, together, usable(together), common.replay_buffer.owner)
            ready = buffer.filled.sum() >= config.warm_up
            pending_updates = jnp.where(ready, common.pending_updates + hyper.update_ratio[0] * steps, 0.0)
            count = jnp.clip(jnp.floor(pending_updates), 0, bound).astype(jnp.int32)
            batch_keys, noise_keys, probe_keys = jax.vmap(lambda key: jax.random.split(key, 3), out_axes=1)(keys)
            batches = shared_critic.batches(buffer, batch_keys, (bound, config.batch), hyper.discount)
            shape = (-(-bound // self.redraw), self.probes)
            states = ring.sample(buffer, probe_keys[0], shape, 1, hyper.discount[0]).obs

            def body(i: jax.Array, state: tuple) -> tuple:
                actors, critic, sums = state
                batch = jax.tree.map(lambda x: x[i], batches)
                noise = jax.vmap(jax.random.fold_in, (0, None))(noise_keys, i)
                probed = tree.take(states, i // self.redraw)
                actors, critic, metrics = joint(actors, critic, hyper, batch, noise, probed)
                return actors, critic, jax.tree.map(jnp.add, sums, metrics)

            nothing = dict.fromkeys(shared_critic.METRICS, jnp.zeros(len(keys)))
            start = (population.members.learned, common.critic, nothing)
            actors, critic, sums = jax.lax.fori_loop(0, count, body, start)
            metrics = {name: x / count.astype(jnp.float32) for name, x in sums.items()}  # NaN where there was no update
            metrics |= compared(actors, tree.take(states, 0))
            common = DvdShared(critic, buffer, pending_updates - count.astype(jnp.float32))
            return Population(Member(actors, (), ()), common, hyper), metrics

        def side_by_side(x: jax.Array) -> jax.Array:
            """Merge the rollouts of all members into one: [N, T, B, ...] -> [T, N * B, ...]."""
            x = jnp.moveaxis(x, 0, 1)
            return x.reshape(x.shape[0], -1, *x.shape[3:])

        def compared(actors: shared_critic.Actor, states: PyTree) -> dict[str, jax.Array]:
            """Diversity of the members; distances are root mean squares of differences between actions."""
            squared = diversity.squared_distances(behaviours(actors.policy, states))
            volume, distance = diversity.log_determinant(diversity.kernel(squared)), jnp.sqrt(squared)
            return {
                "diversity/determinant": jnp.broadcast_to(jnp.exp(volume), n),
                "diversity/log_determinant": jnp.broadcast_to(volume, n),
                "diversity/distance": distance.sum(-1) / (n - 1),
                **{f"diversity/to {i}": distance[:, i] for i in range(n)},
            }

        # The replay buffer is not theirs, and its steps are learned from alone: no episode has to end where others go on.
        one = shared_critic.actor_of(agent, HYPER)._replace(cut=lambda member: member)
        return independent(one)._replace(init=init, update=update, together=True)

    def evolver(self, search: SearchSpace, population: int) -> PureEvolver:
        """Thompson sampling of `hyper.diversity` (section 4), equal for all: an arm wins when the best fitness rises."""

        def hyper(state: State, like: dict[str, np.ndarray], members: int) -> dict[str, np.ndarray]:
            return like | {"diversity": np.full(members, self.arms[int(state["arm"])], np.float32)}

        def pull(key: Seed, state: State) -> State:
            return state | {"arm": np.array(thompson(derive(key, "arm"), state["wins"], state["losses"]))}

        def init(key: Seed, uid: np.ndarray) -> tuple[State, dict[str, np.ndarray]]:
            none = np.zeros(len(self.arms), np.int64)
            state = pull(key, {"wins": none, "losses": none, "best": np.array(np.nan)})
            return state, hyper(state, same_for_all(search.fixed, len(uid)), len(uid))

        def decide(key: Seed, state: State, stats: PopulationStats, mine: np.ndarray) -> tuple[State, Decision]:
            own = stats.fitness[mine]
            finite = own[np.isfinite(own)]
            if not np.isnan(state["best"]):  # in the first generation there is no fitness to compare with
                won = bool(len(finite)) and bool(finite.max() > state["best"])
                side = "wins" if won else "losses"
                state = state | {side: state[side] + (np.arange(len(self.arms)) == state["arm"])}
            if len(finite):
                state = state | {"best": np.array(finite.max(), np.float64)}
            state = pull(key, state)
            values = {name: x[mine] for name, x in stats.hyper.items()}
            return state, Decision(mine, hyper(state, values, len(mine)))

        return PureEvolver(init, decide)


def thompson(key: Seed, wins: np.ndarray, losses: np.ndarray) -> int:
    """Return the arm with the highest probability of winning, sampled from its posterior Beta(1 + wins, 1 + losses).

    A sample is the (1 + wins)-th smallest of 1 + wins + losses uniform numbers.
    """
    chances = []
    for arm, (won, lost) in enumerate(zip(wins, losses, strict=True)):
        uniform = draws(derive(key, arm), np.zeros(1, np.int64), int(1 + won + lost))[0]
        chances.append(np.sort(uniform)[int(won)])
    return int(np.argmax(chances))
