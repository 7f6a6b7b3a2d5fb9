"""What it costs to start workers: seconds from the command to the first generation of the last one.

    python benchmarks/launcher.py [--workers 8] [--peer PYTHON]

--peer: an interpreter that has Shoal and `ray[tune]`. With it workers start as actors of Ray too, and as the trials of Ray
Tune's population-based training, with the same training in each. Each way once with nothing compiled before, and once again.
"""

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from common import table

TUNE = Path(__file__).parent / "baselines" / "ray_tune_workers.py"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workers", type=int, default=8, help="(default: %(default)s)")
    parser.add_argument("--population", type=int, default=4, help="of each worker (default: %(default)s)")
    parser.add_argument("--interval", type=int, default=2048, help="in steps (default: %(default)s)")
    parser.add_argument("--peer", help="an interpreter that has Shoal and ray[tune]")
    options = parser.parse_args()
    fields = ["--env", "CartPole-v1", "--population", str(options.population), "--interval", str(options.interval)]
    shoal = ["-m", "shoal", "train", *fields, "--workers", str(options.workers), "--workspace", "w"]
    ways = {"shoal train --workers": [sys.executable, *shoal]}
    if options.peer is None:
        print("without --peer: neither workers on Ray nor Ray Tune")
    else:
        ways["shoal train --workers --launcher ray"] = [options.peer, *shoal, "--launcher", "ray"]
        numbers = (options.workers, options.population, options.interval)
        ways["Ray Tune's PBT"] = [options.peer, str(TUNE), *map(str, numbers)]
    rows = []
    for name, command in ways.items():
        with tempfile.TemporaryDirectory() as cache:
            times = [seconds(command, options.workers, cache) for _ in ("cold", "warm")]
        rows.append([name, *(f"{x:.1f}" for x in times)])
    table(f"Seconds to the first generation of the last of {options.workers} workers", ["", "cold", "warm"], rows)


def seconds(command: list[str], workers: int, cache: str) -> float:
    """From the start of a command to the first generation of the last of the workers `w/workers/*` that it starts."""
    own = {"XDG_CACHE_HOME": cache, "RAY_USAGE_STATS_ENABLED": "0"}
    own["RAY_OVERRIDE_RESOURCES"] = json.dumps({"CPU": workers})  # or they would take turns on fewer cores
    with tempfile.TemporaryDirectory() as folder, open(Path(folder) / "out", "w+") as out:
        began = time.perf_counter()
        process = subprocess.Popen(command, cwd=folder, env=os.environ | own, stdout=out, stderr=out)
        try:
            while sum(file.stat().st_size > 0 for file in Path(folder).glob("w/workers/*/metrics.jsonl")) < workers:
                if process.poll() is not None:
                    raise SystemExit(f"{command} ended\n{(Path(folder) / 'out').read_text()}")
                time.sleep(0.02)
            return time.perf_counter() - began
        finally:
            for _ in range(2):  # the second signal ends workers at once
                process.send_signal(signal.SIGINT)
                time.sleep(0.5)
            process.wait()


if __name__ == "__main__":
    main()
