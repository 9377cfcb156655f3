"""How much each setting of a search mattered, and what its trials scored."""

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from common.figures.style import colour_of, style_axis, true_minus


def importances(shares: Mapping[str, float], scores: Sequence[float], metric: str) -> Figure:
    """Two panels: the share of each setting in the differences between trials, and the scores of the trials.

    Args:
        shares: setting → share, which add up to 1; empty before there are enough trials.
        scores: of the completed trials, in their order.
    """
    figure = Figure(figsize=(9, 3 + 0.25 * len(shares)), layout="constrained")
    left, right = figure.subplots(1, 2)
    names = sorted(shares, key=lambda name: shares[name])
    mattered, scored = "Too few trials to say which setting mattered", "No trial is complete"
    if names:
        mattered = f"{names[-1]} made {shares[names[-1]]:.0%} of the differences"
    left.barh(names, [shares[name] for name in names], color=colour_of(0))
    left.set_xlabel("Share of the differences between trials")
    left.set_title(mattered, loc="left", fontsize="medium")
    left.spines[["top", "right"]].set_visible(False)
    right.plot(np.arange(1, len(scores) + 1), scores, "o", color=colour_of(0), label="trial")
    if scores:
        best = np.maximum.accumulate(scores)  # [completed trials]
        right.step(np.arange(1, len(scores) + 1), best, where="post", color=colour_of(1), label="best so far")
        highest = true_minus(f"{max(scores):.4g}")
        scored = f"Best of {len(scores)} completed trials: {highest}, number {int(np.argmax(scores)) + 1}"
    right.set_xlabel("Completed trial")
    style_axis(right, f"{metric} (median over the trial's seeds)")
    right.xaxis.set_major_locator(MaxNLocator(integer=True))
    right.set_title(scored, loc="left", fontsize="medium")
    right.legend(frameon=False)
    return figure
