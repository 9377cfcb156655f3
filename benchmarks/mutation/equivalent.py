"""Faults that no test needs to notice, and why: most change nothing, some only looks, speed or random draws."""

XLA = "with or without XLA the numbers are the same but for rounding; benchmarks measure the speed"
COPIES = "trials are copied before they are read, which is only slower"
EQUIVALENT: dict[str, str] = {
    **{f"Agent.py: not self.sees_images → (self.sees_images){nth}": XLA for nth in ("", " (2)", " (3)")},
    "Agent.py: False → True": "AutoGraph finds no branches or loops on tensors to rewrite",
    **{f"programs/tuning/search.py: False → True{nth}": COPIES for nth in ("", " (2)", " (3)")},
    "common/figures/curves.py: 1.6 → 3.2": "the width of a line is a matter of taste",
    "ppo/losses.py: 1e-8 → 2e-08": "the difference is below the rounding of float32",
    "companions/results.py: TYPE_CHECKING → (not TYPE_CHECKING)": "annotations are not evaluated while programs run",
    "common/rollout/probe.py: 5 → 6 (4)": "actions are held for a step more; the probe finds the same",
    "common/figures/style.py: False → True (3)": "the frame of a legend is a matter of taste",
    "companions/OffPolicyAgentTrainer.py: False → True (2)": "it is set before it is read",
    "common/figures/curves.py: figure.align_ylabels() → pass (4)": "whether labels stand below each other",
    "common/figures/style.py: axis.grid(alpha=0.25) → pass": "a grid is a matter of taste",
    "common/figures/style.py: axis.set_axisbelow(True) → pass": "a grid before or behind curves is a matter of taste",
    "common/figures/style.py: 0.5 → 1.0 (2)": "the width of a line is a matter of taste",
    "common/figures/importances.py: False → True (2)": "the frame of a legend is a matter of taste",
    "common/figures/importances.py: 3 → 4": "the height of a figure is a matter of taste",
    **{
        f"companions/SACAgent.py: False → True{nth}": "more is watched; the gradients are the same"
        for nth in (" (2)", " (3)")
    },
    "companions/sac_presets.py: 5 → 6": "how often a preset validates, which its source does not tell",
    "companions/presets.py: 40 → 41 (2)": "a tuned number, whose neighbours do as well",
    "programs/notebook/figures.py: left < 1e-9 → left <= 1e-9": "γλ is never just that much below 1",
    "common/arrays_file.py: 16 → 17": "a generous bound, against files that fill the memory",
    "common/runs/side_by_side.py: abs(number) < 10 → abs(number) <= 10": "10 is a whole number, which has no decimals",
    "programs/tune.py: files.make_folder(folder) → pass": "the lock makes it, too; the rest is against power cuts",
    "programs/study_runs.py: code > 128 → code >= 128": "an exit code of 128 names no signal, and no program has it",
}
"""The fault's name → the reason that no test notices it."""
