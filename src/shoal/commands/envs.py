"""`shoal envs`: which environments are installed; of one, its observations, info and parameters."""

from __future__ import annotations

import jax
from jax.tree_util import keystr, tree_leaves_with_path
from rich.columns import Columns

from shoal.core.backend import on_jax
from shoal.core.env_parameters import PREFIX
from shoal.core.spec import describe
from shoal.environments import registry
from shoal.environments.device import DeviceEnvironment, lenient
from shoal.environments.host import HostEnvironment
from shoal.environments.randomised import RANDOMISE
from shoal.records.screen import Screen, styled


@on_jax()
def tell(pattern: str, screen: Screen) -> None:
    """List the installed environments whose ids contain this; describe the one that it is the whole id of, or one's own."""
    whole, some = False, False
    for suite, about in registry.SUITES.items():
        found = [name for name in registry.names(suite) if pattern.lower() in f"{suite}:{name}".lower()]
        whole |= any(pattern in (name, f"{suite}:{name}") for name in found)
        some |= bool(found) or pattern.lower() in f"{suite}:"
        if not registry.installed(suite):
            if ":" in pattern and not pattern.startswith(f"{suite}:"):
                continue  # asked of another suite
            missing = f" is not installed: pip install 'shoal[{suite}]' (package {about.package})"
            screen.print(styled((suite, "bold"), missing))
        elif found:
            kind = "device, compiled with the training" if about.on_device else "host"
            screen.print(styled((suite, "bold"), " ", (kind, "dim")))
            ids = [f"{suite}:{name}" for name in found]
            screen.print(*([Columns(ids, padding=(0, 2))] if screen.is_terminal else ids), sep="\n")
        if not pattern:
            for extra in about.missing_extras():
                screen.print(styled((f"{suite}, {extra}", "bold"), f" is not installed: pip install 'shoal[{extra}]'"))
    if whole or not some:
        full = registry.resolve(pattern)
        screen.print(*described(full, registry.make(full, {})), sep="\n")


def described(full: str, environment: DeviceEnvironment | HostEnvironment) -> list[str]:
    """Of one environment: what agents see of it, what its info tells, and its environment parameters."""
    spec, env_parameters = environment.spec, environment.env_parameters
    on_device = isinstance(environment, DeviceEnvironment)
    eyes = (("actor", spec.actor), ("critic", spec.critic)) if isinstance(spec.obs, dict) else ()
    lines = ["; ".join([f"{full} shows {describe(spec.obs)}", *(f"{who} sees {', '.join(x)}" for who, x in eyes if x)])]
    if isinstance(environment, DeviceEnvironment) and (info := environment.info) is not None:
        reset = environment.reset
        with lenient():
            numbers = jax.eval_shape(lambda key: info(reset(key)[0]), jax.random.key(0))
        tells = ", ".join(keystr(path, simple=True, separator=".") for path, _ in tree_leaves_with_path(numbers))
        lines.append(f"{full} tells these after a step, of which one may be fitness.objective: {tells}")
    if not env_parameters:
        return [*lines, f"{full} has no numbers that can be tuned"]
    lines.append(f"{full} can be tuned by these, under space or hyper:")
    lines += [f"  {PREFIX}{name}: {value:g}" for name, value in env_parameters.items()]
    each = f"  and for each of them {PREFIX}NAME{RANDOMISE}: how far from it every episode draws it anew"
    return [*lines, each] if on_device else lines
