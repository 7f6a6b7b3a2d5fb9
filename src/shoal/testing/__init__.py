"""The conformance kit: what every trainer of other people's code must keep, as tests that find where one does not.

```python
from shoal.testing import TrainerContract


class TestMine(TrainerContract):
    trainer, env = "my_package.my_trainer:MyTrainer", "gym:CartPole-v1"
    config = {"n_envs": 2}
```

All checks call the trainer in processes, as a run does. `checks` has them as functions, for use without pytest.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

from shoal.testing import checks
from shoal.testing.trainee import Trainee
from shoal.trainers.process import Recipe
from shoal.trainers.trainers import own_folders


class TrainerContract:
    """All checks, as tests of a trainer: `check_seeds` is `test_seeds`. Subclass it, as the docstring of this module shows.

    trainer, env, env_options, config: as in an experiment
    path: folders where modules are looked for; by default the current one and those of this interpreter, as in a run
    python, steps, values, exact, seeded: as in `Trainee`
    """

    trainer: ClassVar[str]
    env: ClassVar[str] = ""
    env_options: ClassVar[Mapping[str, Any]] = {}
    config: ClassVar[Mapping[str, Any]] = {}
    path: ClassVar[Sequence[str] | None] = None
    python: ClassVar[str] = sys.executable
    steps: ClassVar[int] = 256
    values: ClassVar[Mapping[str, float]] = {}
    exact: ClassVar[bool] = True
    seeded: ClassVar[bool] = True
    trainee: ClassVar[Trainee]

    @classmethod
    def setup_class(cls) -> None:
        path = (os.getcwd(), *own_folders()) if cls.path is None else cls.path  # as `shoal train` looks
        recipe = Recipe(cls.trainer, cls.env, cls.env_options, cls.config, path)
        cls.trainee = Trainee(recipe, cls.python, cls.steps, cls.values, cls.exact, cls.seeded)

    @classmethod
    def teardown_class(cls) -> None:
        cls.trainee.close()


def _as_test(check: Callable[[Trainee], None]) -> Callable[[TrainerContract], None]:
    return lambda self: check(self.trainee)


for _name, _check in vars(checks).items():
    if _name.startswith("check_"):
        setattr(TrainerContract, _name.replace("check_", "test_", 1), _as_test(_check))
