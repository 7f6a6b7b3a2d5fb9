"""Workers as trials of Ray Tune's population-based training: `python ray_tune_workers.py WORKERS MEMBERS STEPS`.

Each trial is a run of Shoal in `w/workers/NAME`, which reports its best fitness after every generation.
"""

import os
import sys
from pathlib import Path

os.environ |= {"RAY_AIR_NEW_OUTPUT": "0", "TUNE_DISABLE_AUTO_CALLBACK_LOGGERS": "1"}

from ray import tune
from ray.tune.schedulers import PopulationBasedTraining

from shoal import Callback, Experiment, train


class Report(Callback):
    def on_generation_end(self, event) -> None:
        tune.report({"fitness": float(event.stats.fitness.max())})


def trial(config: dict) -> None:
    name = tune.get_context().get_trial_id()
    given = {"population": config["members"], "interval": config["steps"], "seed": config["seed"]}
    train(Experiment(env="CartPole-v1", method="pbt", run_dir=f"{config['folder']}/{name}", **given), [Report()])


def main() -> None:
    workers, members, steps = map(int, sys.argv[1:])
    folder = Path("w/workers").absolute()
    folder.mkdir(parents=True)
    scheduler = PopulationBasedTraining(perturbation_interval=1, hyperparam_mutations={"seed": tune.randint(0, 1000)})
    space = {"members": members, "steps": steps, "folder": str(folder), "seed": tune.randint(0, 1000)}
    tune.Tuner(
        tune.with_resources(trial, {"cpu": 1}),
        param_space=space,
        tune_config=tune.TuneConfig(metric="fitness", mode="max", num_samples=workers, scheduler=scheduler),
        run_config=tune.RunConfig(storage_path=str(folder.parent / "tune"), verbose=0),
    ).fit()


if __name__ == "__main__":
    main()
