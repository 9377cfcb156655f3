"""Films of the trained agents and the page that shows them: python experiments/gallery.py [NAME ...] [--run RUN]

Each film shows an agent untrained, half-way and trained, side by side, with environment steps and score. It needs the
files in agents/ alone, but for agents that see images: their earlier stages are those of the run. Films are written to
docs/gallery/, the page to docs/gallery.md.
"""

import json
import math
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from PIL import Image

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from common.envs.environment import Environment  # noqa: E402
from common.errors import UserError  # noqa: E402
from common.files import replace_file  # noqa: E402
from common.results import score_text  # noqa: E402
from common.runs.command_line import one_line_errors, parse_settings  # noqa: E402
from common.runs.film import FilmedEpisode  # noqa: E402
from common.runs.side_by_side import GAP, Heading, opening, side_by_side, small_gif, with_minus  # noqa: E402
from programs import shipped  # noqa: E402
from programs.ship import training_of  # noqa: E402

FOLDER, PAGE = ROOT / "docs" / "gallery", ROOT / "docs" / "gallery.md"
DELIGHT = (
    "best-hardcore", "fast-walker", "best-walker", "lander", "breakout", "walker", "hardcore", "cartpole", "pendulum",
)  # fmt: skip
WIDTH = 640  # pixels
STAGES = 3
FRAMES_PER_SECOND = 12.5  # at most
LONGEST, REST = 20.0, 1.5  # seconds of a film, and for which its last frame is shown
HASTE = {"breakout": 6}  # how many times as fast a film is shown: the tunnel comes late in a game of two minutes
LARGEST = 1_500_000  # bytes


def order() -> list[str]:
    """The names of the agents, those that are a delight to watch first."""
    place = {name: number for number, name in enumerate(DELIGHT)}
    return sorted(shipped.names(), key=lambda name: (place.get(name, len(place)), name))


def card_of(name: str) -> dict[str, Any]:
    """What is said of an agent."""
    return json.loads((shipped.AGENTS / name / shipped.CARD).read_text(encoding="utf-8"))


def kept_stages(name: str) -> list[str]:
    """The stages of training whose policies are in agents/."""
    return [stage for stage, file in shipped.STAGES.items() if (shipped.AGENTS / name / file).exists()]


def agent_of(name: str, stage: str, epoch: int, run: Path | None) -> tuple[Any, Environment] | None:
    """An agent at a stage of its training, and its environment; None if neither agents/ nor the run has it."""
    kept = shipped.AGENTS / name
    if (kept / shipped.STAGES[stage]).exists():
        agent, _, environment = shipped.load(kept, stage)
        return agent, environment
    if run is None:
        return None
    training = training_of(run)
    return training.agent_at(epoch), training.environment


