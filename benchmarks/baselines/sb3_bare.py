"""Bare Stable-Baselines3: PPO models of one process that train in turns, interval after interval. Prints their seconds.

python sb3_bare.py MODELS INTERVALS STEPS CONFIG
"""

import json
import sys
import time

import gymnasium
from stable_baselines3 import PPO
from stable_baselines3.common.logger import Logger
from stable_baselines3.common.monitor import Monitor
from stable_baselines3.common.vec_env import DummyVecEnv


def main() -> None:
    """Train, and print the seconds of every interval of all models."""
    models, intervals, steps = map(int, sys.argv[1:4])
    config = json.loads(sys.argv[4])
    n_envs = config.pop("n_envs")
    made = [  # with the wrapper that SB3 itself gives environments
        PPO("MlpPolicy", DummyVecEnv([lambda: Monitor(gymnasium.make("CartPole-v1"))] * n_envs), seed=i, **config)
        for i in range(models)
    ]
    for model in made:
        model.set_logger(Logger(None, []))  # the default one leaves a folder for every call of `learn`
    seconds = []
    for _ in range(intervals):
        begin = time.perf_counter()
        for model in made:
            model.learn(steps, reset_num_timesteps=False)
        seconds.append(time.perf_counter() - begin)
    print(json.dumps(seconds))


if __name__ == "__main__":
    main()
