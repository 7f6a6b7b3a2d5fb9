"""Games in which stones are put on a board, and so many in a row win: tic-tac-toe, and Connect Four on small boards."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from shoal.core.errors import BadField, check_least
from shoal.environments.games.tree import OVER

EMPTY, STONES = ".", "xo"


@dataclass(frozen=True)
class TicTacToe:
    """Tic-tac-toe: a state is the board, cell by cell."""

    rows = columns = in_a_row = 3

    @property
    def action_names(self) -> tuple[str, ...]:
        return tuple(f"{row + 1},{column + 1}" for row in range(self.rows) for column in range(self.columns))

    @cached_property
    def _lines(self) -> list[list[int]]:
        """The cells of each line that wins."""
        found = []
        for row in range(self.rows):
            for column in range(self.columns):
                for down, right in ((0, 1), (1, 0), (1, 1), (1, -1)):
                    line = [(row + i * down, column + i * right) for i in range(self.in_a_row)]
                    if all(r < self.rows and 0 <= c < self.columns for r, c in line):
                        found.append([r * self.columns + c for r, c in line])
        return found

    def initial_state(self) -> str:
        return EMPTY * (self.rows * self.columns)

    def _won(self, state: str) -> bool:
        """True where the last stone has won."""
        last = STONES[self._stones(state) - 1 & 1]
        return any(all(state[cell] == last for cell in line) for line in self._lines)

    def _stones(self, state: str) -> int:
        return len(state) - state.count(EMPTY)

    def current_player(self, state: str) -> int:
        return OVER if EMPTY not in state or self._won(state) else self._stones(state) % 2

    def chance_outcomes(self, state: str) -> list[tuple[float, str]]:
        return []

    def _cells(self, state: str) -> dict[int, int]:
        """The cell that a stone comes to by each legal action."""
        return {cell: cell for cell, stone in enumerate(state) if stone == EMPTY}

    def children(self, state: str) -> dict[int, str]:
        stone = STONES[self._stones(state) % 2]
        return {x: state[:cell] + stone + state[cell + 1 :] for x, cell in self._cells(state).items()}

    def returns(self, state: str) -> float:
        if not self._won(state):
            return 0.0
        return 1.0 if self._stones(state) % 2 else -1.0

    def information_state(self, state: str) -> list[int]:
        player = self._stones(state) % 2
        return [1 - player, player] + [int(stone == kind) for kind in STONES + EMPTY for stone in state]

    def to_string(self, state: str) -> str:
        rows = [state[i : i + self.columns] for i in range(0, len(state), self.columns)]
        return "\n".join(["", *rows])


@dataclass(frozen=True)
class Connect(TicTacToe):
    """Connect Four on a small board: stones fall to the lowest free cell of a column. Row 0 is the lowest."""

    rows: int = 4
    columns: int = 3
    in_a_row: int = 3
    """stones that win"""

    def __post_init__(self) -> None:
        check_least(1, self, "rows", "columns", "in_a_row")
        if self.in_a_row > max(self.rows, self.columns):
            raise BadField("in_a_row", "does not fit on the board", value=self.in_a_row)

    @property
    def action_names(self) -> tuple[str, ...]:
        return tuple(f"column {column + 1}" for column in range(self.columns))

    def _cells(self, state: str) -> dict[int, int]:
        lowest = {column: state[column :: self.columns].find(EMPTY) for column in range(self.columns)}
        return {column: row * self.columns + column for column, row in lowest.items() if row >= 0}

    def to_string(self, state: str) -> str:
        return "\n".join(["", *reversed(super().to_string(state).split("\n")[1:])])
