"""Environments by id: `suite:name`, a bare name (the fastest suite that has it), or `module:factory`."""

from __future__ import annotations

import importlib.util
import inspect
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from shoal.core.errors import BadField
from shoal.core.suggestions import nearest
from shoal.core.user_code import call_own, import_from
from shoal.environments import atari, envpool
from shoal.environments.device import DeviceEnvironment, import_gymnax
from shoal.environments.host import HostEnvironment

Environment = DeviceEnvironment | HostEnvironment

LISTED = {  # here, because importing these packages takes seconds
    "brax": (
        *("ant", "halfcheetah", "hopper", "humanoid", "humanoidstandup", "inverted_double_pendulum"),
        *("inverted_pendulum", "pusher", "reacher", "swimmer", "walker2d"),
    ),
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
# In the order in which a bare name is looked for; the package that each suite comes with.
SUITES = {"gymnax": "gymnax", "brax": "brax", "jumanji": "jumanji", "playground": "mujoco_playground"}
SUITES |= {"gym": "gymnasium", "envpool": "envpool"}


def installed(suite: str) -> bool:
    """Whether the package of a suite is installed."""
    return importlib.util.find_spec(SUITES[suite]) is not None


def names(suite: str) -> list[str]:
    """The names of all environments of a suite; none where it is not installed."""
    if not installed(suite):
        return []
    if suite == "gymnax":
        return list(import_gymnax().registered_envs)
    if suite in LISTED:
        return list(LISTED[suite])
    if suite == "envpool":
        return envpool.names()
    from shoal.environments import host

    registered = host.registry()

    def usable(name: str) -> bool:
        entry = registered[name].entry_point
        moved = getattr(entry, "__module__", "") == "gymnasium.envs"  # MuJoCo v2 and v3
        old = str(entry).startswith("ale_py") and not name.startswith("ALE/")  # Atari v0 and v4
        return not moved and not old and not name.startswith(("phys2d/", "tabular/", "GymV"))

    return list(filter(usable, registered))


def resolve(env: str) -> str:
    """The full id of `env`. Raises BadInput, with the nearest ids, where it does not exist."""
    suite, colon, name = env.partition(":")
    if colon and suite not in SUITES:
        if _importable(suite):
            return env
        raise BadField(
            "env", f"there is no suite {suite!r}", f"choose one of {', '.join(SUITES)}, or module:factory of your own"
        )
    if colon and not installed(suite):
        raise BadField("env", f"{env} needs the package {SUITES[suite]}: pip install 'shoal[{suite}]'")
    if colon and (name in names(suite) or (suite == "gym" and ":" in name)):
        return env
    if not colon:
        if env in envpool.EQUAL and installed("envpool"):
            return f"envpool:{env}"
        for candidate in SUITES:
            if env in names(candidate):
                return f"{candidate}:{env}"
        for candidate, known in LISTED.items():
            if env in known:
                raise BadField("env", f"{env} needs the package {SUITES[candidate]}: pip install 'shoal[{candidate}]'")
    if (name if colon else env).startswith("ALE/") and importlib.util.find_spec("ale_py") is None:
        raise BadField("env", f"{env} needs the package ale-py: pip install 'shoal[atari]'")
    bare = {n: f"{s}:{n}" for s in ([suite] if colon else reversed(SUITES)) for n in names(s)}
    near = nearest(name if colon else env, bare)
    hint = f"did you mean {' or '.join(bare[n] for n in near)}?" if near else "`shoal envs` lists what is installed"
    raise BadField("env", f"{env!r} does not exist", hint)


def make(env: str, options: dict[str, Any]) -> Environment:
    """The environment of a full id, as `resolve` gives it."""
    suite, _, name = env.partition(":")
    if suite == "gymnax":
        from shoal.environments.device import gymnax_environment

        return gymnax_environment(name, options)
    if suite == "brax":
        from shoal.environments.brax import brax_environment

        return brax_environment(name, options)
    if suite == "jumanji":
        from shoal.environments.jumanji import jumanji_environment

        return jumanji_environment(name, options)
    if suite == "playground":
        from shoal.environments.playground import playground_environment

        return playground_environment(name, options)
    if suite == "gym" and atari.plays(name, options):
        return atari.atari_environment(name, options)
    if suite == "gym":
        from shoal.environments.host import gymnasium_environment

        return gymnasium_environment(name, options)
    if suite == "envpool":
        return envpool.envpool_environment(name, options)
    factory = import_from(env, "env")
    return with_arguments(call_own("env_options", env, factory, **options), factory, options)


def with_arguments(made: Any, factory: Callable, options: dict[str, Any]) -> Any:
    """What a factory has made with these options; the arguments of a device environment that are no whole numbers are
    its knobs, unless it says itself which it has."""
    if not isinstance(made, DeviceEnvironment) or made.with_knobs is not None:
        return made
    with suppress(ValueError):  # a function without a signature, such as some of Python's own
        usual = {name: argument.default for name, argument in inspect.signature(factory).parameters.items()}
        given = {name: options.get(name, x) for name, x in usual.items() if isinstance(x, float)}
        knobs = {name: float(x) for name, x in given.items() if isinstance(x, (int, float))}
        made = made._replace(knobs=knobs, with_knobs=lambda values: factory(**{**options, **values}))
    return made


def _importable(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except (ImportError, ValueError):
        return False
    except (Exception, SystemExit):  # a parent package fails; the later import says how
        return True
