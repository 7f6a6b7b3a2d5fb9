"""Runs on games: fitness is exact, takes no moves, and decides who is champion; what does not go with it is refused."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.kuhn import by_rules, wins
from support.messages import Said
from support.runs import COMMAND, CONFIG, flags, mpiexec, rows, same_run, shoal, tiny
from support.synthetic_run import write_run

from shoal.commands.games import Player, ask_person, moves
from shoal.core.errors import BadInput
from shoal.environments.games.environment import GAMES, knowledge
from shoal.environments.games.exploitability import exploitability
from shoal.environments.games.poker import Kuhn
from shoal.environments.games.tree import Tables, tabulate
from shoal.experiment.experiment import Fitness
from shoal.experiment.plan import make_plan
from shoal.report.comparison import write_comparison
from shoal.report.page import write_report
from shoal.run.champion import Champion, load_champion, load_members
from shoal.run.evaluation import evaluate
from shoal.run.train import resume, train
from shoal.run.workspace_selection import best_of_workers

KUHN: dict[str, Any] = {"env": "kuhn", "fitness": {}, "generations": 4}
REFUSED: dict[str, dict[str, Any]] = {
    "dqn": {"agent": "dqn", "config": {}},
    "es": {"method": "es", "config": {}},
    "lstm_hidden_size": {"config": {"lstm_hidden_size": 4}},
    "frames": {"config": {"frame_stack": 2}},
    "payoffs": {"fitness": {"source": "evaluation"}},
    "ties": {"fitness": {"tie_breaker": "return"}},
    "levels": {"levels": {}},
    "no game": {"env": "CartPole-v1", "fitness": {"source": "exploitability"}},
}


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    run_dir = tmp_path_factory.mktemp("games") / "run"
    train(tiny(run_dir, **KUHN))
    return run_dir


def policy_of(champion: Champion, game: Tables) -> np.ndarray:
    assert champion.policy.probabilities is not None
    return np.asarray(champion.policy.probabilities(champion.learned, knowledge(game)), np.float64)


@pytest.mark.slow
def test_the_champion_is_the_least_exploitable_member_of_any_generation(run: Path) -> None:
    rows = [json.loads(line) for line in (run / "lineage.jsonl").read_text().splitlines()]
    result = json.loads((run / "result.json").read_text())
    fitness = [row["fitness"] for row in rows]
    assert -0.6 < max(fitness) < 0
    assert result["champion"]["selection_fitness"] == max(fitness)
    tested = result["champion"]["evaluation"]
    assert tested["mean"] == pytest.approx(max(fitness), abs=1e-7)
    assert tested["standard_error"] == 0 and tested["exact"]
    assert result["evaluation_steps"] == 0
    assert "final_selection" not in result["champion"]


def test_a_run_that_goes_on_is_the_same(run: Path, tmp_path: Path) -> None:
    train(tiny(tmp_path / "half", **KUHN | {"generations": 2}))
    resume(tmp_path / "half", 4)
    same_run(run, tmp_path / "half")


@pytest.mark.slow
def test_fitness_is_exact_for_members_of_two_structures(tmp_path: Path) -> None:
    """It is minus the exploitability of each member alone; and payoffs are those between members of both structures."""
    changes = KUHN | {"config": CONFIG | {"layers": {"choices": [[8], [4, 4]]}}, "method": "independent"}
    result = train(tiny(tmp_path / "run", **changes | {"generations": 2})).summary
    members, game = load_members(tmp_path / "run"), tabulate(GAMES["kuhn"]())
    assert {tuple(member.experiment.config["layers"]) for member in members} == {(8,), (4, 4)}
    policies = {member.uid: policy_of(member, game) for member in members}
    last = {row["uid"]: row["fitness"] for row in rows(tmp_path / "run/lineage.jsonl") if row["generation"] == 1}
    lost = {uid: float(exploitability(game, policy[None])[0]) for uid, policy in policies.items()}
    assert len({*last.values()}) == len(members) and last == pytest.approx(
        {uid: -x for uid, x in lost.items()}, abs=1e-6
    )
    ranked = [by_rules(game, policies[uid]) for uid in result["payoffs"]["uid"]]
    expected = [[(wins(one, other) - wins(other, one)) / 2 for other in ranked] for one in ranked]
    np.testing.assert_allclose(result["payoffs"]["mean"], expected, rtol=1e-3, atol=1e-6)


@pytest.mark.slow
def test_ranks_of_mpi_make_the_same_run(tmp_path: Path) -> None:
    """Two ranks that are stopped and resumed, against two shards of one process: bit for bit, payoffs too."""
    whole, ranks = tmp_path / "whole", tmp_path / "ranks"
    train(tiny(whole, **KUHN, shards=2))
    begin = flags(ranks, "--exchange", "mpi", **KUHN | {"generations": 2}, shards=2)
    for command in (begin, ["resume", str(ranks), "--generations", "4"]):
        done = subprocess.run(mpiexec(2, *COMMAND, *command), capture_output=True, text=True, timeout=240)
        assert done.returncode == 0, done.stdout + done.stderr
    lineage = rows(ranks / "lineage.jsonl")
    assert any(row["parent"] != row["uid"] for row in lineage)
    same_run(whole, ranks)


@pytest.mark.slow
def test_workers_find_the_least_exploitable_of_their_champions(tmp_path: Path) -> None:
    """The second worker sees the members of the first; the best of both champions is that of the workspace."""
    for name in "ab":
        exchange = {"name": "directory", "workspace": str(tmp_path), "worker": name}
        train(tiny(exchange=exchange, **KUHN))
    champions = {
        name: json.loads((tmp_path / "workers" / name / "result.json").read_text())["champion"] for name in "ab"
    }
    best = max(champions, key=lambda name: champions[name]["evaluation"]["mean"])
    assert best_of_workers(tmp_path) == tmp_path / "workers" / best
    assert champions["a"]["evaluation"]["mean"] != champions["b"]["evaluation"]["mean"]
    exploitability = -champions[best]["evaluation"]["mean"]
    assert f"exploitability {exploitability:.4g} exactly" in shoal("evaluate", tmp_path / "workers" / best).out
    page = write_report(tmp_path).read_text()
    assert "Minus exploitability." in page and "minus the exploitability of the worker’s champion" in page
    assert not any(text in page for text in ("held-out", "over episodes", "Evaluation noise"))


def test_training_ends_with_the_command_that_shows_games(tmp_path: Path) -> None:
    told = shoal(*flags(tmp_path / "run", **KUHN | {"generations": 1})).out
    assert f"games:        shoal play {tmp_path / 'run'}\n" in told and "--video" not in told


def test_commands_tell_exploitability_and_payoffs(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    champion = json.loads((run / "result.json").read_text())["champion"]
    assert f"exploitability {-champion['selection_fitness']:.4g} exactly" in shoal("evaluate", run).out
    assert "0 a game (as player 0 " in shoal("evaluate", run, "--against", run).out
    alone = shoal("play", run, "--episodes", "2")
    assert alone.out.count("wins") == 2 and "card " in alone.out and "pass " in alone.out
    monkeypatch.setattr("builtins.input", lambda prompt: "bet")
    person = shoal("play", run, "--player", "1", "--seed", "3")
    assert "player 1: bet" in person.out and "(" not in person.out


def test_evaluate_tells_what_the_one_wins_from_the_other(run: Path) -> None:
    """As each player, by the rules of Kuhn poker."""
    champion, game = load_champion(run), tabulate(GAMES["kuhn"]())
    member = next(x for x in load_members(run) if x.uid != champion.uid)
    one, other = (by_rules(game, policy_of(x, game)) for x in (member, champion))
    told = shoal("evaluate", run, "--member", str(member.uid), "--against", run).out
    found = re.search(r": (\S+) a game \(as player 0 (\S+), as player 1 (\S+)\)\n", told)
    first, second = wins(one, other), -wins(other, one)
    assert found and [*map(float, found.groups())] == pytest.approx([(first + second) / 2, first, second], rel=1e-3)
    assert abs(first - second) > 1e-3


def test_a_person_may_leave_a_game(run: Path, monkeypatch: pytest.MonkeyPatch, said: Said) -> None:
    def closed(prompt: str) -> str:
        raise EOFError

    monkeypatch.setattr("builtins.input", closed)
    left = shoal("play", run, "--player", "1", "--seed", "3")
    assert left.code == 2
    said(left.err)


@pytest.mark.parametrize(
    ("names", "given", "chosen", "asked"),
    [
        (["pass", "bet"], ["", "raise", "3", "0", "²", "bet"], 1, "your move, of 1 pass, 2 bet: "),
        (["pass", "bet"], [" 1 "], 0, "your move, of 1 pass, 2 bet: "),
        (["2", "1"], ["1"], 0, "your move by its number, of 1 (2), 2 (1): "),
        (["take", "take"], ["take", "2"], 1, "your move by its number, of 1 (take), 2 (take): "),
    ],
    ids=str,
)
def test_a_person_names_a_move_or_its_number(
    names: list[str], given: list[str], chosen: int, asked: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The number alone where a name could be taken for another move."""
    prompts, answers = list[str](), iter(given)
    monkeypatch.setattr("builtins.input", lambda prompt: (prompts.append(prompt), next(answers))[1])
    assert ask_person("J", names) == chosen and not [*answers]
    assert prompts == [asked] * len(given)


