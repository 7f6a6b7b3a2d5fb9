"""Ray runs the workers of a shared directory: where one dies, Ray starts it again, and it continues from its checkpoint."""

import os

import ray

from shoal import Experiment, train

SETTINGS = {
    "env": "CartPole-v1",
    "population": 4,
    "generations": 8,
    "interval": 4096,
}
WORKSPACE = os.path.abspath("runs/ray")  # with several machines, a directory that all of them see


@ray.remote(num_cpus=1, max_restarts=-1, max_task_retries=-1)  # started again however often it dies
class Worker:
    def train(self, name: str, settings: dict) -> float:
        """Start, or continue, the worker of this name. Returns what its champion reaches."""
        exchange = {"name": "directory", "workspace": WORKSPACE, "worker": name}
        return train(Experiment(exchange=exchange, **settings)).summary["champion"]["evaluation"]["mean"]


def main() -> None:
    ray.init()
    workers = {name: Worker.remote() for name in ("w0", "w1")}
    returns = ray.get([worker.train.remote(name, SETTINGS) for name, worker in workers.items()])
    print(f"the champions of {len(returns)} workers reach at least {min(returns):.0f} of 500")


if __name__ == "__main__":
    main()
