"""Environments by id: `suite:name`, a bare name (the fastest suite that has it), or `module:factory`."""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any, NamedTuple

from shoal.core.errors import BadField, nearest
from shoal.core.user_code import call_own, import_from
from shoal.environments import atari, envpool, suites
from shoal.environments.brax import brax_environment
from shoal.environments.device import DeviceEnvironment
from shoal.environments.gymnasium import (
    family,
    gymnasium_environment,
    missing_extras,
    own_gymnasium_environment,
    registry,
)
from shoal.environments.gymnax import gymnax_environment, import_gymnax
from shoal.environments.host import HostEnvironment
from shoal.environments.jumanji import jumanji_environment
from shoal.environments.playground import playground_environment
from shoal.environments.suites import missing

Environment = DeviceEnvironment | HostEnvironment
VERSION = re.compile(r"-v(\d+)$")
OLD_GAME = re.compile(r"(NoFrameskip|Deterministic)-v\d$")  # of Atari

PROCGEN = (
    *("bigfish", "bossfight", "caveflyer", "chaser", "climber", "coinrun", "dodgeball", "fruitbot", "heist", "jumper"),
    *("leaper", "maze", "miner", "ninja", "plunder", "starpilot"),
)
LISTED = {  # here, because importing these packages takes seconds; of envpool the games that nobody else has
    "brax": (
        *("ant", "halfcheetah", "hopper", "humanoid", "humanoidstandup", "inverted_double_pendulum"),
        *("inverted_pendulum", "pusher", "reacher", "swimmer", "walker2d"),
    ),
    "envpool": tuple(name for game in PROCGEN for name in (game, game.capitalize())),
    "jumanji": ("Maze-v0", "Snake-v1"),
    "playground": (
        *("AcrobotSwingup", "AcrobotSwingupSparse", "AeroCubeRotateZAxis", "AlohaHandOver", "AlohaSinglePegInsertion"),
        *("ApolloJoystickFlatTerrain", "BallInCup", "BarkourJoystick", "BerkeleyHumanoidJoystickFlatTerrain"),
        *("BerkeleyHumanoidJoystickRoughTerrain", "CartpoleBalance", "CartpoleBalanceSparse", "CartpoleSwingup"),
        *("CartpoleSwingupSparse", "CheetahRun", "FingerSpin", "FingerTurnEasy", "FingerTurnHard", "FishSwim"),
        *("G1JoystickFlatTerrain", "G1JoystickRoughTerrain", "Go1Footstand", "Go1Getup", "Go1Handstand"),
        *("Go1JoystickFlatTerrain", "Go1JoystickRoughTerrain", "H1InplaceGaitTracking", "H1JoystickGaitTracking"),
        *("HopperHop", "HopperStand", "HumanoidRun", "HumanoidStand", "HumanoidWalk", "LeapCubeReorient"),
        *("LeapCubeRotateZAxis", "Op3Joystick", "PandaOpenCabinet", "PandaPickCube", "PandaPickCubeCartesian"),
        *("PandaPickCubeOrientation", "PandaRobotiqPushCube", "PendulumSwingup", "PointMass", "ReacherEasy"),
        *("ReacherHard", "SpotFlatTerrainJoystick", "SpotGetup", "SpotJoystickGaitTracking", "SwimmerSwimmer6"),
        *("T1JoystickFlatTerrain", "T1JoystickRoughTerrain", "WalkerRun", "WalkerStand", "WalkerWalk"),
    ),
}


class Suite(NamedTuple):
    """Environments that come with one package."""

    make: Callable[[str, dict[str, Any]], Environment]  # by name, with options
    names: Callable[[], Iterable[str]]  # all that it has, where it is installed
    on_device: bool  # whether they are compiled with the training
    in_gymnasium: Callable[[str], bool] = lambda name: False  # which of them gymnasium makes too, and can draw
    missing_extras: Callable[[], list[str]] = list  # with which there would be more of them
    of_modules: bool = False  # whether `module:Name`, which registers itself when it is imported, is a name too


def _of_gymnasium(name: str, options: dict[str, Any]) -> HostEnvironment:
    return (atari.atari_environment if atari.plays(name, options) else gymnasium_environment)(name, options)


def _in_gymnasium() -> Iterable[str]:
    extras = missing_extras()
    return (name for name in _offered() if family(name) not in extras)


def _offered() -> list[str]:
    """The environments of gymnasium, those included whose packages are not installed."""
    registered = registry()

    def offered(name: str) -> bool:
        entry = registered[name].entry_point
        moved = getattr(entry, "__module__", "") == "gymnasium.envs"  # MuJoCo v2 and v3
        old = str(entry).startswith("ale_py") and not name.startswith("ALE/")  # Atari v0 and v4
        return not (moved or old or name.startswith(("phys2d/", "tabular/", "GymV")))

    return list(filter(offered, registered))


