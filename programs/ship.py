"""Put the agent of a finished run into the project: python -m programs ship RUN NAME

agents/NAME then holds all that shows the agent and says where it is from; `python -m programs watch NAME` shows it.
"""

import shutil
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from common import arrays_file
from common.errors import UserError
from common.files import read_json, write_json
from common.results import score_text
from common.rollout import evaluation, policy_file
from common.runs import finished, run_folder
from common.runs.command_line import one_line_errors, parse_settings
from common.runs.options import is_folder_name
from common.state import pack_json
from programs import onnx_files, shipped
from programs.finished_run import UNKNOWN, Training, commands_of, commit_of, live_changes, training_of
from programs.methods import load_agent
from programs.run_arguments import check_at_least

EPISODES = 100  # that every stage's score is the mean of
TRIED_EPISODES = 10  # of each checkpoint, to choose the half-way one
OBSERVATIONS, IMAGES = 64, 16  # how many are recorded with their actions
LARGEST_POLICY, LARGEST_IMAGE_POLICY = 2**20, 8 * 2**20  # bytes
LICENCE = "MIT, as the project's LICENSE"


@dataclass(frozen=True)
class Arguments:
    """Put the agent of a finished run into the project, with its settings, scores and exported policies."""

    run: Path = field(metadata={"example": "runs/NAME"})
    """Folder of a finished run, like runs/NAME. The half-way policy is chosen among the run's checkpoints: if one is
    wanted, train the run with --checkpoint-every K --keep-checkpoints 1000."""
    name: str = field(metadata={"example": "NAME"})
    """Name of the agent, by which watch shows it. An agent of this name is replaced."""
    commit: str | None = None
    """Commit of the project that the run was trained with; only for runs whose config.json does not name it."""
    episodes: int = EPISODES
    """How many episodes the untrained and the half-way policy are scored with; fewer for slow environments. The
    trained policy is always scored with 100."""
    agents: Path | None = None
    """Folder of all agents; the default is the project's own, where watch finds them by name."""

    def __post_init__(self) -> None:
        check_at_least("episodes", self.episodes, 1)


def half_way(training: Training, untrained: float, trained: float, episodes: int) -> tuple[int, Any] | None:
    """The checkpoint whose score is nearest to the middle between untrained and trained.

    Returns:
        Its epoch and its agent; None if the run kept no checkpoint from before its best epoch.
    """
    middle, nearest, found = (untrained + trained) / 2, np.inf, None
    for epoch, agent in training.checkpoints():
        away = abs(float(training.score(agent, episodes).returns.mean()) - middle)
        if away < nearest:
            nearest, found = away, (epoch, agent)
    return found


def write_policy(path: Path, agent: Any) -> None:
    """Write what acting needs of an agent.

    Raises:
        UserError: the file would be too large to be kept with the project.
    """
    if agent.sees_images:
        weights = {f"{shipped.ACTOR}/{i}": array for i, array in enumerate(agent.actor.get_weights())}
        layout = pack_json({"format": policy_file.FORMAT, "kind": shipped.ACTOR})
        arrays_file.write_weights(path, {policy_file.LAYOUT: layout} | weights)
    else:
        policy_file.write(path, agent.acting_policy())
    largest = LARGEST_IMAGE_POLICY if agent.sees_images else LARGEST_POLICY
    if path.stat().st_size > largest:
        raise UserError(
            f"the policy takes {path.stat().st_size:,} bytes, at most {largest:,} are kept: train a smaller network "
            "(--hidden-sizes)"
        )


def recorded(training: Training, agent: Any) -> dict[str, np.ndarray]:
    """Observations of the first evaluated episode, [K, *shape], and what the agent does there, [K, *space.shape]."""
    policy = agent.acting_policy()
    observations: list[np.ndarray] = []
    most = IMAGES if agent.sees_images else OBSERVATIONS
    env = training.environment.make()
    observation, _ = env.reset(seed=evaluation.EVALUATION_SEED)
    over = False
    while not over and len(observations) < most:
        observations.append(np.array(observation))
        action = agent.action_map(policy.act(observations[-1][None]))[0]
        observation, _, terminated, truncated, _ = env.step(action)
        over = terminated or truncated
    env.close()
    stacked = np.stack(observations)
    return {"observations": stacked, "actions": agent.action_map(policy.act(stacked))}


