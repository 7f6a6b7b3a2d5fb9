"""How long a user waits: `shoal --help`, the first generation, and what happens between generations.

python benchmarks/startup.py
"""

import argparse
import statistics
import subprocess
import tempfile
import time
from itertools import pairwise
from pathlib import Path

from common import SHOAL, shoal_until, table


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=3, help="of each (default: %(default)s)")
    parser.add_argument("--generations", type=int, default=30, help="of the last run (default: %(default)s)")
    parser.add_argument("--interval", type=int, default=8192, help="of all runs, in steps (default: %(default)s)")
    options = parser.parse_args()
    rows = []
    helps = []
    for _ in range(options.repeats):
        began = time.perf_counter()
        subprocess.run([*SHOAL, "--help"], check=True, stdout=subprocess.DEVNULL)
        helps.append(time.perf_counter() - began)
    rows.append(["shoal --help", f"{statistics.median(helps):.2f} s", "0.3 s"])
    arguments = ["--population", "8", "--interval", str(options.interval)]
    times = []
    for _ in range(options.repeats):
        with tempfile.TemporaryDirectory() as cache:
            times.append([shoal_until(arguments, len, Path(cache))[0] for _ in ("cold", "warm")])
    for name, seconds, allowed in zip(("cold", "warm"), zip(*times, strict=True), ("10 s", "3.5 s"), strict=True):
        rows.append([f"to the first generation, {name}", f"{statistics.median(seconds):.1f} s", allowed])
    count = options.generations
    _, generations = shoal_until([*arguments, "--generations", str(count)], lambda rows: len(rows) == count)
    later = [g["timing"] for g in generations[5:]]
    spans = [b["seconds"] - a["seconds"] for a, b in pairwise(later)]
    between = [span - t["train"] - t["evaluate"] for t, span in zip(later[1:], spans, strict=True)]
    share = statistics.median(b / s for b, s in zip(between, spans, strict=True))
    rows.append(["copying, records and checkpoint, of a generation", f"{share:.1%}", "4 %"])
    deciding = statistics.median(t["evolve"] / span for t, span in zip(later[1:], spans, strict=True))
    rows.append(["of it deciding and copying", f"{deciding:.1%}", ""])
    rows.append(["a generation", f"{statistics.median(spans) * 1e3:.0f} ms", ""])
    table("Waiting", ["", "measured", "allowed"], rows)


if __name__ == "__main__":
    main()