SUITES = {  # in the order in which a bare name is looked for
    "gymnax": Suite(gymnax_environment, lambda: import_gymnax().registered_envs, True),
    "brax": Suite(brax_environment, lambda: LISTED["brax"], True),
    "jumanji": Suite(jumanji_environment, lambda: LISTED["jumanji"], True),
    "playground": Suite(playground_environment, lambda: LISTED["playground"], True),
    "gym": Suite(_of_gymnasium, _in_gymnasium, False, lambda name: True, missing_extras, of_modules=True),
    "envpool": Suite(envpool.envpool_environment, envpool.names, False, envpool.EQUAL.__contains__),
}


def names(suite: str) -> list[str]:
    """The names of all environments of a suite; none where it is not installed."""
    return list(SUITES[suite].names()) if suites.installed(suite) else []


def resolve(env: str) -> str:
    """The full id of `env`. Raises BadInput, with the nearest ids, where it does not exist."""
    suite, colon, name = env.partition(":")
    suites.check(env)
    if colon and (suite not in SUITES or (SUITES[suite].of_modules and ":" in name)):
        return env
    name = name if colon else env
    if not colon and name in envpool.EQUAL and suites.installed("envpool"):
        return f"envpool:{name}"
    searched = [suite] if colon else list(SUITES)
    for candidate in searched:
        if name in names(candidate):
            return f"{candidate}:{name}"
    for candidate, listed in LISTED.items():
        if not colon and name in listed:
            raise missing(env, f"the package {suites.PACKAGES[candidate]}", candidate)
    if "gym" in searched and name in _offered() and (extra := family(name)) in missing_extras():
        raise missing(env, "packages that are not installed", extra)
    if name.startswith("ALE/") and "atari" in missing_extras():
        raise missing(env, "the package ale-py", "atari")
    bare = {n: f"{s}:{n}" for s in reversed(searched) for n in names(s)}
    if newer := _successor(name, [*bare, *(_offered() if "gym" in searched else [])]):
        try:
            advice = f"take {resolve(f'{suite}:{newer}' if colon else newer)}"
        except BadField as error:
            advice = error.problem
        raise BadField("env", f"{env!r} does not exist", advice)
    near = nearest(name, bare)
    hint = f"did you mean {' or '.join(bare[n] for n in near)}?" if near else "`shoal envs` lists what is installed"
    raise BadField("env", f"{env!r} does not exist", hint)


def _successor(name: str, known: Iterable[str]) -> str:
    """The newest of the known environments of which `name` is another version; empty where there is none."""
    if OLD_GAME.search(name):
        return f"ALE/{OLD_GAME.sub('', name)}-v5"
    title = VERSION.sub("", name).removeprefix("ALE/")
    versions = {
        int(v[1]): n for n in known if (v := VERSION.search(n)) and n[: v.start()].removeprefix("ALE/") == title
    }
    return versions[max(versions)] if versions else ""


def make(env: str, options: dict[str, Any]) -> Environment:
    """The environment of a full id, as `resolve` gives it."""
    suite, _, name = env.partition(":")
    if suite in SUITES:
        return SUITES[suite].make(name, options)
    factory = import_from(env, "env")
    return made_by(factory, call_own("env_options", env, factory, **options), env, options)


def made_by(factory: Callable, made: Any, env: str, options: dict[str, Any]) -> Environment:
    """The environment of the user's own that a factory has made with these options.

    One of gymnasium is opened as its suite would. The arguments of a device environment that are no whole numbers are its
    environment parameters, unless it says itself which it has. Raises BadInput.
    """
    if "gymnasium" in sys.modules and isinstance(made, sys.modules["gymnasium"].Env):
        call_own("env", env, made.close)
        return own_gymnasium_environment(factory, env, options)
    if not isinstance(made, (DeviceEnvironment, HostEnvironment)):
        wanted = "it must give a DeviceEnvironment, a HostEnvironment, or an environment of gymnasium"
        raise BadField("env", f"{env} gives a {type(made).__name__}", wanted)
    if not isinstance(made, DeviceEnvironment) or made.with_env_parameters is not None:
        return made
    with suppress(ValueError):  # a function without a signature, such as some of Python's own
        defaults = {name: argument.default for name, argument in inspect.signature(factory).parameters.items()}
        given = {name: options.get(name, x) for name, x in defaults.items() if isinstance(x, float)}
        numbers = {name: float(x) for name, x in given.items() if isinstance(x, (int, float))}
        other = lambda values: factory(**{**options, **values})  # noqa: E731
        made = made._replace(env_parameters=numbers, with_env_parameters=other)
    return made
