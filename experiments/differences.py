"""Prints the tables of the pages that compare presets with published ones: python experiments/differences.py

`WORTH` has what was measured of a change, alone or with a few others.
"""

import dataclasses
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from common.settings import declared
from ppo.config import PPOConfig
from ppo.presets import DEFAULT, PRESETS

PAIRS = (("bipedal-walker-2021", DEFAULT), ("cartpole", "cartpole-corrected"), ("breakout-2021", "breakout"))
STUDY = "[three seeds](studies/first-command.md)"
WORTH = {
    "reward_design": f"{STUDY}: if all three (with `fall_cost` and `action_cost`) are left out, no seed is solved in "
    "1.7 million steps",
    "fall_cost": "see `reward_design`",
    "action_cost": "see `reward_design`; a median episode of 314, and 308 with half the cost",
    "backend": f"{STUDY}: no difference in steps is shown; EnvPool takes less time",
    "hidden_sizes": f"{STUDY}: with the next three, a first validation of 300 after 285,696 steps, without after "
    "900,096",
    "initial_gains": "see `hidden_sizes`",
    "mean_activation": "see `hidden_sizes`",
    "initial_std": "see `hidden_sizes`",
    "noise_color": f"{STUDY}: no difference in steps is shown; gaits of 303 to 310, and 295 to 300 with 0.5",
    "reused_trajectories": f"{STUDY}: a first validation of 300 after 285,696 steps, and after 666,624 if each is "
    "used once for all passes",
    "desired_kl": f"{STUDY}: no difference is shown",
    "stop_score": "with 301 and no margin, three of nine seeds stopped by luck, below 300",
    "entropy_coefficient": "[ten seeds of each](studies/entropy-bonus.md)",
}


def differences(published: PPOConfig, ours: PPOConfig) -> list[tuple[str, object, object]]:
    """Setting, published value and ours, of all settings that differ and have an effect in the published preset."""
    has_effect = {
        what.name
        for what in declared(PPOConfig).values()
        if all(needs.allows(getattr(published, needs.other)) for needs in what.used_with)
    }
    pairs = [(name, getattr(published, name), getattr(ours, name)) for name in dataclasses.asdict(ours)]
    return [pair for pair in pairs if pair[1] != pair[2] and pair[0] in has_effect]


def table(published: str, ours: str) -> str:
    """The differences of two presets as Markdown; the default command's with what they are worth."""
    worth = ours == DEFAULT
    lines = [f"| setting | `{published}` | `{ours}` |{' worth |' * worth}", f"|---|---|---|{'---|' * worth}"]
    for name, *values in differences(PRESETS[published], PRESETS[ours]):
        cells = [f"`{name}`", *map(_shown, values)] + [WORTH.get(name, "")] * worth
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def _shown(value: object) -> str:
    if isinstance(value, bool):
        return "on" if value else "off"
    if isinstance(value, tuple):
        return ", ".join(map(_shown, value)) or "none"
    if isinstance(value, int | float):
        return f"{value:,.4g}" if isinstance(value, float) else f"{value:,}"
    return f"`{value}`" if value else "none"


if __name__ == "__main__":
    print("\n\n".join(table(*pair) for pair in PAIRS))
