"""Parameter sharing: one policy for all agents of a parallel PettingZoo environment. Each agent becomes a row of a vector
environment. It works with any `parallel_env`, such as mpe2's simple_spread_v3; `Meeting` is a small stand-in.
"""

from functools import partial

import gymnasium
import numpy as np

from shoal import Experiment, Spec, train
from shoal.environments.host import AutoResetVectorEnv, HostEnvironment, VectorStep
from shoal.environments.spaces import action_space

GENERATIONS, INTERVAL = 6, 4096
BOX, THREE = gymnasium.spaces.Box(-1, 1, (2,), np.float32), gymnasium.spaces.Discrete(3)


class AgentsAsCopies(AutoResetVectorEnv):
    """Copies of a parallel environment, one row for each of their agents. An observation ends with the agent's number as a
    one-hot vector, so that agents may act differently. An episode ends for all agents when the first one is done.
    """

    def __init__(self, make, rows):
        self.agents = make().possible_agents
        if rows % len(self.agents):
            problem = f"{rows} copies are no whole number of environments with {len(self.agents)} agents"
            raise ValueError(f"{problem}: config.num_envs and fitness.episodes must be multiples of that")
        self.envs = [make() for _ in range(rows // len(self.agents))]

    def reset(self, seeds):
        return np.concatenate(
            [
                self.rows(env.reset(seed=seed)[0])
                for env, seed in zip(self.envs, seeds[:: len(self.agents)], strict=True)
            ]
        )

    def step_raw(self, action):
        per_env = action.reshape(len(self.envs), len(self.agents), *action.shape[1:])
        stepped = [self.step_one(env, own) for env, own in zip(self.envs, per_env, strict=True)]
        obs, reward, terminated, truncated = (np.concatenate(rows) for rows in zip(*stepped, strict=True))
        return VectorStep(obs, reward, terminated, truncated, lambda row: {})

    def step_one(self, env, action):
        obs, *rest, _ = env.step(dict(zip(self.agents, action, strict=True)))
        reward, terminated, truncated = (np.array([x.get(agent, 0) for agent in self.agents]) for x in rest)
        over = (terminated | truncated).any()
        return self.rows(obs), reward, terminated.astype(bool), over & (terminated == 0)

    def reset_copies(self, copies):
        rows = {i: self.rows(self.envs[i].reset()[0]) for i in {*(copies // len(self.agents)).tolist()}}
        return np.stack([rows[i // len(self.agents)][i % len(self.agents)] for i in copies.tolist()])

    def rows(self, obs):
        seen = np.stack([np.ravel(obs[agent]) for agent in self.agents]).astype(np.float32)
        return np.concatenate([seen, np.eye(len(self.agents), dtype=np.float32)], 1)

    def close(self):
        for env in self.envs:
            env.close()


def parameter_sharing(make):
    """The environment of one agent; `make` makes the parallel environment. In a file: name a function that calls this."""
    env = make()
    agent, count = env.possible_agents[0], len(env.possible_agents)
    width = int(np.prod(env.observation_space(agent).shape)) + count
    spec = Spec((width,), "float32", action_space(env.action_space(agent), agent))
    return HostEnvironment(spec, partial(AgentsAsCopies, make))


class Meeting:
    """Two agents on a line; the nearer they are, the higher the reward. It has the interface of PettingZoo's ParallelEnv."""

    metadata, possible_agents = {"name": "meeting"}, ["first", "second"]
    observation_space = {"first": BOX, "second": BOX}.get
    action_space = {"first": THREE, "second": THREE}.get

    def reset(self, seed=None, options=None):
        if seed is not None:
            self.random = np.random.default_rng(seed)
        self.agents, self.steps = [*self.possible_agents], 0
        self.places = dict(zip(self.agents, self.random.uniform(-1, 1, 2), strict=True))
        return self.see(), {agent: {} for agent in self.agents}

    def step(self, actions):
        self.places = {agent: np.clip(x + 0.1 * (actions[agent] - 1), -1, 1) for agent, x in self.places.items()}
        self.steps += 1
        reward = -abs(self.places["first"] - self.places["second"])
        each = [self.see(), *(dict.fromkeys(self.agents, x) for x in (reward, False, self.steps == 20, {}))]
        self.agents = [] if self.steps == 20 else self.agents
        return tuple(each)

    def see(self):
        first, second = self.places.values()
        return {"first": np.array([first, second], np.float32), "second": np.array([second, first], np.float32)}

    def close(self):
        pass


def main() -> None:
    result = train(
        Experiment(
            env=parameter_sharing(Meeting),
            population=4,
            generations=GENERATIONS,
            interval=INTERVAL,
            config={"num_envs": 8, "rollout_length": 64},  # of each member: four meetings of two agents
            space={"learning_rate": [1e-4, 1e-2, "log"]},
            final_episodes=64,
        )
    )
    print(f"agents that share a policy meet: {result.summary['champion']['evaluation']['mean']:.2f}")


if __name__ == "__main__":
    main()
