"""What one GPU does with Shoal: all that the docs call unmeasured, in one command and within 20 minutes.

Each part is a process of its own, the cheapest first, so that one which fails, or takes long, leaves the others. After each,
all that is known so far lies in OUT.json and, as a table, in OUT.md. A part that cannot run says why: brax for the robot, an
interpreter with PyTorch (`--torch`) for the peer of TD3. It needs nothing else but Shoal's core dependencies.

    python benchmarks/gpu.py [--out gpu] [--torch PYTHON] [--only PART ...] [--small]
"""

import argparse
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

from common import SHOAL, last_json, most_memory, timed_generations

HERE = Path(__file__).parent
REPLAY = {"buffer_size": 4096, "learning_starts": 256}
# Runs that learn something within a minute, and the same at their smallest size.
SMOKE: dict[str, dict[str, Any]] = {
    "ppo": {"env": "gymnax:CartPole-v1", "interval": 16_384},
    "dqn": {"env": "gymnax:CartPole-v1", "agent": "dqn", "interval": 4_096, "config": REPLAY},
    "td3": {"env": "gymnax:Pendulum-v1", "agent": "td3", "interval": 2_048, "config": REPLAY},
    "sac": {"env": "gymnax:Pendulum-v1", "agent": "sac", "interval": 2_048, "config": REPLAY},
    "es": {"env": "gymnax:CartPole-v1", "method": "es", "population": 64, "generations": 30},
    "cem_rl": {"env": "gymnax:Pendulum-v1", "method": "cem_rl", "agent": "td3", "generations": 8, "config": REPLAY},
}
# Tasks on which members are added until a generation takes longer.
FREE: dict[str, dict[str, Any]] = {
    "CartPole, ppo": {"env": "gymnax:CartPole-v1"},
    "Breakout, ppo": {"env": "gymnax:Breakout-MinAtar"},
    "Pendulum, td3": {"env": "gymnax:Pendulum-v1", "agent": "td3", "config": REPLAY},
}
Row = tuple[str, str]


def device(small: bool) -> Iterator[Row]:
    """Versions, and what there is to compute on."""
    import jax
    import numpy as np

    import shoal

    found = jax.devices()[0]
    memory = (found.memory_stats() or {}).get("bytes_limit")
    yield "device", f"{found.device_kind}, {len(jax.devices())} of them, platform {found.platform}"
    yield "memory of one", "not told" if memory is None else f"{memory / 2**30:.1f} GiB"
    python = ".".join(map(str, sys.version_info[:3]))
    yield "versions", f"Shoal {shoal.__version__}, JAX {jax.__version__}, NumPy {np.__version__}, Python {python}"


def smoke(small: bool) -> Iterator[Row]:
    """Each kind of learner: whether fitness rises, what is compiled late, whether runs are alike, one of them resumed."""
    for name in ("ppo",) if small else SMOKE:
        with _started("--learner", name, *SMALL[:small]) as process:
            yield name, _answer(process)


def learner(name: str, small: bool) -> str:
    """Train it twice, and a third time with a stop and a resumption in another process."""
    import jax

    from shoal import Callback, Experiment, train
    from shoal.core.interrupts import Interrupted

    compiled: list[str] = []
    jax.monitoring.register_event_duration_secs_listener(
        lambda event, *_, **__: compiled.append(event) if event.endswith("backend_compile_duration") else None
    )

    class Counting(Callback):
        """How much had been compiled after each generation."""

        def __init__(self) -> None:
            self.after: list[int] = []

        def on_generation_end(self, event: Any) -> None:
            self.after.append(len(compiled))

    class Stopping(Callback):
        """A signal in the first generation."""

        def on_generation_end(self, event: Any) -> None:
            if event.generation == 0:
                os.kill(os.getpid(), signal.SIGINT)

    settings = {"method": "pbt", "population": 8, "generations": 6} | SMOKE[name]
    settings |= {"population": 4, "generations": 3, "final_episodes": 4} if small else {}
    with tempfile.TemporaryDirectory() as folder:
        whole, again, stopped = runs = [Path(folder) / which for which in ("whole", "again", "stopped")]
        counting = Counting()
        train(Experiment(**settings, run_dir=str(whole)), callbacks=[counting])
        train(Experiment(**settings, run_dir=str(again)))
        with suppress(Interrupted):
            train(Experiment(**settings, run_dir=str(stopped)), callbacks=[Stopping()])
        subprocess.run([*SHOAL, "resume", str(stopped), "--quiet"], check=True, stdout=subprocess.DEVNULL)
        lineages = [(run / "lineage.jsonl").read_bytes() for run in runs]
        best = [json.loads(line)["fitness"]["best"] for line in (whole / "metrics.jsonl").open()]
    said = ["yes" if lineage == lineages[0] else "NO" for lineage in lineages]
    return (
        f"{best[0]:.4g} to {max(best):.4g}; compiled after the second generation: {counting.after[-1] - counting.after[1]}; "
        f"two runs alike: {said[1]}; stopped and resumed alike: {said[2]}"
    )