class Unshown(Kuhn):
    def to_string(self, state: Any) -> str:
        raise ZeroDivisionError("of my own")


def test_a_game_of_ones_own_that_cannot_be_shown(said: Said) -> None:
    game = tabulate(Unshown())
    player = Player("my_game:Unshown", game, np.full(game.legal.shape, 0.5))
    with pytest.raises(BadInput) as error:
        list(moves(player, 0, None, ask_person))
    said(error.value)


def test_games_are_refused_where_they_are_none(run: Path, tmp_path: Path, said: Said) -> None:
    train(tiny(tmp_path / "run", generations=1))
    none = ("play", tmp_path / "run", "--player", "0"), ("evaluate", run, "--against", tmp_path / "run")
    printed = [
        ("play", run, *flags)
        for flags in (("--video", "champion.mp4"), ("--live",), ("--population",), ("--stochastic",))
    ]
    exact = [("evaluate", run, "--against", run, *flags) for flags in (("--stochastic",), ("--levels", "train"))]
    exact += [("evaluate", run, *flags) for flags in (("--episodes", "5"), ("--seed", "1"), ("--stochastic",))]
    for command in (*none, *printed, *exact):
        said(shoal(*command).err)
    with pytest.raises(BadInput) as error:
        evaluate(run, episodes=5)
    said(error.value)


