"""Trainers that each do one thing wrong which gives wrong numbers, and one whose methods return what they must not."""

from __future__ import annotations

import os
import socket
import subprocess
import sys

import gymnasium
import numpy as np
from support.trainers import Sound


class Misreturning(Sound):
    """A member's method returns what an expression gives: the file `place` has both when the member is made."""

    def __init__(self, env, env_options, place, **config):
        super().__init__(env, env_options, **config)
        self.place = place

    def make(self, hyper, seed):
        super().make(hyper, seed)
        with open(self.place) as file:
            method, expression = file.read().split("\n")
        setattr(self, method, lambda *arguments: eval(expression))

    def export(self, path):
        return [path]


class Talkative(Sound):
    """Writes into every socket that is open in its process."""

    def train(self, steps):
        for descriptor in map(int, os.listdir("/proc/self/fd")):
            try:
                socket.socket(fileno=os.dup(descriptor)).sendall(b"step 1 of 10, all is well\n")
            except OSError:
                continue
        return super().train(steps)


class Killed(Sound):
    """Ends by a signal that has no name."""

    def train(self, steps):
        os.kill(os.getpid(), 40)


class Deserted(Sound):
    """Starts a process that leaves its session, and writes its id where `place` says."""

    def __init__(self, env, env_options, place="", **config):
        super().__init__(env, env_options, **config)
        self.place = place

    def make(self, hyper, seed):
        super().make(hyper, seed)
        away = "stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True"
        started = f"import subprocess; print(subprocess.Popen(['sleep', '60'], {away}).pid)"
        pid = subprocess.run([sys.executable, "-c", started], capture_output=True, text=True, check=True).stdout
        if self.place:
            with open(self.place, "w") as file:
                file.write(pid)


# -------------------------------------------------------------------- what gives wrong numbers


class Hoarding(Sound):
    """Its returns are those of all intervals."""

    def __init__(self, *arguments, **config):
        super().__init__(*arguments, **config)
        self.returns = []

    def train(self, steps):
        made, returns, metrics = super().train(steps)
        self.returns += returns
        return made, self.returns, metrics


class Common(Sound):
    """Members of a class have one policy with which they are evaluated: that of who trained, or was set, last."""

    played = None

    def train(self, steps):
        report = super().train(steps)
        Common.played = self.w
        return report

    def set_state(self, state):
        super().set_state(state)
        Common.played = self.w

    def best(self, obs):
        return (obs @ (self.w if Common.played is None else Common.played)).argmax(1)


class FirstSeed(Sound):
    """Only the first episode of an evaluation is seeded."""

    def evaluate(self, seeds):
        return super().evaluate([seeds[0]] * len(seeds))


class Stale(Sound):
    """Is evaluated with a copy of its policy that is made after training only."""

    copied = None

    def train(self, steps):
        report = super().train(steps)
        self.copied = self.w
        return report

    def best(self, obs):
        return (obs @ (self.w if self.copied is None else self.copied)).argmax(1)


class Late(Sound):
    """Its hyperparameters are there once they are set, as the protocol allows."""

    def make(self, hyper, seed):
        super().make(hyper, seed)
        del self.hyper

    def set_hyperparameters(self, hyper):
        super().set_hyperparameters(hyper)


class Contexts(gymnasium.Env):
    """The contexts of `Sound` as an environment: ten of them are an episode."""

    observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (2,), np.float32)
    action_space = gymnasium.spaces.Discrete(3)
    x, left = np.zeros(2, np.float32), 0

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.left = 10
        self.x = self.np_random.normal(size=2).astype(np.float32)
        return self.x, {}

    def step(self, action):
        reward = float(np.cos(action) * self.x[0] + np.sin(action) * self.x[1])
        self.x, self.left = self.np_random.normal(size=2).astype(np.float32), self.left - 1
        return self.x, reward, self.left == 0, False, {}


class Playing(Sound):
    """Is evaluated in an environment, of whose observations its policy sees those that are normalised."""

    def normal(self, obs):
        return (obs - [0.5, -0.5]) * [0.1, 3.0]

    def evaluate(self, seeds):
        returns, env = [], Contexts()
        for seed in seeds:
            (obs, _), done = env.reset(seed=int(seed)), False
            returns.append(0.0)
            while not done:
                obs, reward, done, _, _ = env.step(self.best(self.normal(obs[None]))[0])
                returns[-1] += reward
        return returns

    def act(self, obs):
        return self.best(self.normal(obs))


class Blunt(Playing):
    """Forgets in `act` to normalise."""

    def act(self, obs):
        return self.best(obs)


class Columns(Playing):
    """Its actions have an axis too many."""

    def act(self, obs):
        return super().act(obs)[:, None]


class Deformed(Playing):
    """Says of observations that they are longer than they are."""

    def __init__(self, *arguments, **config):
        super().__init__(*arguments, **config)
        self.spec["obs_shape"] = [3]
