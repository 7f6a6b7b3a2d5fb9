"""Ray Tune's own population-based training over members that train nothing. Prints its seconds per round.

python ray_tune.py MEMBERS ROUNDS SYNCHRONOUS
"""

import json
import os
import sys
import tempfile
import time

os.environ |= {"RAY_USAGE_STATS_ENABLED": "0", "RAY_AIR_NEW_OUTPUT": "0", "TUNE_DISABLE_AUTO_CALLBACK_LOGGERS": "1"}

import ray
from ray import tune
from ray.tune.schedulers import PopulationBasedTraining


class Nothing(tune.Trainable):
    """A member whose fitness is its number of rounds; it copies and takes new values without a restart."""

    def setup(self, config):
        self.rounds, self.times = 0, []

    def step(self):
        self.rounds += 1
        self.times.append(time.time())
        return {"fitness": self.rounds + self.config["rate"], "first": self.times[0], "last": self.times[-1]}

    def save_checkpoint(self, folder):
        with open(os.path.join(folder, "state.json"), "w") as file:
            json.dump(self.rounds, file)

    def load_checkpoint(self, folder):
        with open(os.path.join(folder, "state.json")) as file:
            self.rounds = json.load(file)

    def reset_config(self, config):
        self.config = config
        return True


def main() -> None:
    """Run the rounds; print the mean seconds between the first one's end and the last one's."""
    members, rounds, synchronous = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3] == "True"
    with tempfile.TemporaryDirectory() as folder:
        ray.init(num_cpus=members, include_dashboard=False, log_to_driver=False, logging_level="ERROR")
        scheduler = PopulationBasedTraining(
            perturbation_interval=1, hyperparam_mutations={"rate": tune.uniform(0, 1)}, synch=synchronous
        )
        results = tune.Tuner(
            Nothing,
            param_space={"rate": tune.uniform(0, 1)},
            tune_config=tune.TuneConfig(
                metric="fitness", mode="max", num_samples=members, scheduler=scheduler, reuse_actors=True
            ),
            run_config=tune.RunConfig(stop={"training_iteration": rounds}, storage_path=folder, verbose=0),
        ).fit()
        results = [result.metrics for result in results]
        ray.shutdown()
    print((max(x["last"] for x in results) - min(x["first"] for x in results)) / (rounds - 1))


if __name__ == "__main__":
    main()
