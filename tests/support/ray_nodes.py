"""Two nodes of Ray on this machine, and `shoal train --launcher ray` on them: `python ray_nodes.py COMMAND ...` kills an
actor and then a node while it runs, and stops all in the end. Workers are in `w`, where it is called. Prints the outcome as
JSON."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from ray.cluster_utils import Cluster

FILES = [Path(f"w/workers/{name}/metrics.jsonl") for name in ("w0", "w1")]


def done(file: Path) -> int:
    return file.read_text().count("\n") if file.exists() else 0


def wait(process: subprocess.Popen, generations: list[int]) -> None:
    """Until all workers have got so far."""
    while any(done(file) < least for file, least in zip(FILES, generations, strict=True)):
        assert process.poll() is None, "the driver ended"
        time.sleep(0.02)


def main() -> None:
    # A node that is gone is refused at once; one that has no share of a core for a minute is not gone.
    checks = {
        "health_check_period_ms": 1000,
        "health_check_timeout_ms": 60_000,
        "health_check_initial_delay_ms": 60_000,
    }
    head = {"num_cpus": 1, "include_dashboard": False, "_system_config": checks}
    cluster = Cluster(initialize_head=True, head_node_args=head)
    other = cluster.add_node(num_cpus=1)
    environment = os.environ | {"RAY_ADDRESS": cluster.address}
    with open("out", "w") as out:
        driver = subprocess.Popen(sys.argv[1:], env=environment, stdout=out, stderr=out)
    wait(driver, [2, 2])
    os.kill(int(Path("w/leases/w0").read_text().split()[1]), signal.SIGKILL)
    wait(driver, [done(file) + 2 for file in FILES])
    cluster.remove_node(other, allow_graceful=False)
    cluster.add_node(num_cpus=1)
    wait(driver, [done(file) + 2 for file in FILES])
    driver.send_signal(signal.SIGINT)
    code = driver.wait()
    cluster.shutdown()
    print(json.dumps({"code": code, "out": Path("out").read_text()}))


if __name__ == "__main__":
    main()
