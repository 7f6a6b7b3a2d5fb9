"""Figures of what agents recorded of their updates, and of their training episodes."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from shoal.report.figures import fitness_axis
from shoal.report.layout import Layout, quantile
from shoal.report.over_time import curve, figure, member_lines
from shoal.report.rendering import Markup, parts
from shoal.report.run import Run
from shoal.report.words import went

WORDS = {  # what metrics of Shoal's own agents are called in plain words, and how they are read
    "episode/return": ("Return while training", "With exploration, and so mostly below the fitness."),
    "policy/entropy": ("Entropy", "How undecided the policy is. Where it falls early, little is tried any more."),
    "policy/kl": (
        "Step of the policy",
        "KL from the old policy to the new one. Typically about 0.01; with much more the policy unlearns.",
    ),
    "episode/length": ("Length of training episodes", "In environment steps."),
    "policy/clipped": ("Clipped steps", "The share in which the policy wanted to move beyond the clip range."),
    "policy/temperature": ("Temperature", "The weight of the entropy, which the agent learns itself."),
    "value/explained": ("Explained variance", "1: the critic predicts every return; 0 and less: it knows nothing."),
    "value/mean": ("Value", "What the critic expects. Where it runs away from the returns, learning diverges."),
    "value/target": ("Target of the value", "What the critic is taught."),
    "loss/policy": ("Loss of the policy", ""),
    "loss/value": ("Loss of the critic", ""),
    "loss/critic": ("Loss of the critic", ""),
}
SHOWN = 3  # figures that stand there at once, a row of them


def recorded(run: Run) -> list[str]:
    """Metrics of which a figure is drawn."""
    return [name for name in WORDS if name in run.metric_names]


def learning(layout: Layout) -> Markup:
    """A figure of each metric: the members, and the champion's lineage."""
    whose = "the champion’s lineage" if layout.run.method.copies else "the champion"
    keys = parts.legend([("champion", whose), ("m", "each member")])
    drawn = [(WORDS[name][0], figure) for name in recorded(layout.run) if (figure := _metric(layout, name, whose))]
    first, others = drawn[:SHOWN], drawn[SHOWN:]
    also = f"Also: {', '.join(heading for heading, _ in others).lower()}"
    more = parts.folded(parts.pair(*(figure for _, figure in others)), also) if others else Markup()
    return keys + parts.pair(*(figure for _, figure in first)) + more


def _metric(layout: Layout, name: str, whose: str) -> Markup:
    values = layout.run.metric(name)
    if not np.isfinite(values).any():
        return Markup()
    along, middle = layout.run.along(values), quantile(values, 0.5)
    heading, words = WORDS[name]
    axis, outside = fitness_axis(values, np.r_[middle, along])
    of, course = (whose, along) if np.isfinite(along).any() else ("the middle of the population", middle)
    layers = [*member_lines(layout, values, axis), curve(layout, along, axis, "champion")]
    lines = {whose: along, "middle of the population": middle}
    view = replace(axis, label=""), layers
    return figure(layout, heading, f"Of {of} it {went(course)}.", f"{words}{outside}", lines, view, height=150)