def ppo(small: bool) -> Iterator[Row]:
    """PPO's steps per second on CartPole over the size of the population, evaluation and evolution included or not."""
    sizes = (2,) if small else (1, 8, 64, 512, 4096)
    with ExitStack() as stack:  # all are compiled side by side, and then timed one after another
        cells = [stack.enter_context(_started("--members", str(n), *SMALL[:small])) for n in sizes]
        for cell in cells:
            next((line for line in cell.stdout or () if line.strip() == COMPILED), None)
        for n, cell in zip(sizes, cells, strict=True):
            yield f"{n} members", _answer(cell)


def members(n: int, small: bool) -> str:
    """The speed of so many, timed when it is their turn."""

    def wait() -> None:
        print(COMPILED, flush=True)
        sys.stdin.readline()

    plan, shard = _made({"env": "gymnax:CartPole-v1", "population": n, "interval": 512 if small else 8_192})
    train, whole = zip(*timed_generations(plan, shard, 0 if small else 5, wait), strict=True)
    steps = plan.steps * n
    both = f"{steps / statistics.median(train):,.0f} steps/s, {steps / statistics.median(whole):,.0f} with evaluation"
    return f"{both}; compiling {shard.compile_seconds:.1f} s"


def free(small: bool) -> Iterator[Row]:
    """The time of a generation against the number of members, until it exceeds 1.2 times that of one, on three tasks."""
    from shoal.experiment.experiment import Experiment
    from shoal.members.devices import prepare
    from shoal.run.auto_population import measure

    prepare()
    for name in ("CartPole, ppo",) if small else FREE:
        found = measure(Experiment(**FREE[name], method="pbt", interval=512 if small else 16_384), limit=60)
        yield name, f"members in the time of one: {found.members:,}{f'; {found.stopped}' * bool(found.stopped)}"
        for n, seconds in found.seconds.items():
            yield f"{name}, {n:,}", f"{seconds:.3f} s a generation, {found.times(n):.2f} times one"


def robot(small: bool) -> Iterator[Row]:
    """PPO on a robot of brax, beside brax's own PPO with the same settings."""
    env, sizes = ("brax:inverted_pendulum", ["1"]) if small else ("brax:ant", ["1", "8", "64"])
    options = ["--env", env, "--populations", *sizes, "--peer", sys.executable]
    options += ["--seconds", "0" if small else "10"]
    sizes = {"num_envs": 4, "unroll": 4, "num_minibatches": 1, "epochs": 1, "updates": 1, "episodes": 1}
    for name, size in (sizes if small else {"num_envs": 2048}).items():
        options += [f"--{name}", str(size)]
    yield from _script("robots.py", *options)


def td3(small: bool, torch: str | None = None) -> Iterator[Row]:
    """An update of TD3 over the size of the population, beside PyTorch; N agents in turn take N times as long as one."""
    options = ["--agents", "td3", "--steps", "1" if small else "50", "--seconds", "0" if small else "2"]
    options += ["--calls", "5"] if small else []
    options += ["--peer", torch] if torch else []
    yield from _script("update_step.py", "--methods", "sequential", "--populations", "1", *options)
    sizes = ["1", "2"] if small else ["1", "16", "80"]
    yield from _script("update_step.py", "--methods", "vectorised", "--populations", *sizes, *options)


