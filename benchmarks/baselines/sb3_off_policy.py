"""Stable-Baselines3 and SBX, one process per agent: TD3 or SAC on a gymnasium environment, as many at a time as cores.

What is measured: environment steps per second of all processes together, from a common start until the last is done, after
the steps of random actions and after the first updates, which compile; and CPU time per step. Settings are the library's
own but for what belongs to the comparison: batches of 256, 256-256 networks, the memory's size, one update per step.
--every 1 is what the library does by default, a step and then an update; with --every 50, fifty of each at a time.

    python benchmarks/baselines/sb3_off_policy.py --algorithm sbx-td3 --environment HalfCheetah-v5

Needs stable-baselines3, sbx-rl and the environment's packages. Prints one line of JSON.
"""

import argparse
import json
import multiprocessing
import os
import time
from typing import Any

ALGORITHMS = ("sbx-td3", "sbx-sac", "sb3-td3", "sb3-sac")


def work(number: int, processes: int, options: argparse.Namespace, barrier: Any, cpu: Any) -> None:
    """One agent: start, warm up, wait for the others, train."""
    cores = sorted(os.sched_getaffinity(0))
    threads = max(1, len(cores) // processes)
    if threads == 1:  # JAX makes as many threads as it has cores
        os.sched_setaffinity(0, {cores[number % len(cores)]})
    import numpy as np
    import torch
    from stable_baselines3.common.noise import NormalActionNoise

    torch.set_num_threads(threads)
    library, name = options.algorithm.split("-")
    if library == "sbx":
        import sbx as made_by
    else:
        import stable_baselines3 as made_by  # type: ignore[no-redef]
    import gymnasium

    environment = gymnasium.make(options.environment)
    actions = environment.action_space.shape[0]
    noise = NormalActionNoise(np.zeros(actions), np.full(actions, 0.1)) if name == "td3" else None
    model = getattr(made_by, name.upper())(
        "MlpPolicy",
        environment,
        batch_size=256,
        learning_rate=options.rate,
        learning_starts=options.learning_starts,
        buffer_size=100_000,
        train_freq=options.every,
        gradient_steps=options.every,
        action_noise=noise,
        policy_kwargs={"net_arch": [256, 256]},
        seed=number,
        device="cpu",
    )
    model.learn(options.learning_starts + 6 * max(options.every, 10))
    barrier.wait()
    spent = time.process_time()
    model.learn(options.steps, reset_num_timesteps=False)
    with cpu.get_lock():
        cpu.value += time.process_time() - spent
    barrier.wait()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("--algorithm", choices=ALGORITHMS, required=True)
    add("--environment", default="HalfCheetah-v5", metavar="ID", help="(default: %(default)s)")
    add("--processes", type=int, default=len(os.sched_getaffinity(0)), help="at a time (default: %(default)s)")
    add("--steps", type=int, default=3_000, help="of each that are timed (default: %(default)s)")
    add("--learning-starts", type=int, default=1_000, metavar="STEPS", help="of random actions (default: %(default)s)")
    add("--every", type=int, default=1, metavar="STEPS", help="between updates, as many at once (default: %(default)s)")
    add("--rate", type=float, default=1e-3, help="of Adam (default: %(default)s)")
    options = parser.parse_args()
    context = multiprocessing.get_context("spawn")
    barrier = context.Barrier(options.processes + 1, timeout=600)
    cpu = context.Value("d", 0.0)
    arguments = [(i, options.processes, options, barrier, cpu) for i in range(options.processes)]
    processes = [context.Process(target=work, args=a, daemon=True) for a in arguments]
    for process in processes:
        process.start()
    barrier.wait()
    began = time.perf_counter()
    barrier.wait()
    seconds = time.perf_counter() - began
    for process in processes:
        process.join()
    steps = options.processes * options.steps
    figures = {"steps_per_second": steps / seconds, "cpu_ms_per_step": cpu.value / steps * 1e3}
    print(json.dumps({**figures, "steps": steps, "seconds": seconds}))


if __name__ == "__main__":
    main()
