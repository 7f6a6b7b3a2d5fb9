"""Colours of the pages, of pictures and of drawn grids."""

from __future__ import annotations

# Okabe and Ito's colours, which colour-blind readers distinguish too.
ORANGE, SKY, GREEN, YELLOW = "#E69F00", "#56B4E9", "#009E73", "#F0E442"
BLUE, VERMILION, PURPLE = "#0072B2", "#D55E00", "#CC79A7"

PAIR = (BLUE, VERMILION)  # two members beside each other
CHANNELS = (YELLOW, SKY, ORANGE, GREEN, PURPLE, VERMILION, BLUE, "#FFFFFF", "#999999", "#7F3C8D")  # of a grid, on black

# Of a page, light and dark. lead: the champion and its lineage, in every figure, and nothing else; sea: what all members
# have in common, such as their median; c0 to c7: series, such as arms and founders, which repeat after SERIES of them.
PAGE = {
    "paper": ("#f7f6f2", "#11161d"),
    "card": ("#ffffff", "#181f28"),
    "ink": ("#1b2530", "#e7ebf0"),
    "soft": ("#56616e", "#a3afbc"),
    "rule": ("#e4e1d8", "#2b3541"),
    "grid": ("#ece9e1", "#27303b"),
    "sea": ("#0b6480", "#6cc5e0"),
    "lead": ("#c8500a", "#ff9a57"),
    "lead-text": ("#ac4306", "#ffa76b"),
    "member": ("#6b7c8d", "#8fa0b2"),
    "band": ("#dcebf0", "#1e3441"),
    "inner": ("#b4d4e0", "#2b5062"),
    "heat": ("#62a5bb", "#2b6479"),
    "good": ("#15683f", "#7bd3a1"),
    "warn": ("#8a4b00", "#f3bd6b"),
    "c0": (BLUE, "#5fb5ee"),
    "c1": (GREEN, "#43cf9f"),
    "c2": ("#b05a8c", "#e29fc6"),
    "c3": ("#b08600", "#f0d264"),
    "c4": ("#46a5d8", "#a5dcf7"),
    "c5": ("#6a4fa3", "#b9a3ee"),
    "c6": ("#7a5230", "#c9a27c"),
    "c7": ("#a3a9af", "#66717d"),
}
SERIES = 8


def series(at: int) -> str:
    """Return the classes of the strokes of a series: its colour, and dots where colours repeat."""
    return f"c{at % SERIES}{' d2' * (at >= SERIES)}"
