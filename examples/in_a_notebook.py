"""The cells of a notebook: train until the champion is good enough, look at what happened, continue."""

from shoal import Callback, Experiment, Generation, load_run, resume, train

GENERATIONS, INTERVAL = 10, 8192


class Enough(Callback):
    """Ends the run when its champion is good enough."""

    def on_generation_end(self, event: Generation) -> bool:
        return event.champion.fitness < 450


def main() -> None:
    experiment = Experiment(
        env="CartPole-v1",
        generations=GENERATIONS,
        interval=INTERVAL,
        space={"learning_rate": [1e-5, 1e-1, "log"], "discount": [0.8, 0.999, "one_minus_log"]},
    )
    result = train(experiment, [Enough()], progress=True)
    print(f"{result.summary['status']} after {result.summary['generations']} generations")

    run = load_run(result.run_dir)
    run.plot().savefig("run.png")  # in a notebook: run.plot()
    print(run.metrics["fitness/median"])

    result = resume(result.run_dir, generations=result.summary["generations"] + 2)
    print(f"and after two more: {result.summary['champion']['evaluation']['mean']:.0f}")


if __name__ == "__main__":
    main()
