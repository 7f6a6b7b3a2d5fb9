"""Strict JAX for every test: no silent promotion of dtypes or ranks, two devices; warnings are errors (pyproject).

And what is compiled, where it is kept, how many examples a property is tried on, which part of the tests runs, and until
when they begin.
"""

import gc
import os
import re
import time
import zlib
from pathlib import Path

import pytest

_FLAGS = os.environ.get("XLA_FLAGS", "")
if "xla_force_host_platform_device_count" not in _FLAGS:
    os.environ["XLA_FLAGS"] = f"{_FLAGS} --xla_force_host_platform_device_count=2".strip()
os.environ.setdefault("JAX_PLATFORMS", "cpu")
os.environ["MPLBACKEND"] = "Agg"

import hypothesis  # noqa: E402
import jax  # noqa: E402
import optax  # noqa: E402
from hypothesis.configuration import set_hypothesis_home_dir  # noqa: E402

from shoal.members.compilation_cache import keep_whole  # noqa: E402

pytest_plugins = ["support.browser", "support.memory", "support.messages"]

# The same examples in each test run, few of them; `examples` of support/cases.py takes more in `make learn`. An example may
# compile a program, which is slow the first time.
hypothesis.settings.register_profile(
    "shoal",
    max_examples=25,
    stateful_step_count=20,
    derandomize=True,
    database=None,
    deadline=None,
    suppress_health_check=[hypothesis.HealthCheck.too_slow],
)
hypothesis.settings.load_profile("shoal")


def pytest_configure(config: pytest.Config) -> None:
    jax.config.update("jax_numpy_dtype_promotion", "strict")
    jax.config.update("jax_numpy_rank_promotion", "raise")
    # What one test run compiled the next one reads, and so do the commands that tests start.
    assert config.cache is not None
    settings = {"compilation_cache_dir": str(config.cache.mkdir("jax")), "persistent_cache_min_compile_time_secs": 0.1}
    for name, value in settings.items():
        jax.config.update(f"jax_{name}", value)
        os.environ[f"JAX_{name.upper()}"] = str(value)
    keep_whole(None)
    set_hypothesis_home_dir(config.cache.mkdir("hypothesis"))
    gc.set_threshold(
        50_000, 20, 50
    )  # what JAX has traced stays: looking through it again and again takes a tenth of the time


# Where one test runs for every agent or method, `make test` takes the quickest and `make learn` the others.
THOROUGH = ("agents", "contract", "rl", "learn", "commands/test_methods_shown.py", "commands/test_evaluate.py")
OTHERS = re.compile(
    r"\b(td3|sac|recurrent_ppo|mf_pbt|pb2|successive_halving|cem_rl|dvd|independent|schedule|continuous|multi_discrete)\b"
)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    mark_others_slow(items)
    if part := os.environ.get("SHOAL_TESTS_PART"):  # 3/10: the third tenth
        number, parts = map(int, part.split("/"))
        apart = {item for item in items if zlib.crc32(item.nodeid.encode()) % parts != number - 1}
        config.hook.pytest_deselected(items=list(apart))
        items[:] = [item for item in items if item not in apart]


def mark_others_slow(items: list[pytest.Item]) -> None:
    for item in items:
        _, _, case = item.name.partition("[")
        place = item.path.relative_to(Path(__file__).parent).as_posix()
        cheap = "said" in getattr(item, "fixturenames", ())  # a refusal, whatever its case names
        if place.startswith(THOROUGH) and OTHERS.search(case) and not cheap:
            item.add_marker(pytest.mark.slow)


def pytest_runtest_setup() -> None:
    """On a slow machine CI leaves out what it has no time for, and says how many tests that are."""
    until = os.environ.get("SHOAL_TESTS_UNTIL")  # seconds since 1970
    if until and time.time() > float(until):
        pytest.skip("no time is left")


def _bias_correction(*arguments, correct=optax.tree.bias_correction):
    with jax.numpy_dtype_promotion("standard"):  # optax takes a float to the power of an integer
        return correct(*arguments)


optax.tree.bias_correction = _bias_correction
