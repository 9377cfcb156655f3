"""The weights of the agents that act on the page Live: python experiments/live.py

They are written to docs/live/weights.js from the policies in agents/. The page's own code is beside that file. It is
plain JavaScript that reads these weights as a constant, so the page needs no server: a browser refuses to fetch JSON
for a page that was opened as a file.
"""

import base64
import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from common.errors import UserError  # noqa: E402
from common.files import replace_file  # noqa: E402
from common.nets.network import Constant, Dense, Network  # noqa: E402
from common.rollout import policy_file  # noqa: E402
from common.rollout.policies import CategoricalPolicy, NormalPolicy, SquashedPolicy  # noqa: E402
from common.runs.command_line import one_line_errors, parse_settings  # noqa: E402
from programs import shipped  # noqa: E402

WEIGHTS = ROOT / "docs" / "live" / "weights.js"
NAMES = {"walker": "fast-walker", "pendulum": "pendulum", "cartpole": "cartpole"}  # the page's name: the agent
HEADER = "// Written by experiments/live.py from agents/: float32, base64. Run it again when an agent has changed.\n"


def script() -> str:
    """The text of the file of weights."""
    return f"{HEADER}\nconst LiveWeights = {json.dumps({name: agent(of) for name, of in NAMES.items()}, indent=1)};\n"


def agent(name: str) -> dict[str, Any]:
    """What the page needs of an agent: its environment, its actions' bounds, scores and weights of each stage.

    Raises:
        UserError: the page's code cannot act as this policy does.
    """
    folder = shipped.AGENTS / name
    card = json.loads((folder / shipped.CARD).read_text(encoding="utf-8"))
    loaded, _, environment = shipped.load(folder)
    space = environment.action_space
    box = isinstance(space, gymnasium.spaces.Box)
    if not isinstance(loaded.policy, NormalPolicy | SquashedPolicy | CategoricalPolicy):
        raise UserError(
            f"{name} cannot act on the page: docs/live/policy.js knows Categorical, Normal and squashed Normal "
            "policies; choose another agent"
        )
    return {
        "environment": card["environment"],
        "limit": card["max_episode_steps"],
        "kind": policy_file.kind_of(loaded.policy),
        "low": space.low.tolist() if box else None,
        "high": space.high.tolist() if box else None,
        "stages": {
            stage: {"steps": what["steps"], "score": what["mean"], "layers": layers(name, stage)}
            for stage, what in card["stages"].items()
        },
    }


def layers(name: str, stage: str) -> list[dict[str, str]]:
    """The layers of a stage's network, from the first to the last.

    Raises:
        UserError: the network has more than dense layers one after the other.
    """
    loaded, _, _ = shipped.load(shipped.AGENTS / name, stage)
    heads = loaded.policy.heads  # type: ignore[attr-defined]  # both kinds of policy have them
    plain = (
        isinstance(heads, Network)
        and all(isinstance(layer, Dense) for layer in (*heads.hidden, heads.heads[0]))
        and all(isinstance(head, Constant) for head in heads.heads[1:])  # a standard deviation, for sampling
    )
    if not plain or heads.sides or heads.normalize.shift is not None:
        raise UserError(
            f"{name} cannot act on the page: docs/live/policy.js knows networks of dense layers, without symmetry and "
            "without normalised observations; choose another agent"
        )
    return [
        {"activation": layer.activation, "kernel": text_of(layer.kernel), "bias": text_of(layer.bias)}
        for layer in (*heads.hidden, heads.heads[0])
    ]


def text_of(array: np.ndarray) -> str:
    """An array as base64 of its float32 numbers, row by row, the least significant byte first."""
    return base64.b64encode(array.astype("<f4").tobytes()).decode("ascii")


@dataclass(frozen=True)
class Arguments:
    """Write the weights of the agents on the page Live."""


def main() -> None:
    """Write the file of weights."""
    with one_line_errors():
        parse_settings(Arguments, prog="python experiments/live.py")
        replace_file(WEIGHTS, script().encode())
        print(f"{WEIGHTS.relative_to(ROOT)}: {WEIGHTS.stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