def pixels(small: bool) -> Iterator[Row]:
    """PPO with the Nature CNN on images of 84 x 84 x 4, in float32 and in bfloat16: microseconds per image."""
    cell = {"network": "nature_cnn", "shape": (84, 84, 4), "choices": 15}
    cell |= (
        {"num_envs": 2, "rollout_length": 8, "seconds": 0}
        if small
        else {"num_envs": 64, "rollout_length": 32, "seconds": 5}
    )
    for n in (1,) if small else (1, 8):
        for precision in ("bfloat16",) if small else ("float32", "bfloat16"):
            cell_text = json.dumps(cell | {"population": n, "precision": precision})
            x = last_json([sys.executable, str(HERE / "baselines" / "pixels_shoal.py"), "--cell", cell_text])
            yield (
                f"{n} members, {precision}",
                f"acting {x['act'] * 1e6:,.2f}, an epoch of updates {x['update'] * 1e6:,.2f}",
            )


def study(small: bool) -> Iterator[Row]:
    """Thirty seeds of one shape, one after another in one process: what each takes."""
    seeds = 2 if small else 30
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "seeds.yaml"
        base = {"env": "gymnax:CartPole-v1", "population": 8, "generations": 3, "interval": 512 if small else 16_384}
        file.write_text(json.dumps({"base": base, "arms": {"pbt": {"method": "pbt"}}, "seeds": seeds}))
        began = time.perf_counter()
        command = [sys.executable, "-m", "shoal", "study", str(file), "--workspace", str(Path(folder) / "study")]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        took = time.perf_counter() - began
        results = [json.loads(path.read_text()) for path in Path(folder).rglob("result.json")]
    first = max(x["seconds"] for x in results)
    yield (
        f"{seeds} seeds",
        f"{took:.0f} s in all; the longest run {first:.1f} s, the shortest {min(x['seconds'] for x in results):.1f}",
    )


def memory(small: bool) -> Iterator[Row]:
    """The most memory that a population has in use, beside what Shoal reckons its state at."""
    for n in (2,) if small else (8, 512):
        plan, shard = _made({"env": "gymnax:CartPole-v1", "population": n, "interval": 512})
        reckoned = plan.kind.memory(n)[0]
        timed_generations(plan, shard, 0)
        yield f"{n} members", f"{most_memory() / 1e6:,.0f} MB in use, their state {reckoned / 1e6:,.1f} MB"


def largest(small: bool) -> Iterator[Row]:
    """The largest population of PPO that trains: it doubles until there is no more memory."""
    fits, (n, most) = 0, (2, 2) if small else (2**15, 2**20)
    why = f"no more was tried than {most:,}"
    while n <= most:
        try:
            plan, shard = _made({"env": "gymnax:CartPole-v1", "population": n, "interval": 512})
            shard.begin(plan.evolver.init((0, 0, 0), shard.uid)[1])
            shard.train(0, plan.iterations, plan.iterations)
            shard.evaluate(0)
            shard.close()
        except Exception as error:  # memory ends in many ways
            why = " ".join(str(error).split())[:120]
            break
        fits, n = n, 2 * n
    yield "members", f"{fits:,} ({why})"


PARTS: dict[str, Callable[..., Iterator[Row]]] = {
    part.__name__: part for part in (device, smoke, free, ppo, memory, pixels, study, td3, robot, largest)
}
LIMIT = 300  # seconds of a part
SMALL = ("--small",)
FAILED = "it failed: "
COMPILED = "compiled"


def _made(settings: dict[str, Any]) -> tuple[Any, Any]:
    """The plan of a run, and its shard."""
    from shoal.experiment.experiment import Experiment
    from shoal.experiment.plan import make_plan
    from shoal.members.devices import prepare

    prepare()
    plan = make_plan(Experiment(**settings, method="independent" if settings["population"] == 1 else "pbt"))
    return plan, plan.kind.shard(plan.members(), plan.setup)