def frames_of(agent: Any, environment: Environment, seed: int, haste: int) -> tuple[list[Image.Image], float]:
    """The first seconds of an episode, and how many frames make a second."""
    take = FilmedEpisode(agent.acting_policy(), agent.action_map, environment, seed, FRAMES_PER_SECOND / haste)
    return opening(take, (WIDTH - (STAGES - 1) * GAP) // STAGES, LONGEST * haste), take.frame_rate * haste


def heading(stage: str, what: dict[str, Any]) -> Heading:
    """The two lines above an episode."""
    return stage, f"{steps_of(what['steps'])}, score {with_minus(what['mean'])}"


def steps_of(steps: int) -> str:
    """Environment steps in few letters: '0 steps', '2,600 steps', '524k steps', '1.0M steps'."""
    if steps < 10_000:
        return f"{steps:,} steps"
    return f"{steps / 1e3:.0f}k steps" if steps < 999_500 else f"{steps / 1e6:.1f}M steps"


def draw_film(name: str, run: Path | None = None) -> Path:
    """Write the film of an agent.

    Args:
        name: of the agent.
        run: the run that it is from, for stages whose policies are not kept in agents/; None leaves these out.
    """
    headings, episodes = [], []
    for stage, what in card_of(name)["stages"].items():
        found = agent_of(name, stage, what["epoch"], run)
        if found is not None:
            headings.append(heading(stage, what))
            episodes.append(frames_of(*found, what["median_seed"], HASTE.get(name, 1)))
    frame_rate = episodes[0][1]
    film = side_by_side(headings, [frames for frames, _ in episodes], math.ceil(REST * frame_rate))
    path = FOLDER / f"{name}.gif"
    replace_file(path, small_gif(list(film), frame_rate, LARGEST))
    return path


def page() -> str:
    """The text of the gallery."""
    parts = [INTRODUCTION, *(section(name) for name in order()), READING, OWN]
    return "\n\n".join(part.strip() for part in parts) + "\n"


def section(name: str) -> str:
    """The part of the page about one agent."""
    card = card_of(name)
    limit, departures = card["max_episode_steps"], card.get("not_repeated", [])
    rows = [
        f"| {stage} | {what['steps']:,} | {what['episodes']} | "
        f"{number(what['mean'])} | {number(what['low'])} to {number(what['high'])} | "
        f"{what['mean_steps']:,.0f} |"
        for stage, what in card["stages"].items()
    ]
    return "\n".join([
        f"## {name}",
        "",
        f"![{card['environment']}: {', '.join(card['stages'])}](gallery/{name}.gif)",
        "",
        f"{card['environment']}: a score of {number(card['stages']['trained']['mean'])} after "
        f"{card['stages']['trained']['steps']:,} steps of training. Watch it: `python -m programs watch {name}`",
        "",
        "<details markdown>",
        "<summary>Its scores, and the commands that trained it</summary>",
        "",
        "| | environment steps | episodes | score | 95% interval of the mean | steps an episode |",
        "|---|---:|---:|---:|---:|---:|",
        *rows,
        "",
        *([] if limit is None else [f"An episode has at most {limit:,} steps.", ""]),
        f"Trained with seed {card['seed']} at commit {card['commit']}, and written to "
        f"[agents/{name}](../agents/{name}/{shipped.CARD}), by",
        "",
        "```bash",
        card["trained_by"],
        card["shipped_by"],
        "```",
        *(["", "These commands do not repeat this: " + " ".join(departures)] if departures else []),
        "",
        "</details>",
    ])  # fmt: skip


def number(value: float) -> str:
    """A score with a true minus."""
    return (f"{value:,.1f}" if abs(value) >= 1000 else score_text(value)).replace("-", "−")


INTRODUCTION = """
# Gallery

Trained agents come with the project. You can watch them at once, without training. If you build the site,
[three of them act live](live.md), and you can push them. Most films show an agent before training, half-way
in score, and after. Three show it before and after. `best-hardcore` and `best-walker` are the best of several
seeds, whose medians are among the [scores](results.md).

```bash
python -m programs watch best-hardcore           # in a window, or as a film if there is no screen
python -m programs watch walker --film           # as a film, walker.mp4
python -m programs watch walker --stage half-way # half-way; --stage untrained shows it before
python -m programs evaluate walker               # play the 100 episodes again
```
"""
READING = """
## How to read the films and scores

- "Untrained" is the agent before the first update.
- "Half-way" is a checkpoint of the same run. Of all checkpoints, it is the one whose score is nearest to the mean of
  the untrained and the trained agent's scores. The runs of `hardcore`, `best-hardcore` and
  `breakout` kept no early checkpoint, so these have two stages.
- "Trained" is the agent at the epoch whose parameters were kept.

A score is the mean total reward of the episodes. Actions are deterministic (without noise), and rewards are the
environment's own. Each film shows at most the first twenty seconds of the episode with the median score. That of
`breakout` shows its first two minutes, six times as fast. A panel turns pale when its episode or the film ends.

`breakout` needs `pip install -r requirements/atari.txt`. Of its policies only the trained one comes with the project,
because each takes 1.3 MB. An episode of it is a game of five lives, and a step is four frames. Without noise its 100
games are only four different ones, so the interval of its mean is too narrow.

The steps here count up to the best epoch; those in [Scores](results.md) count the whole run. A score may differ from
the one there for the same preset and seed. The agents were trained with
other commits, and some on another kind of processor. Each commit stands below its table; a + means
that the files differed from it. A seed repeats a run
[only under the same conditions](runs.md#the-same-to-the-byte). For example, `walker` was trained with the preset
`bipedal-walker` and seed 0, and scores more here than there.
"""
OWN = """
## Your own

```bash
python -m programs train pendulum-sac --name mine --checkpoint-every 1 --keep-checkpoints 1000
python -m programs ship runs/mine mine               # write policies, scores, settings and exports to agents/mine
python experiments/gallery.py mine                   # write its film to docs/gallery, and this page
```

`ship` takes a run that needs a module of yours if you type its name again (`--env`, `--wrappers`, `--networks`);
this page does not show such agents.

`agents/NAME` holds these files:

| file | what it is |
|---|---|
| `agent.json` | where the agent comes from, and its scores |
| `config.json` | every setting |
| `evaluation.json` | the scores of all episodes |
| `policy.npz`, `half-way.npz`, `untrained.npz` | the policy at each stage, as plain arrays |
| `recorded.npz` | observations and the actions that the agent chose for them, which a test compares |
| `export/` | the policy as a [SavedModel, a LiteRT and an ONNX file](deploy.md) |

If an agent sees images, only its trained policy is kept, because each policy takes megabytes. For its film add
`--run runs/NAME`: the other two stages are read from the run. The licence is that of the project.
"""


@dataclass(frozen=True)
class Arguments:
    """Draw films of the trained agents, and write the page that shows them."""

    names: tuple[str, ...] = field(default=(), metadata={"example": "[NAME ...]"})
    """Agents whose films are drawn; by default all that keep more than one stage."""
    run: Path | None = None
    """The run of the agent that is named, if it sees images: its earlier policies are read from the run's
    checkpoints."""


def main() -> None:
    """Draw the films that are named, or all, and write the page."""
    with one_line_errors():
        arguments = parse_settings(Arguments, prog="python experiments/gallery.py")
        if arguments.run is not None and len(arguments.names) != 1:
            raise UserError("--run is the run of one agent: name this agent before it")
        for name in arguments.names or [name for name in order() if len(kept_stages(name)) > 1]:
            shipped.folder_of(Path(name))
            path = draw_film(name, arguments.run)
            print(f"{path.relative_to(ROOT)}: {path.stat().st_size:,} bytes")
        replace_file(PAGE, page().encode())


if __name__ == "__main__":
    main()
