"""What the pages claim, and what each claim rests on: python benchmarks/claims.py writes docs/claims.md.

Dates, commits and processors are those that the raw files name.
"""

import json
import re
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parent.parent
RESULTS, PAGE = ROOT / "benchmarks" / "results", ROOT / "docs" / "claims.md"
HEAD = """# What the claims rest on

Each row is a claim of these pages: the files that were measured, the command that wrote them, and when, on what and at
which commit it ran. "Not recorded" means that the file does not name it. A commit that ends in "-dirty" was changed.
[Learning curves](learning-curves.md) and the [leaderboard](../LEADERBOARD.md) name theirs.

| claim | raw file | command | dates | processors | commits |
|---|---|---|---|---|---|
"""


class Claim(NamedTuple):
    """One row."""

    text: str
    file: str  # in RESULTS
    command: str  # after "python benchmarks/"


CLAIMS = (
    Claim("[Kills, full disks, damaged and hostile files](faults.md) lose no run", "faults.json", "faults.py"),
    Claim("[`bipedal-walker`](runs.md#resume) resumes in 5.5 to 6.5 s", "resume.json", "resume.py"),
    Claim("[Python and TensorFlow versions](platforms.md) that pass the tests", "versions.json", "versions.py"),
    Claim("[Workers, lost or not](cluster.md#what-is-exact), change no result", "cluster.json", "cluster.py"),
    Claim(
        "[SubprocVecEnv gives PPO on CartPole what DummyVecEnv gives](coming-from.md#what-is-different-here)",
        "same_processes.json",
        "same_processes.py",
    ),
    Claim(
        "[EnvPool's MuJoCo tasks are Gymnasium's](mujoco.md#envpools-versions) with the same version of MuJoCo",
        "mujoco_agreement.json",
        "mujoco_agreement.py",
    ),
    Claim("[PPO's speed](speed.md#ppo)", "speed.json", "speed.py"),
    Claim("[PPO's speed on Breakout](speed.md#ppo-on-breakout)", "atari_speed.json", "atari_speed.py"),
    Claim(
        "[The speed of TD3, SAC and TQC](speed.md#td3-sac-tqc-and-crossq)",
        "off_policy_speed.json",
        "off_policy_speed.py",
    ),
    Claim("[Stepping beside learning](speed.md#ppo)", "beside_stepping.json", "beside_stepping.py"),
    Claim("[The speed of memories and masks](memory.md#the-comparison)", "curve_speed.json", "curve_speed.py"),
    Claim(
        "[The first command's seconds](first-command.md#compared-with-stable-baselines3) in its figure",
        "first_command_speed.json",
        "curve_speed.py --first-command",
    ),
    Claim(
        "[The study, corrected](sources/study-of-2021.md), takes 9.5 minutes", "published.json", "speed.py --published"
    ),
)


def facts(content: Any) -> dict[str, set[str]]:
    """All dates, processors and commits in a raw file, wherever they stand."""
    found: dict[str, set[str]] = {"date": set(), "cpu": set(), "commit": set()}
    parts = content.values() if isinstance(content, dict) else content if isinstance(content, list) else ()
    if isinstance(content, dict):
        for name, known in found.items():
            if isinstance(content.get(name), str):
                known.add(content[name])
    for part in parts:
        for name, more in facts(part).items():
            found[name] |= more
    return found


def row(claim: Claim) -> str:
    """A line of the table."""
    found = facts(json.loads((RESULTS / claim.file).read_text(encoding="utf-8")))
    days = sorted({date[:10] for date in found["date"]})
    commits = sorted({re.sub(r"^(\w{10})\w*", r"\1", commit) for commit in found["commit"]})
    named = ", ".join(commits) if len(commits) < 4 else f"{len(commits)} commits"
    cells = [" to ".join(dict.fromkeys(days[:1] + days[-1:])), ", ".join(sorted(found["cpu"])), named]
    shown = " | ".join(cell or "not recorded" for cell in cells)
    raw, command = f"[{claim.file}](../benchmarks/results/{claim.file})", f"`python benchmarks/{claim.command}`"
    return f"| {claim.text} | {raw} | {command} | {shown} |\n"


def page() -> str:
    """The page."""
    return HEAD + "".join(map(row, CLAIMS))


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
