"""Environments by id: `suite:name`, a bare name (the fastest suite that has it), or `module:factory`; their packages.

No JAX: ids are checked before it is imported.
"""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Iterable

from shoal.core.errors import BadField, nearest
from shoal.core.extras import install
from shoal.environments import envpool
from shoal.environments.gymnasium import family, missing_extras, registry

# In the order in which a bare name is looked for.
PACKAGES = {
    "gymnax": "gymnax",
    "brax": "brax",
    "jumanji": "jumanji",
    "playground": "mujoco_playground",
    "gym": "gymnasium",
    "envpool": "envpool",
    "game": "shoal",
}
VERSION = re.compile(r"-v(\d+)$")
OLD_GAME = re.compile(r"(NoFrameskip|Deterministic)-v\d$")  # of Atari
PROCGEN = (
    *("bigfish", "bossfight", "caveflyer", "chaser", "climber", "coinrun", "dodgeball", "fruitbot", "heist", "jumper"),
    *("leaper", "maze", "miner", "ninja", "plunder", "starpilot"),
)
LISTED = {  # here, because importing these packages takes seconds; of envpool the games that nobody else has
    "gymnax": (
        *("CartPole-v1", "Pendulum-v1", "Acrobot-v1", "MountainCar-v0", "MountainCarContinuous-v0", "Asterix-MinAtar"),
        *("Breakout-MinAtar", "Freeway-MinAtar", "Seaquest-MinAtar", "SpaceInvaders-MinAtar", "Catch-bsuite"),
        *("DeepSea-bsuite", "MemoryChain-bsuite", "UmbrellaChain-bsuite", "DiscountingChain-bsuite"),
        *("MNISTBandit-bsuite", "SimpleBandit-bsuite", "FourRooms-misc", "MetaMaze-misc", "PointRobot-misc"),
        *("BernoulliBandit-misc", "GaussianBandit-misc", "Reacher-misc", "Swimmer-misc", "Pong-misc"),
        "FrozenLake-misc",
    ),
    "brax": (
        *("ant", "halfcheetah", "hopper", "humanoid", "humanoidstandup", "inverted_double_pendulum"),
        *("inverted_pendulum", "pusher", "reacher", "swimmer", "walker2d"),
    ),
    "envpool": tuple(name for game in PROCGEN for name in (game, game.capitalize())),
    "game": ("kuhn", "leduc", "liars_dice", "tic_tac_toe", "connect"),
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
OF_MODULES = ("gym",)  # suites in which `module:Name`, which registers itself when it is imported, is a name too


def installed(suite: str) -> bool:
    """True where the package of a suite is installed."""
    return importlib.util.find_spec(PACKAGES[suite]) is not None


def _check(env: str) -> None:
    """Raise BadInput where the name in front of an id is neither a suite nor a module, or the package is missing."""
    suite, colon, name = env.partition(":")
    if not colon:
        return
    if suite not in PACKAGES:
        if suite.endswith(".py"):
            module = suite.rpartition("/")[2].removesuffix(".py")
            raise BadField(
                "env", f"{suite!r} is a file", f"write {module}:{name}, and start in the folder of that file"
            )
        if not _importable(suite):
            problem = f"there is no suite {suite!r}, and no module of this name in the current directory or installed"
            raise BadField("env", problem, f"suites are {', '.join(PACKAGES)}")
    elif not installed(suite):
        raise missing(env, f"the package {PACKAGES[suite]}", suite)


def packages(env: str) -> list[str]:
    """Guess the names, for an installer, of the package that an environment comes with."""
    first, _, rest = env.partition(":")
    module = rest.partition(":")[0] if ":" in rest else ""  # gym:module:Name
    of_suite = [PACKAGES[first], first] if first in PACKAGES else [first]
    return [name.partition(".")[0] for name in (*of_suite, module) if name]


def missing(env: str, needed: str, extra: str) -> BadField:
    return BadField("env", f"{env} needs {needed}: {install(extra)}")


def _importable(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except (ImportError, ValueError):
        return False
    except (Exception, SystemExit):  # a parent package fails; the later import says how
        return True


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


ASKED = {"gym": _in_gymnasium, "envpool": envpool.names}  # suites that are imported for their names


def names(suite: str) -> list[str]:
    """The names of all environments of a suite; none where it is not installed."""
    if not installed(suite):
        return []
    return list(ASKED[suite]() if suite in ASKED else LISTED[suite])


def resolve(env: str) -> str:
    """The full id of `env`. Raises BadInput, with the nearest ids, where it does not exist."""
    suite, colon, name = env.partition(":")
    _check(env)
    if colon and suite not in PACKAGES and VERSION.search(name):
        problem = f"{name!r} is an id of an environment, and no class or function of the module {suite}"
        known = next((known for known, package in PACKAGES.items() if package == suite), None)
        registered = f"write gym:{env}, where the module registers it with gymnasium"
        raise BadField("env", problem, f"write {known}:{name}" if known else registered)
    if colon and (suite not in PACKAGES or (suite in OF_MODULES and ":" in name)):
        return env
    name = name if colon else env
    if not colon and name in envpool.EQUAL and installed("envpool"):
        return f"envpool:{name}"
    searched = [suite] if colon else list(PACKAGES)
    for candidate in searched:
        if name in names(candidate):
            return f"{candidate}:{name}"
    for candidate, listed in LISTED.items():
        if not colon and name in listed:
            raise missing(env, f"the package {PACKAGES[candidate]}", candidate)
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
