"""From the id of an environment, `suite:name` or `module:factory`, to the environment."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable
from contextlib import suppress
from functools import lru_cache
from typing import Any, NamedTuple

from shoal.core.errors import BadField, type_in_words
from shoal.core.user_code import attributed, call_own, import_from
from shoal.environments import atari, envpool
from shoal.environments.brax import brax_environment
from shoal.environments.device import DeviceEnvironment
from shoal.environments.games.environment import make_game, of_game
from shoal.environments.games.tree import GameTree, Tables
from shoal.environments.gymnasium import (
    gymnasium_environment,
    missing_extras,
    own_gymnasium_environment,
)
from shoal.environments.gymnax import gymnax_environment
from shoal.environments.host import HostEnvironment
from shoal.environments.jumanji import jumanji_environment
from shoal.environments.playground import playground_environment

Environment = DeviceEnvironment | HostEnvironment


class Suite(NamedTuple):
    """Environments that come with one package."""

    make: Callable[[str, dict[str, Any]], Environment]  # by name, with options
    on_device: bool  # whether they are compiled with the training
    in_gymnasium: Callable[[str], bool] = lambda name: False  # which of them gymnasium makes too, and can draw
    missing_extras: Callable[[], list[str]] = list  # with which there would be more of them


def _of_gymnasium(name: str, options: dict[str, Any]) -> HostEnvironment:
    return (atari.atari_environment if atari.plays(name, options) else gymnasium_environment)(name, options)


SUITES = {
    "gymnax": Suite(gymnax_environment, True),
    "brax": Suite(brax_environment, True),
    "jumanji": Suite(jumanji_environment, True),
    "playground": Suite(playground_environment, True),
    "gym": Suite(_of_gymnasium, False, lambda name: True, missing_extras),
    "envpool": Suite(envpool.envpool_environment, False, envpool.EQUAL.__contains__),
    "game": Suite(make_game, True),
}


def make(env: str, options: dict[str, Any]) -> Environment:
    """The environment of a full id, as `suites.resolve` gives it."""
    suite, _, name = env.partition(":")
    if suite in SUITES:
        known = SUITES[suite].on_device and all(isinstance(x, (int, float, str)) for x in options.values())
        return _made_once(suite, name, **options) if known else SUITES[suite].make(name, options)
    factory = import_from(env, "env")
    if not callable(factory):
        problem = f"{env} is {type_in_words(factory)} that is made already, of which there can be no copies"
        raise BadField("env", problem, "name its class, or a function that makes one")
    return made_by(factory, call_own("env_options", env, factory, **options), env, options)


@lru_cache(maxsize=16, typed=True)
def _made_once(suite: str, name: str, /, **options: Any) -> Environment:
    """An environment on the device, which is nothing but functions: runs and arms of a study share it, as it is traced to
    be made."""
    return SUITES[suite].make(name, options)


def made_by(factory: Callable, made: Any, env: str, options: dict[str, Any]) -> Environment:
    """The environment of the user's own that a factory has made with these options.

    One of gymnasium is opened as its suite would. The arguments of a device environment that are not integers are its
    environment parameters, unless it says itself which it has. Raises BadInput.
    """
    if "gymnasium" in sys.modules and isinstance(made, sys.modules["gymnasium"].Env):
        call_own("env", env, made.close)
        return own_gymnasium_environment(factory, env, options)
    with attributed("env", f"{env} failed"):
        if isinstance(made, (GameTree, Tables)):
            return of_game(made, env)
    if hasattr(made, "possible_agents"):
        wrap = "make each agent a copy that one policy acts in, as examples/parameter_sharing.py does"
        raise BadField(
            "env", f"{env} has several agents, as PettingZoo's environments do, and a member acts for one", wrap
        )
    if not isinstance(made, (DeviceEnvironment, HostEnvironment)):
        wanted = "it must give a DeviceEnvironment, a HostEnvironment, a game, or an environment of gymnasium"
        raise BadField("env", f"{env} gives {type_in_words(made)}", wanted)
    if not isinstance(made, DeviceEnvironment) or made.with_env_parameters is not None:
        return made
    with suppress(ValueError):  # a function without a signature, such as some of Python's own
        defaults = {name: argument.default for name, argument in inspect.signature(factory).parameters.items()}
        given = {name: options.get(name, x) for name, x in defaults.items() if isinstance(x, float)}
        numbers = {name: float(x) for name, x in given.items() if isinstance(x, (int, float))}
        other = lambda values: factory(**{**options, **values})  # noqa: E731
        made = made._replace(env_parameters=numbers, with_env_parameters=other)
    return made