def test_the_page_has_payoffs_and_decades(run: Path) -> None:
    matrix = np.array(json.loads((run / "result.json").read_text())["payoffs"]["mean"])
    np.testing.assert_allclose(matrix, -matrix.T, atol=1e-5)
    page = write_report(run).read_text()
    assert all(text in page for text in ("minus exploitability", "Head-to-head payoffs", "Minus exploitability."))
    assert "over episodes" not in page and "held-out" not in page


def test_a_comparison_tells_what_its_scores_are(run: Path, tmp_path: Path) -> None:
    other = write_run(tmp_path / "other", 4, 3)
    for runs, told in (((run, shutil.copytree(run, tmp_path / "copy")), False), ((run, other), True)):
        write_comparison(runs, tmp_path / "page.html")
        page = (tmp_path / "page.html").read_text()
        assert "exploitability" in page
        assert ("held-out" in page, "noisy" in page) == (told, told)


@pytest.mark.parametrize("case", REFUSED)
def test_what_does_not_go_with_games_is_refused(case: str, said: Said) -> None:
    changes = KUHN | REFUSED[case]
    with pytest.raises(BadInput) as error:
        make_plan(tiny(**changes | {"fitness": Fitness(**changes["fitness"])}))
    said(error.value)


def test_uniform_policies_are_as_exploitable_as_they_are_known_to_be(run: Path) -> None:
    """0.458333 of Kuhn poker: members hardly differ from that before they learn."""
    first = [json.loads(line)["fitness"] for line in (run / "lineage.jsonl").read_text().splitlines()][:4]
    assert np.mean(first) == pytest.approx(-0.458, abs=0.12)
