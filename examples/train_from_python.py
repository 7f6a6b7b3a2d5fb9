"""Train a population from Python, read the result, and let the champion act in a Gymnasium loop."""

import gymnasium

from shoal import Experiment, train

GENERATIONS, INTERVAL = 6, 8192


def main() -> None:
    # The fields are those of an experiment file; `space` is the search space: the tuned hyperparameters and their ranges.
    experiment = Experiment(
        env="CartPole-v1",
        agent="ppo",
        population=8,
        generations=GENERATIONS,
        interval=INTERVAL,
        space={"learning_rate": [1e-5, 1e-1, "log"], "discount": [0.8, 0.999, "one_minus_log"]},
    )
    result = train(experiment)  # with progress=True you can watch it

    champion = result.champion
    test = result.evaluation
    print(
        f"{result.run_dir}: {test['mean']:.0f} ± {test['standard_error']:.1f} on {test['episodes']} held-out episodes"
    )
    print(f"member {champion.uid} last trained with a learning rate of {champion.hyper['learning_rate']:.2g}")

    env = gymnasium.make("CartPole-v1")
    obs, _ = env.reset(seed=0)
    state, total, done = None, 0.0, False  # only a recurrent policy has a state
    while not done:
        action, state = champion.predict(obs, state)
        obs, reward, terminated, truncated, _ = env.step(action)
        total, done = total + float(reward), terminated or truncated
    print(f"in gymnasium it balances the pole for {total:.0f} steps")


if __name__ == "__main__":
    main()
