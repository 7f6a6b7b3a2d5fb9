"""A typical single-file PPO in PyTorch; its last part makes it a member of a population.

$ python own_trainer.py                                                    # one agent, without Shoal
$ shoal train --agent own_trainer:OwnPpo --env CartPole-v1 --population 4  # a population of four
"""

import gymnasium
import numpy as np
import torch
from torch import nn
from torch.distributions import Categorical

STEPS = 50_000
HYPER = {"learning_rate": 1e-3, "gamma": 0.99, "gae_lambda": 0.95, "clip_range": 0.2, "entropy_weight": 0.01}
VALUE_WEIGHT, MAX_GRAD_NORM = 0.5, 0.5


def layer(inputs, outputs, gain=2**0.5):
    made = nn.Linear(inputs, outputs)
    nn.init.orthogonal_(made.weight, gain)
    nn.init.zeros_(made.bias)
    return made


class Agent(nn.Module):
    def __init__(self, inputs, actions, hidden):
        super().__init__()
        self.actor, self.critic = (
            nn.Sequential(
                layer(inputs, hidden), nn.Tanh(), layer(hidden, hidden), nn.Tanh(), layer(hidden, outputs, gain)
            )
            for outputs, gain in ((actions, 0.01), (1, 1.0))
        )

    def forward(self, obs):
        """Action logits [B, A] and values [B] for observations [B, ...]."""
        x = torch.tensor(obs, dtype=torch.float32).flatten(1)
        return self.actor(x), self.critic(x)[:, 0]


class Ppo:
    """One agent with its environments; Schulman et al., arXiv 1707.06347."""

    def __init__(self, envs, hyper, n_steps, epochs, minibatches, hidden):
        self.envs, self.hyper, self.n_steps, self.epochs, self.minibatches = envs, hyper, n_steps, epochs, minibatches
        space = envs[0].observation_space.shape
        self.agent = Agent(int(np.prod(space)), int(envs[0].action_space.n), hidden)
        self.optimizer = torch.optim.Adam(self.agent.parameters(), lr=hyper["learning_rate"], eps=1e-5)

    def reset(self, seed):
        """Begin new episodes."""
        self.obs = np.stack([env.reset(seed=seed + i)[0] for i, env in enumerate(self.envs)])
        self.running = np.zeros(len(self.envs))  # returns so far of the episodes under way

    @torch.no_grad()
    def rollout(self):
        """`n_steps` steps in every environment: a batch for `update`, and the returns of the episodes that ended."""
        steps, ended = [], []
        for _ in range(self.n_steps):
            obs, reward, done = self.obs.copy(), np.zeros(len(self.envs)), np.zeros(len(self.envs))
            logits, value = self.agent(obs)
            policy = Categorical(logits=logits)
            action = policy.sample()
            for i, env in enumerate(self.envs):
                after, reward[i], terminated, truncated, _ = env.step(action[i].item() + env.action_space.start)
                self.running[i] += reward[i]
                if truncated and not terminated:  # a time limit: bootstrap the value
                    reward[i] += self.hyper["gamma"] * self.agent(after[None])[1].item()
                if terminated or truncated:
                    done[i] = 1
                    ended.append(float(self.running[i]))
                    self.running[i], (after, _) = 0, env.reset()
                self.obs[i] = after
            steps.append((obs, action, policy.log_prob(action), value, reward, done))
        obs, action, log_prob, value, reward, done = (np.stack(x) for x in zip(*steps, strict=True))
        advantage = self.advantages(value, reward, done, self.agent(self.obs)[1].numpy())
        batch = obs, action, log_prob, advantage, advantage + value
        return [x.reshape(-1, *x.shape[2:]) for x in batch], ended

    def advantages(self, value, reward, done, value_after):
        """Generalised advantage estimation; all [T, B], the last one [B]."""
        advantage, following = np.zeros_like(value), 0.0
        for t in reversed(range(len(value))):
            going_on = self.hyper["gamma"] * (1 - done[t])
            error = reward[t] + going_on * value_after - value[t]
            advantage[t] = following = error + going_on * self.hyper["gae_lambda"] * following
            value_after = value[t]
        return advantage

    def update(self, batch):
        """Some epochs over the batch."""
        for _ in range(self.epochs):
            for rows in torch.randperm(len(batch[0])).chunk(self.minibatches):
                obs, (action, old, advantage, target) = batch[0][rows], (torch.from_numpy(x)[rows] for x in batch[1:])
                logits, value = self.agent(obs)
                policy = Categorical(logits=logits)
                ratio = (policy.log_prob(action) - old).exp()
                advantage = (advantage - advantage.mean()) / (advantage.std() + 1e-8)
                clipped = ratio.clamp(1 - self.hyper["clip_range"], 1 + self.hyper["clip_range"])
                policy_loss = -torch.min(advantage * ratio, advantage * clipped).mean()
                value_loss, entropy = (value - target).square().mean() / 2, policy.entropy().mean()
                loss = policy_loss + VALUE_WEIGHT * value_loss - self.hyper["entropy_weight"] * entropy
                self.optimizer.zero_grad()
                loss.backward()
                nn.utils.clip_grad_norm_(self.agent.parameters(), MAX_GRAD_NORM)
                self.optimizer.step()
        return {"policy_loss": policy_loss.item(), "value_loss": value_loss.item(), "entropy": entropy.item()}