def stage(training: Training, epoch: int, score: dict[str, Any]) -> dict[str, Any]:
    """What the card says of one stage of training; `median_seed` is that of the episode with the median score."""
    numbers = {name: float(score[name]) for name in ("mean", "low", "high", "mean_steps")}
    median = int(np.argsort(score["returns"], kind="stable")[(len(score["returns"]) - 1) // 2])
    counts = {"epoch": epoch, "steps": training.steps_of(epoch) if epoch else 0, "episodes": len(score["returns"])}
    return counts | numbers | {"median_seed": evaluation.EVALUATION_SEED + median}


def ship(run: Path, name: str, agents: Path, commit: str | None = None, episodes: int = EPISODES) -> Path:
    """Write agents/NAME atomically; see `Arguments`.

    Raises:
        UserError: the run is not finished, or the agent is too large.
    """
    if not is_folder_name(name):
        raise UserError(f"name {name!r} is not a folder name: use letters, digits, '-', '_' and '.'")
    if (agents / name).exists() and not shipped.is_shipped(agents / name):
        raise UserError(f"{agents / name} is there already, and is not a shipped agent: choose another name")
    training = training_of(run)
    commit = commit or commit_of(run)
    agents.mkdir(parents=True, exist_ok=True)
    unfinished = Path(tempfile.mkdtemp(prefix=".unfinished-", dir=agents))
    try:
        write_all(unfinished, training, name, commit, episodes)
        unfinished.chmod(0o755)
        _replace(agents / name, unfinished)
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)
    return agents / name


def _replace(folder: Path, new: Path) -> None:
    """Put a folder in another's place. If that fails, the other one is there again."""
    before = new.with_name(f"{new.name}-before")
    if folder.exists():
        folder.replace(before)
    try:
        new.replace(folder)
    except BaseException:  # also Ctrl-C
        if before.exists():
            before.replace(folder)
        raise
    shutil.rmtree(before, ignore_errors=True)


def write_all(folder: Path, training: Training, name: str, commit: str, episodes: int) -> None:
    """Every file of an agent.

    Args:
        episodes: that the untrained and the half-way policy are scored with.
    """
    from programs.policy_files import export  # imports TensorFlow

    agent, config, environment = load_agent(training.folder)
    untrained = training.agent_at(0)
    # What may be refused goes before the evaluations, which take minutes.
    write_policy(folder / shipped.STAGES["trained"], agent)
    export(agent, folder / shipped.EXPORT, onnx=onnx_files.can_write())
    scores: Any = evaluation_of(training, agent)
    write_json(folder / run_folder.EVALUATION, scores)
    shutil.copyfile(training.folder / run_folder.CONFIG, folder / run_folder.CONFIG)
    first = training.score(untrained, episodes).summary()
    stages = {"untrained": stage(training, 0, first)}
    if not agent.sees_images:  # whose policies take megabytes each
        write_policy(folder / shipped.STAGES["untrained"], untrained)
    means = float(stages["untrained"]["mean"]), float(scores["deterministic"]["mean"])
    middle = half_way(training, *means, min(episodes, TRIED_EPISODES))
    if middle is not None:
        stages["half-way"] = stage(training, middle[0], training.score(middle[1], episodes).summary())
        if not agent.sees_images:
            write_policy(folder / shipped.STAGES["half-way"], middle[1])
    stages["trained"] = stage(training, training.best_epoch, scores["deterministic"])
    arrays_file.write_weights(folder / shipped.RECORDED, recorded(training, agent))
    write_json(
        folder / shipped.CARD,
        {
            "name": name,
            "environment": environment.id,
            "max_episode_steps": environment.max_episode_steps,
            "preset": training.preset,
            "method": config.METHOD,
            "seed": config.seed,
            "run_epochs": training.last_epoch,
            "run_steps": training.steps_of(training.last_epoch),
            "commit": commit,
            "trained_by": commands_of(training.folder),
            "not_repeated": live_changes(training.folder),
            "shipped_by": f"python -m programs ship runs/{name} {name}",
            "licence": LICENCE,
            "stages": stages,
        },
    )


def evaluation_of(training: Training, agent: Any) -> Any:
    """The run's own evaluation.json if its 100 episodes are those that would be played now; else they are played."""
    folder, last = training.folder, training.config.epochs
    scores: Any = {}
    if finished.is_done(folder, finished.EVALUATE, last):  # not of other weights
        scores = read_json(folder / run_folder.EVALUATION)
    wanted = {
        "episodes": EPISODES,
        "seed": evaluation.EVALUATION_SEED,
        "max_episode_steps": training.environment.max_episode_steps,
    }
    if wanted.items() <= scores.get("deterministic", {}).items():
        return scores
    restarts = training.config.environment_restarts
    return evaluation.evaluate_both(
        agent.acting_policy(), agent.action_map, training.environment, EPISODES, restarts=restarts
    )


def main() -> None:
    """Ship what the command line names."""
    with one_line_errors():
        arguments = parse_settings(Arguments, prog="python -m programs ship")
        folder = ship(
            arguments.run, arguments.name, arguments.agents or shipped.AGENTS, arguments.commit, arguments.episodes
        )
        card: Any = read_json(folder / shipped.CARD)
        for name, what in card["stages"].items():
            print(
                f"{name}: {what['steps']:,} steps, score {score_text(what['mean'])} over {what['episodes']} episodes"
            )
        if not onnx_files.can_write():
            print("no ONNX file was written, which needs pip install -r requirements/export.txt")
        if card["commit"] == UNKNOWN:
            print("the commit that the run was trained with is unknown; add --commit to name it on the agent's card")
        for sentence in card["not_repeated"]:
            print(f"the commands on the agent's card do not repeat this: {sentence}")
        print(f"{folder}: python -m programs watch {arguments.name}")


if __name__ == "__main__":
    main()