@contextmanager
def _started(*options: str) -> Iterator[subprocess.Popen[str]]:
    """This script with these options, in a process that takes no memory that it does not use."""
    environment = os.environ | {"XLA_PYTHON_CLIENT_PREALLOCATE": "false"}
    command, pipe = [sys.executable, __file__, *options], subprocess.PIPE
    with subprocess.Popen(
        command, stdin=pipe, stdout=pipe, stderr=subprocess.STDOUT, text=True, env=environment
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def _answer(process: subprocess.Popen[str]) -> str:
    """The last line that it says; it is its turn now, if it waits for that."""
    said = process.communicate("\n")[0].strip().splitlines() or [f"exit code {process.returncode}"]
    return f"{FAILED}{said[-1]}" if process.returncode else said[-1]


def _script(name: str, *options: str) -> Iterator[Row]:
    """The table that another benchmark prints."""
    with tempfile.TemporaryDirectory() as folder:  # for its files
        command = [sys.executable, str(HERE / name), *options]
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    if done.stdout.strip():
        yield "table", done.stdout.strip()
    if done.returncode:
        raise RuntimeError((done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1])


def _markdown(found: dict[str, dict[str, Any]]) -> str:
    """All that is known so far."""
    text = ["# Shoal on one GPU", ""]
    for name, part in found.items():
        text += [f"## {name}", "", f"{' '.join((PARTS[name].__doc__ or '').split())} ({part['seconds']:.0f} s)", ""]
        if "failed" in part:
            text += [f"**It failed**: {part['failed']}", ""]
        tables = [value for label, value in part["rows"] if label == "table"]
        text += [line for table in tables for line in ("```text", table, "```", "")]
        if rows := [row for row in part["rows"] if row[0] != "table"]:
            text += ["| | |", "|---|---|", *(f"| {label} | {value} |" for label, value in rows), ""]
    return "\n".join(text)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", default="gpu", help="results go to OUT.json and OUT.md (default: %(default)s)")
    parser.add_argument("--torch", metavar="PYTHON", help="interpreter with PyTorch, for the peer of TD3")
    parser.add_argument("--only", nargs="+", choices=PARTS, default=list(PARTS), help="these parts alone")
    parser.add_argument("--small", action="store_true", help="every part at its smallest size, to try the script")
    parser.add_argument("--part", choices=PARTS, help=argparse.SUPPRESS)
    parser.add_argument("--learner", choices=SMOKE, help=argparse.SUPPRESS)
    parser.add_argument("--members", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.learner:
        print(learner(options.learner, options.small))
        return
    if options.members:
        print(members(options.members, options.small))
        return
    if options.part:
        more = {"torch": options.torch} if options.part == "td3" else {}
        for row in PARTS[options.part](options.small, **more):
            print(json.dumps(row), flush=True)
        return
    found: dict[str, dict[str, Any]] = {}
    for name in options.only:
        found[name] = _measured(name, [*SMALL[: options.small], *(["--torch", options.torch] if options.torch else [])])
        Path(f"{options.out}.json").write_text(json.dumps(found, indent=1))
        Path(f"{options.out}.md").write_text(_markdown(found))
        print(_markdown({name: found[name]}).partition("\n")[2].strip(), flush=True)
    failed = [name for name, part in found.items() if "failed" in part or FAILED in str(part["rows"])]
    if failed:
        raise SystemExit(f"failed: {', '.join(failed)}")


def _measured(name: str, options: list[str]) -> dict[str, Any]:
    """One part in a process of its own: its rows, its seconds, and why it failed if it did."""
    began, part = time.perf_counter(), {}
    with tempfile.TemporaryFile("w+") as said, tempfile.TemporaryFile("w+") as errors:
        command = [sys.executable, __file__, "--part", name, *options]
        with subprocess.Popen(command, stdout=said, stderr=errors, start_new_session=True) as process:
            try:
                code = process.wait(LIMIT)
            except subprocess.TimeoutExpired:
                code, part["failed"] = 0, f"it took more than {LIMIT} s"
            finally:  # with what it started, which would disturb the next part
                with suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
        if code:
            errors.seek(0)
            part["failed"] = (errors.read().strip().splitlines() or [f"exit code {code}"])[-1]
        said.seek(0)
        rows = [json.loads(line) for line in said if line.startswith("[")]
    return part | {"rows": rows, "seconds": time.perf_counter() - began}


if __name__ == "__main__":
    main()
