"""Whether EnvPool's MuJoCo tasks are Gymnasium's, step by step: python benchmarks/mujoco_agreement.py

EnvPool draws the first state of an episode itself. The observation tells this state, but for the horizontal position,
on which nothing depends. Gymnasium's environment is put into the same state, and both get the same random actions.
The table has the largest differences between their observations and rewards, relative to the size of the number where
it is above 1. Rounding grows from step to step: a falling body's contacts are chaotic. The table of the installed
version of MuJoCo goes into results/mujoco_agreement.json.
"""

import contextlib
import io
import sys
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from speed import RESULTS, machine

from common.files import read_json, write_json
from common.runs.command_line import one_line_errors, parse_settings
from common.user_code import held_back_errors

COLUMNS = {"at first": 0, "1 steps": 1, "10 steps": 10, "49 steps": 49}  # the differences until then
FILE = RESULTS / "mujoco_agreement.json"


def _shifted(unseen: int, positions: int) -> Callable[[Any, np.ndarray], tuple[np.ndarray, np.ndarray]]:
    """A state whose first `unseen` positions are 0, then positions and velocities as the observation has them."""

    def state(env: Any, seen: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return np.r_[np.zeros(unseen), seen[:positions]], seen[positions : positions + env.model.nv]

    return state


def _double_pendulum(env: Any, seen: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    return np.r_[seen[0], np.arctan2(seen[1:3], seen[3:5])], seen[5:8]


def _reacher(env: Any, seen: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    return np.r_[np.arctan2(seen[2:4], seen[:2]), seen[4:6]], np.r_[seen[6:8], 0, 0]


def _pusher(env: Any, seen: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    env.set_state(np.zeros(env.model.nq), np.zeros(env.model.nv))
    x, y, _ = seen[17:20] - env.get_body_com("object")  # it slides along y first
    return np.r_[seen[:7], y, x, 0, 0], np.r_[seen[7:14], np.zeros(4)]


STATES = {
    "HalfCheetah-v5": _shifted(1, 8),
    "Hopper-v5": _shifted(1, 5),
    "Walker2d-v5": _shifted(1, 8),
    "Ant-v5": _shifted(2, 13),
    "Humanoid-v5": _shifted(2, 22),
    "InvertedDoublePendulum-v5": _double_pendulum,
    "Reacher-v5": _reacher,
    "Swimmer-v5": _shifted(2, 3),
    "Pusher-v5": _pusher,
}
"""A task → positions and velocities of MuJoCo's state from an episode's first observation."""


def differences(name: str, seed: int) -> tuple[np.ndarray, bool]:
    """Of observations and rewards after each step of an episode, [T + 1, 2]; and whether it ended alike."""
    import envpool

    with warnings.catch_warnings(), held_back_errors(), contextlib.redirect_stdout(io.StringIO()):
        warnings.simplefilter("ignore")
        pool = envpool.make(name, env_type="gymnasium", num_envs=1, seed=seed)
        env: Any = gymnasium.make(name).unwrapped
    seen = pool.reset()[0][0]  # [S]
    env.reset(seed=seed)
    env.set_state(*STATES[name](env, seen))
    found = [(apart(env._get_obs(), seen), 0.0)]  # noqa: SLF001  no public name
    rng = np.random.default_rng(seed)
    low, high = env.action_space.low, env.action_space.high
    alike = True
    for _ in range(max(COLUMNS.values())):
        action = rng.uniform(low, high)
        ours, reward, ended, _, _ = env.step(action)
        theirs, rewards, done, truncated, _ = pool.step(action[None])
        alike = alike and bool(done[0]) == ended and not truncated[0]
        if ended or done[0]:
            break
        found.append((apart(theirs[0], ours), apart(rewards[0], reward)))
    pool.close()
    return np.array(found), alike


def apart(one: np.ndarray, other: np.ndarray) -> float:
    """The largest difference, relative to numbers above 1."""
    return float((np.abs(one - other) / np.maximum(1.0, np.abs(other))).max())


@dataclass(frozen=True)
class Arguments:
    """Compare EnvPool's MuJoCo tasks with Gymnasium's, step by step."""

    episodes: int = 10
    """Episodes of random actions of each task."""


def row(episodes: list[tuple[np.ndarray, bool]]) -> dict[str, float]:
    """A task's line of the table."""
    sizes = {name: max(float(found[: steps + 1, 0].max()) for found, _ in episodes) for name, steps in COLUMNS.items()}
    rewards = max(float(found[:, 1].max()) for found, _ in episodes)
    return {**sizes, "rewards": rewards, "ends alike": sum(alike for _, alike in episodes)}


def main() -> None:
    import envpool
    import mujoco

    with one_line_errors():
        played = parse_settings(Arguments).episodes
    print(f"Gymnasium {gymnasium.__version__} with MuJoCo {mujoco.__version__}, {played} episodes of random actions")
    print("".join([f"{'largest difference':26}", *(f"{name:>11}" for name in (*COLUMNS, "rewards"))]) + "  ends alike")
    rows = {}
    for name in STATES:
        rows[name] = row([differences(name, seed) for seed in range(played)])
        *sizes, alike = rows[name].values()
        print(f"{name:26}" + "".join(f"{size:11.1e}" for size in sizes) + f"  {alike} of {played}")
    versions = {"gymnasium": gymnasium.__version__, "envpool": envpool.__version__, "mujoco": mujoco.__version__}
    content = read_json(FILE) if FILE.exists() else {}
    content[mujoco.__version__] = {"machine": machine(), "versions": versions, "episodes": played, "tasks": rows}
    write_json(FILE, content)


if __name__ == "__main__":
    main()
