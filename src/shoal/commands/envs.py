"""`shoal envs`: the installed environments; of one its observations, actions, metrics and environment parameters."""

from __future__ import annotations

import jax
from jax.tree_util import keystr, tree_leaves_with_path
from rich.columns import Columns

from shoal.core.backend import on_jax
from shoal.core.env_parameters import PREFIX
from shoal.core.extras import install
from shoal.core.spec import describe, describe_actions
from shoal.environments import registry, suites
from shoal.environments.device import DeviceEnvironment, lenient
from shoal.environments.host import HostEnvironment
from shoal.environments.randomised import RANDOMISE
from shoal.records.screen import Screen, styled


@on_jax()
def list_environments(pattern: str, screen: Screen) -> None:
    """List the installed environments whose ids contain a pattern. Describe the one whose id it is, or the user's own."""
    whole, some = False, False
    for suite, description in registry.SUITES.items():
        found = [name for name in suites.names(suite) if pattern.lower() in f"{suite}:{name}".lower()]
        whole |= any(pattern in (name, f"{suite}:{name}") for name in found)
        some |= bool(found) or pattern.lower() in f"{suite}:"
        if not suites.installed(suite):
            if ":" in pattern and not pattern.startswith(f"{suite}:"):
                continue  # of another suite
            missing = f" is not installed: {install(suite)} (package {suites.PACKAGES[suite]})"
            screen.print(styled((suite, "bold"), missing))
        elif found:
            kind = "device, compiled with the training" if description.on_device else "host"
            screen.print(styled((suite, "bold"), " ", (kind, "dim")))
            ids = [f"{suite}:{name}" for name in found]
            screen.print(*([Columns(ids, padding=(0, 2))] if screen.is_terminal else ids), sep="\n")
        if not pattern:
            for extra in description.missing_extras():
                screen.print(styled((f"{suite}, {extra}", "bold"), f" is not installed: {install(extra)}"))
    if whole or not some:
        full = suites.resolve(pattern)
        screen.print(full, *described(registry.make(full, {})), sep="\n")


def described(environment: DeviceEnvironment | HostEnvironment) -> list[str]:
    """Observations, actions, metrics and environment parameters of an environment."""
    spec, env_parameters = environment.spec, environment.env_parameters
    on_device = isinstance(environment, DeviceEnvironment)
    parts = (("actor", spec.actor), ("critic", spec.critic)) if isinstance(spec.obs, dict) else ()
    lines = ["; ".join([f"observations: {describe(spec.obs)}", *(f"{name}: {', '.join(x)}" for name, x in parts if x)])]
    lines.append(f"actions: {describe_actions(spec.action)}")
    if isinstance(environment, DeviceEnvironment) and (info := environment.info) is not None:
        reset = environment.reset
        with lenient():
            numbers = jax.eval_shape(lambda key: info(reset(key)[1]), jax.random.key(0))
        metrics = ", ".join(keystr(path, simple=True, separator=".") for path, _ in tree_leaves_with_path(numbers))
        lines.append(f"metrics, for fitness.objective: {metrics}")
    if not env_parameters:
        return [*lines, "no environment parameters"]
    lines.append("environment parameters, for space or hyper:")
    lines += [f"  {PREFIX}{name}: {value:g}" for name, value in env_parameters.items()]
    each = f"  {PREFIX}NAME{RANDOMISE}, for each of them: every episode samples it within this distance of its value"
    return [*lines, each] if on_device else lines
