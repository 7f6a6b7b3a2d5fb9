"""Your own Gymnasium environment: a class, or a function that makes an environment. It need not be registered."""

import gymnasium
import numpy as np

from shoal import Experiment, train

GENERATIONS, INTERVAL, LENGTH = 4, 1024, 8


class Corridor(gymnasium.Env):
    """Walk right to the end of a corridor. Every step costs 1, so the best return is -(LENGTH - 1)."""

    observation_space = gymnasium.spaces.Box(0, 1, (1,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.place = 0
        return self._see(), {}

    def step(self, action):
        self.place = max(0, self.place + (1 if action == 1 else -1))
        return self._see(), -1.0, self.place == LENGTH - 1, False, {}

    def _see(self):
        return np.array([self.place / LENGTH], np.float32)


def corridor():
    """Whoever never gets there is stopped after 50 steps."""
    return gymnasium.wrappers.TimeLimit(Corridor(), 50)


def main() -> None:
    result = train(
        Experiment(
            env=corridor,  # in an experiment file: my_module:corridor
            population=4,
            generations=GENERATIONS,
            interval=INTERVAL,
            config={"num_envs": 4, "rollout_length": 64},
            space={"learning_rate": [1e-4, 1e-1, "log"]},
            final_episodes=16,
        )
    )
    champion = result.champion
    steps = [int(champion.predict(np.array([place / LENGTH]))[0]) for place in range(LENGTH - 1)]
    print(f"the champion's steps along the corridor: {''.join('<>'[step] for step in steps)}")


if __name__ == "__main__":
    main()
