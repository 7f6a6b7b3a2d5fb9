"""A trainer in NumPy alone that does all that it must, and others that each do one thing wrong."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np


class Sound:
    """A policy gradient with momentum on a bandit whose arms pay `w . x` for contexts x, with noise.

    env: ignored. arms, envs: how many arms, and how many contexts make one rollout.
    """

    space = {"rate": {"low": 1e-3, "high": 1.0, "scale": "log"}, "momentum": {"low": 0.0, "high": 0.95}}  # noqa: RUF012
    limits = {"rate": (0.0, float("inf")), "momentum": (0.0, 1.0)}  # noqa: RUF012

    def __init__(self, env, env_options, arms=3, envs=4, rate=0.1, momentum=0.5, greed=1.0):
        if arms < 2:
            raise ValueError(f"arms = {arms}, but one can only choose between two or more")
        self.hyper = {"rate": rate, "momentum": momentum, "greed": greed}
        self.arms, self.envs = arms, envs
        self.fixed = {"arms": arms, "envs": envs}
        self.spec = {"obs_shape": [2], "obs_dtype": "float32", "action": {"kind": "discrete", "n": arms}}

    def make(self, hyper, seed):
        self.w = np.random.default_rng(seed).normal(size=(2, self.arms)) * 0.1
        self.velocity, self.updates = np.zeros_like(self.w), 0
        self.replay_buffer = np.zeros((16, 2))
        self.optimizer = {"rate": hyper["rate"]}  # as libraries have it: saved and loaded with the moments
        self.set_hyperparameters(hyper)

    def set_hyperparameters(self, hyper):
        self.hyper = dict(hyper)
        self.optimizer["rate"] = hyper["rate"]

    def begin(self, seed):
        self.random = np.random.default_rng(seed)

    def train(self, steps):
        made, returns = 0, []
        while made < steps:
            x = self.random.normal(size=(self.envs, 2))
            self.replay_buffer[self.updates % len(self.replay_buffer)] = x[0]
            old = self.replay_buffer[self.random.integers(len(self.replay_buffer))]
            logits = x @ self.w * self.hyper["greed"]
            p = np.exp(logits - logits.max(1, keepdims=True))
            p /= p.sum(1, keepdims=True)
            arm = np.array([self.random.choice(self.arms, p=row) for row in p])
            reward = self.pay(x, arm) + 0.1 * self.random.normal(size=self.envs)
            taken = np.eye(self.arms)[arm]
            gradient = x.T @ ((taken - p) * (reward - reward.mean())[:, None]) / self.envs + 1e-3 * old[:, None]
            self.velocity = self.hyper["momentum"] * self.velocity + gradient
            self.w = self.w + self.optimizer["rate"] * self.velocity
            self.updates += 1
            made += self.envs
            returns += reward.tolist()
        return made, returns, {"updates": self.updates}

    def pay(self, x, arm):
        return np.cos(arm) * x[:, 0] + np.sin(arm) * x[:, 1]

    def evaluate(self, seeds):
        self.evaluation_steps = len(seeds)
        x = np.stack([np.random.default_rng(seed).normal(size=2) for seed in seeds])
        return self.pay(x, self.best(x)).tolist()

    def act(self, obs):
        return self.best(obs)

    def best(self, obs):
        return (obs @ self.w).argmax(1)

    def get_state(self):
        learned = {"w": self.w, "velocity": self.velocity, "updates": np.array(self.updates)}
        learned["rate"] = np.array(self.optimizer["rate"])
        return {"learned": learned, "replay_buffer": {"contexts": self.replay_buffer.copy()}}

    def set_state(self, state):
        learned, replay_buffer = state
        self.w, self.velocity, self.updates = learned["w"], learned["velocity"], int(learned["updates"])
        self.optimizer["rate"] = float(learned["rate"])
        if replay_buffer:
            self.replay_buffer = replay_buffer["contexts"].copy()

    def close(self):
        pass


class Saving(Sound):
    """Has files of its own."""

    def export(self, path):
        np.savez(f"{path}.npz", **self.get_state()["learned"])
        return [f"{path}.npz"]

    def load(self, path):
        with np.load(path) as learned:
            if "w" not in learned or learned["w"].shape != self.w.shape:
                raise ValueError(f"{path} does not fit {self.arms} arms")
            self.set_state((dict(learned), {}))


class HalfLoading(Saving):
    """Its optimiser begins anew."""

    def load(self, path):
        super().load(path)
        self.velocity = np.zeros_like(self.w)


class Namesake(Sound):
    """Its metrics have names that a run has too."""

    def train(self, steps):
        made, returns, metrics = super().train(steps)
        return made, returns, {**metrics, "fitness": 1e6, "hyper/rate": 1e6}


class Counted(Sound):
    """Its actions are counted from -2."""

    def __init__(self, *arguments, **options):
        super().__init__(*arguments, **options)
        self.spec["action"] |= {"start": -2}

    def act(self, obs):
        return self.best(obs) - 2


class Told(Sound):
    """Says of itself what its config says."""

    def __init__(self, env, env_options, **about):
        super().__init__(env, env_options)
        vars(self).update(about)


# ------------------------------------------------------------------------------ each does one thing wrong


class Rough(Sound):
    """Repeats itself to nearly the same only."""

    def train(self, steps):
        report = super().train(steps)
        self.w = self.w * (1 + 1e-9 * np.random.default_rng().random())
        return report


class Boastful(Sound):
    space = {"speed": {"low": 0.0, "high": 1.0}}  # noqa: RUF012


class Unseeded(Sound):
    def begin(self, seed):
        self.random = np.random.default_rng()


class OneSeed(Sound):
    def begin(self, seed):
        super().begin(0)


class OneBirth(Sound):
    def make(self, hyper, seed):
        super().make(hyper, 0)


class Frozen(Sound):
    """The rate went into the optimiser when it was made."""

    def set_hyperparameters(self, hyper):
        self.hyper = dict(hyper)


class Raising(Sound):
    def set_hyperparameters(self, hyper):
        if hyper["momentum"] != 0.5:
            raise TypeError("'float' object is not callable")
        super().set_hyperparameters(hyper)


class Deaf(Sound):
    def set_hyperparameters(self, hyper):
        super().set_hyperparameters({**hyper, "greed": 1.0})


class Forgetful(Sound):
    def get_state(self):
        state = super().get_state()
        return {**state, "learned": {**state["learned"], "velocity": np.zeros_like(self.w)}}


class Obedient(Sound):
    """Sets only what has changed, though a state has brought another rate along."""

    def make(self, hyper, seed):
        self.hyper = {}
        super().make(hyper, seed)

    def set_hyperparameters(self, hyper):
        if hyper["rate"] != self.hyper.get("rate"):
            self.optimizer["rate"] = hyper["rate"]
        self.hyper = dict(hyper)


class Sharing(Sound):
    common = np.zeros((16, 2))

    def make(self, hyper, seed):
        super().make(hyper, seed)
        self.common[:] = 0
        self.replay_buffer = self.common

    def set_state(self, state):
        super().set_state(state)
        self.common[:] = self.replay_buffer
        self.replay_buffer = self.common


class Located(Sound):
    def begin(self, seed):
        self.random = np.random.default_rng([seed, os.getpid()])


class Curious(Sound):
    """Its statistics move in evaluation."""

    def evaluate(self, seeds):
        self.velocity = self.velocity + 1e-6
        return super().evaluate(seeds)


class Random(Sound):
    def best(self, obs):
        return np.random.default_rng().integers(self.arms, size=len(obs))


class Sentimental(Sound):
    """What it sees is shifted by what it remembers."""

    def best(self, obs):
        return super().best(obs + 10 * self.replay_buffer.sum(0))


class Rounding(Sound):
    def train(self, steps):
        _, returns, metrics = super().train(steps)
        return steps, returns, metrics


class Lazy(Sound):
    def train(self, steps):
        _, returns, metrics = super().train(steps)
        return 0, returns, metrics


class Healthy(Sound):
    def get_state(self):
        state = super().get_state()
        return {**state, "learned": {name: np.nan_to_num(x) for name, x in state["learned"].items()}}


class Threaded(Sound):
    def make(self, hyper, seed):
        super().make(hyper, seed)
        threading.Thread(target=time.sleep, args=(60,), name="left-over", daemon=True).start()


class Parental(Sound):
    def make(self, hyper, seed):
        super().make(hyper, seed)
        self.child = subprocess.Popen(["sleep", "60"])


class Narrow(Sound):
    limits = {"greed": (1.005, 1.01), "momentum": (0.0, 1.0)}  # noqa: RUF012

    def __init__(self, *arguments, **config):
        super().__init__(*arguments, greed=1.01, **config)


# ------------------------------------------------------------------------------------ in bad processes


class Sleeping(Sound):
    def train(self, steps):
        print("falling asleep", flush=True)
        time.sleep(60)


class Dawdling(Sound):
    def __init__(self, *arguments, **config):
        time.sleep(60)


class Crashing(Sound):
    def train(self, steps):
        print("about to crash\nnow", flush=True)
        os._exit(3)


class Failing(Sound):
    """Fails in its first interval."""

    failed = False

    def train(self, steps):
        if not Failing.failed:
            Failing.failed = True
            raise RuntimeError("the simulator\nis gone")
        return super().train(steps)


class Speechless(Failing):
    """Has no state to show after that."""

    def get_state(self):
        raise ValueError("no simulator")


class Later(Sound):
    """Fails after its first interval."""

    def train(self, steps):
        if self.updates:
            raise RuntimeError("the simulator\nis gone")
        return super().train(steps)


class Unhelpful(Sound):
    """Trains, and can neither act nor be written."""

    def act(self, obs):
        raise RuntimeError("no actions today")

    def export(self, path):
        raise RuntimeError("no files today")


class Exploding(Sound):
    def train(self, steps):
        self.w = self.w * np.nan
        raise ValueError("a loss of nan")


class Wordy(Sound):
    """Its state is no plain numbers."""

    def get_state(self):
        return {"learned": {"w": self.w, "name": np.array(["a"])}, "replay_buffer": {}}


class Seeing(Sound):
    """Reports what it sees of its process."""

    def train(self, steps):
        steps, returns, metrics = super().train(steps)
        modules = {name.split(".")[0] for name in sys.modules}
        seen = {"threads": os.environ["OMP_NUM_THREADS"], "path": str(Path(__file__).parent) == sys.path[0]}
        return (
            steps,
            returns,
            {**seen, "shoal": "shoal" in modules, "gpus": os.environ["CUDA_VISIBLE_DEVICES"]},
        )


class Stillborn(Sound):
    """Ends its process when it is only asked what it can do."""

    def __init__(self, env, env_options, **config):
        print("these are my last words", flush=True)
        os._exit(7)


class Mortal(Sound):
    """Ends its process in an interval, some of them after the first."""

    def train(self, steps):
        if self.updates >= self.after:
            print("these are my last words", flush=True)
            os._exit(7)
        return super().train(steps)

    def __init__(self, env, env_options, **config):
        super().__init__(env, env_options, **config)
        self.after = env_options["after"]
