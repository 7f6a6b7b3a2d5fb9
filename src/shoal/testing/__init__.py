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
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from shoal.testing import checks
from shoal.testing.trainee import Trainee
from shoal.trainers.process import Recipe
from shoal.trainers.trainers import own_folders


class TrainerContract:
    """All checks, as tests of a trainer. Subclass it, as the docstring of this module shows.

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

    def test_description(self) -> None:
        checks.check_description(self.trainee)

    def test_seeds(self) -> None:
        checks.check_seeds(self.trainee)

    def test_told_live_equals_built(self) -> None:
        checks.check_told_live_equals_built(self.trainee)

    def test_every_hyperparameter_has_an_effect(self) -> None:
        checks.check_every_hyperparameter_has_an_effect(self.trainee)

    def test_state_is_complete(self) -> None:
        checks.check_state_is_complete(self.trainee)

    def test_own_hyperparameters_win(self) -> None:
        checks.check_own_hyperparameters_win(self.trainee)

    def test_housemates(self) -> None:
        checks.check_housemates(self.trainee)

    def test_new_process(self) -> None:
        checks.check_new_process(self.trainee)

    def test_evaluation(self) -> None:
        checks.check_evaluation(self.trainee)

    def test_episodes(self) -> None:
        checks.check_episodes(self.trainee)

    def test_evaluation_beside_others(self) -> None:
        checks.check_evaluation_beside_others(self.trainee)

    def test_evaluation_of_a_set_state(self) -> None:
        checks.check_evaluation_of_a_set_state(self.trainee)

    def test_act(self) -> None:
        checks.check_act(self.trainee)

    def test_returns(self) -> None:
        checks.check_returns(self.trainee)

    def test_steps(self) -> None:
        checks.check_steps(self.trainee)

    def test_what_diverged(self) -> None:
        checks.check_what_diverged(self.trainee)

    def test_nothing_is_left(self) -> None:
        checks.check_nothing_is_left(self.trainee)