def main():
    torch.manual_seed(0)
    ppo = Ppo([gymnasium.make("CartPole-v1") for _ in range(4)], HYPER, 128, 4, 4, 64)
    ppo.reset(0)
    returns = []
    for _ in range(STEPS // (128 * 4)):
        batch, ended = ppo.rollout()
        ppo.update(batch)
        returns += ended
    print(f"mean return of the last 20 episodes: {np.mean(returns[-20:]):.0f}")


# ------------------------------------- The external trainer. Nothing above depends on it, and nothing imports Shoal.


class OwnPpo:
    """See `Trainer` in shoal/trainers/trainer.py. The arguments after `env_options` are the experiment's `config`."""

    hyper = HYPER
    space = {  # noqa: RUF012 (never changed)
        "learning_rate": {"low": 1e-5, "high": 1e-2, "scale": "log"},
        "gamma": {"low": 0.9, "high": 0.999, "scale": "one_minus_log"},
        "entropy_weight": {"low": 0.0, "high": 0.03},
    }
    limits = {"gamma": (0, 1), "gae_lambda": (0, 1), "clip_range": (0, 10)}  # noqa: RUF012

    def __init__(self, env, env_options, n_envs=4, n_steps=128, epochs=4, minibatches=4, hidden=64):
        self.make_env = lambda: gymnasium.make(env.removeprefix("gym:"), **env_options)
        self.n_envs, self.structure = n_envs, (n_steps, epochs, minibatches, hidden)
        self.test = self.make_env()  # separate, so that an evaluation changes nothing
        box, action = self.test.observation_space, self.test.action_space
        if not isinstance(action, gymnasium.spaces.Discrete):
            raise ValueError(f"this PPO needs one choice out of n as action, not {action}")
        described = {"kind": "discrete", "n": int(action.n), "start": int(action.start)}
        self.spec = {"obs_shape": list(box.shape), "obs_dtype": str(box.dtype), "action": described}

    def make(self, hyper, seed):
        torch.manual_seed(seed)
        self.ppo = Ppo([self.make_env() for _ in range(self.n_envs)], hyper, *self.structure)

    def begin(self, seed):  # training draws from torch and from the environments
        torch.manual_seed(seed)
        self.ppo.reset(seed)

    def train(self, steps):
        made, returns, metrics = 0, [], {}
        while made < steps:
            batch, ended = self.ppo.rollout()
            metrics = self.ppo.update(batch)
            made, returns = made + len(batch[0]), returns + ended
        return made, returns, metrics

    def evaluate(self, seeds):
        returns = np.zeros(len(seeds))
        for i, seed in enumerate(seeds):
            (obs, _), done = self.test.reset(seed=seed), False
            while not done:
                obs, reward, terminated, truncated, _ = self.test.step(self.act(obs[None])[0])
                returns[i], done = returns[i] + reward, terminated or truncated
        return returns

    @torch.no_grad()
    def act(self, obs):
        return self.ppo.agent(obs)[0].argmax(1).numpy() + self.test.action_space.start

    def get_state(self):
        learned = dict(self.ppo.agent.state_dict())
        for i, moments in self.ppo.optimizer.state_dict()["state"].items():
            learned |= {f"adam.{i}.{name}": x for name, x in moments.items()}
        # Copies, because training changes the arrays in place. PPO has no replay buffer.
        return {name: x.numpy().copy() for name, x in learned.items()}, {}

    def set_state(self, state):
        learned = {name: torch.tensor(x) for name, x in state[0].items()}
        groups = self.ppo.optimizer.state_dict()["param_groups"]  # as they are: the learning rate is not copied
        parts = ("step", "exp_avg", "exp_avg_sq")
        moments = {i: {part: learned.pop(f"adam.{i}.{part}") for part in parts} for i in groups[0]["params"]}
        self.ppo.optimizer.load_state_dict({"state": moments, "param_groups": groups})
        self.ppo.agent.load_state_dict(learned)

    def set_hyperparameters(self, hyper):
        self.ppo.hyper = hyper
        self.ppo.optimizer.param_groups[0]["lr"] = hyper["learning_rate"]

    def close(self):
        for env in (*self.ppo.envs, self.test):
            env.close()


if __name__ == "__main__":
    main()
