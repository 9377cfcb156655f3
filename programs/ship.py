"""Put the agent of a finished run into the project: python -m programs ship RUN NAME

agents/NAME then holds all that shows the agent and says where it is from; `python -m programs watch NAME` shows it.
"""

import dataclasses
import json
import shlex
import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import tyro

from common import arrays_file
from common.config import TrainingConfig
from common.envs.environment import Environment
from common.errors import UserError
from common.files import read_json, write_json
from common.rollout import evaluation, policy_file
from common.runs import checkpoint, run_folder
from common.runs.command_line import one_line_errors, parse, parse_settings
from common.runs.options import is_folder_name
from common.state import pack_json, part_of
from programs import shipped
from programs.methods import METHODS, Method, load_agent, new_agent, read_config

EPISODES = 100  # that every stage's score is the mean of
TRIED_EPISODES = 10  # of each checkpoint, to choose the half-way one
OBSERVATIONS = 64  # that are recorded with their actions
LARGEST_POLICY, LARGEST_IMAGE_POLICY = 2**20, 8 * 2**20  # bytes
LICENCE = "MIT, as the project's LICENSE"


@dataclass(frozen=True)
class Arguments:
    """Put the agent of a finished run into the project, with its settings, scores and exported policies."""

    run: Annotated[Path, tyro.conf.Positional]
    """Folder of a finished run, like runs/NAME. Train it with --checkpoint-every K --keep-checkpoints 1000 if a
    half-way policy is wanted: it is chosen among the run's checkpoints."""
    name: Annotated[str, tyro.conf.Positional]
    """Name of the agent, by which watch shows it. An agent of this name is replaced."""
    commit: str | None = None
    """Commit of the project that the run was trained with; only for runs whose config.json does not name it."""
    agents: Path | None = None
    """Folder of all agents; the default is the project's own, where watch finds them by name."""


@dataclass(frozen=True)
class Training:
    """What a run was, for the card.

    Args:
        folder: of the run.
        preset: its name.
        method, config: of the run.
        environment: where it was trained.
    """

    folder: Path
    preset: str
    method: Method
    config: TrainingConfig
    environment: Environment

    def steps_of(self, epoch: int) -> int:
        """Environment steps until the end of an epoch."""
        table = run_folder.read_results(self.folder)
        return int(table["steps"][list(table["epoch"]).index(epoch)])

    @property
    def best_epoch(self) -> int:
        """The epoch whose parameters the run ended with."""
        table = run_folder.read_results(self.folder)
        best = table["epoch"][table["is_best"] == 1] if self.config.adopt_best else []
        return int(best[-1]) if len(best) else int(table["epoch"][-1])

    def new_agent(self) -> Any:
        """The agent that the run began with."""
        return new_agent(self.config, self.environment)

    def checkpoints(self) -> Iterator[tuple[int, Any]]:
        """The agents of all checkpoints before the best epoch, by their epochs."""
        kept, best = self.folder / run_folder.CHECKPOINTS, self.best_epoch
        for epoch in reversed(checkpoint.generations(kept)):
            if epoch < best:
                agent = self.new_agent()
                agent.load_state(part_of(checkpoint.load(kept, epoch), "agent"))
                yield epoch, agent

    def score(self, agent: Any, episodes: int = EPISODES) -> evaluation.Evaluation:
        """Deterministic episodes, the first ones that `python -m programs evaluate` plays."""
        restarts = self.config.environment_restarts
        return evaluation.evaluate(
            agent.acting_policy(), agent.action_map, self.environment, episodes, True, restarts=restarts
        )


def training_of(run: Path) -> Training:
    """What is known of a finished run.

    Raises:
        UserError: it is no finished run.
    """
    preset, config = read_config(run)
    _, _, environment = load_agent(run)
    if run_folder.read_results(run)["epoch"][-1] < config.epochs:
        raise UserError(f"{run} is not finished: continue it with python -m programs resume {run}")
    return Training(run, preset, METHODS[config.METHOD], config, environment)


def command_of(training: Training, name: str, checkpoint_epoch: int | None) -> str:
    """The command that trains a run again.

    Args:
        training: the run.
        name: of its folder.
        checkpoint_epoch: the epoch of a checkpoint that the command should keep.

    Raises:
        UserError: no command gives these settings.
    """
    method, config = training.method, training.config
    preset = training.preset if training.preset in method.presets else method.default_preset
    words = [preset, *flags(method.presets[preset], config)]
    _, again, _ = parse(list(words), "train", method.presets, method.default_preset, method.preset_for)
    if again != config:
        raise UserError(f"{training.folder}: no command gives its settings, train it from a preset of this version")
    kept = [] if checkpoint_epoch is None else [f"--checkpoint-every {checkpoint_epoch} --keep-checkpoints 1000"]
    return " ".join(["python -m programs train", shlex.join(words), "--name", shlex.quote(name), *kept])


def flags(before: TrainingConfig, after: TrainingConfig) -> list[str]:
    """The settings that turn one config into another, as they are typed."""
    words: list[str] = []
    for field in dataclasses.fields(after):
        value, flag = getattr(after, field.name), field.name.replace("_", "-")
        if value == getattr(before, field.name):
            continue
        if isinstance(value, bool):
            words.append(f"--{flag}" if value else f"--no-{flag}")
        elif isinstance(value, dict):
            words += [f"--{flag}", json.dumps(value)]
        else:
            words += [f"--{flag}", *map(str, value if isinstance(value, tuple) else (value,))]
    return words


def half_way(training: Training, untrained: float, trained: float) -> tuple[int, Any] | None:
    """The checkpoint whose score over ten episodes is nearest to the middle between untrained and trained.

    Returns:
        Its epoch and its agent; None if the run kept no checkpoint from before its best epoch.
    """
    middle, nearest, found = (untrained + trained) / 2, np.inf, None
    for epoch, agent in training.checkpoints():
        away = abs(float(training.score(agent, TRIED_EPISODES).returns.mean()) - middle)
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
            f"the policy takes {path.stat().st_size:,} bytes, at most {largest:,} are kept: train a smaller"
        )


def recorded(training: Training, agent: Any) -> dict[str, np.ndarray]:
    """Observations of the first evaluated episode, [K, *shape], and what the agent does there, [K, *space.shape]."""
    policy = agent.acting_policy()
    observations: list[np.ndarray] = []
    env = training.environment.make()
    observation, _ = env.reset(seed=evaluation.EVALUATION_SEED)
    over = False
    while not over and len(observations) < OBSERVATIONS:
        observations.append(np.array(observation))
        action = agent.action_map(policy.act(observations[-1][None]))[0]
        observation, _, terminated, truncated, _ = env.step(action)
        over = terminated or truncated
    env.close()
    stacked = np.stack(observations)
    return {"observations": stacked, "actions": agent.action_map(policy.act(stacked))}


def stage(training: Training, epoch: int, score: dict[str, Any]) -> dict[str, Any]:
    """What the card says of one stage of training; `median_seed` is that of the episode with the median score."""
    numbers = {name: round(float(score[name]), 3) for name in ("mean", "low", "high", "mean_steps")}
    median = int(np.argsort(score["returns"], kind="stable")[(EPISODES - 1) // 2])
    counts = {"epoch": epoch, "steps": training.steps_of(epoch) if epoch else 0, "episodes": EPISODES}
    return counts | numbers | {"median_seed": evaluation.EVALUATION_SEED + median}


def ship(run: Path, name: str, agents: Path, commit: str | None = None) -> Path:
    """Write agents/NAME whole or not at all; see `Arguments`.

    Raises:
        UserError: the run is not finished, its commit is unknown, or the agent is too large.
    """
    if not is_folder_name(name, windows=True):
        raise UserError(f"name {name!r} is not a folder name: use letters, digits, '-', '_' and '.'")
    training = training_of(run)
    commit = commit or commit_of(run)
    agents.mkdir(parents=True, exist_ok=True)
    unfinished = Path(tempfile.mkdtemp(prefix=".unfinished-", dir=agents))
    try:
        write_all(unfinished, training, name, commit)
        unfinished.chmod(0o755)
        shutil.rmtree(agents / name, ignore_errors=True)
        unfinished.replace(agents / name)
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)
    return agents / name


def commit_of(run: Path) -> str:
    """The commit in a run's config.json.

    Raises:
        UserError: it names none.
    """
    content: Any = read_json(run / run_folder.CONFIG)
    commit = str(content.get("versions", {}).get("commit", "unknown"))
    if commit == "unknown":
        raise UserError(f"{run / run_folder.CONFIG} names no commit: add --commit with the one it was trained with")
    return commit


def write_all(folder: Path, training: Training, name: str, commit: str) -> None:
    """Every file of an agent.

    Args:
        folder: an empty one.
        training: the run.
        name: of the agent.
        commit: that the run was trained with.
    """
    agent, config, environment = load_agent(training.folder)
    untrained = training.new_agent()
    scores: Any = evaluation_of(training, agent)
    write_json(folder / run_folder.EVALUATION, scores)
    shutil.copyfile(training.folder / run_folder.CONFIG, folder / run_folder.CONFIG)
    first = training.score(untrained).summary()
    stages = {"untrained": stage(training, 0, first)}
    write_policy(folder / shipped.STAGES["untrained"], untrained)
    middle = half_way(training, float(stages["untrained"]["mean"]), float(scores["deterministic"]["mean"]))
    if middle is not None:
        stages["half-way"] = stage(training, middle[0], training.score(middle[1]).summary())
        write_policy(folder / shipped.STAGES["half-way"], middle[1])
    stages["trained"] = stage(training, training.best_epoch, scores["deterministic"])
    write_policy(folder / shipped.STAGES["trained"], agent)
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
            "run_epochs": config.epochs,
            "run_steps": training.steps_of(config.epochs),
            "commit": commit,
            "trained_by": command_of(training, name, middle and middle[0]),
            "shipped_by": f"python -m programs ship runs/{name} {name}",
            "licence": LICENCE,
            "stages": stages,
        },
    )
    if not agent.sees_images:
        from programs.policy_files import export  # imports TensorFlow

        export(agent, folder / shipped.EXPORT, onnx=True)


def evaluation_of(training: Training, agent: Any) -> Any:
    """The run's own evaluation.json if it has 100 episodes; else the episodes are played now."""
    path = training.folder / run_folder.EVALUATION
    scores: Any = read_json(path) if path.exists() else {}
    if scores.get("deterministic", {}).get("episodes") == EPISODES:
        return scores
    restarts = training.config.environment_restarts
    return evaluation.evaluate_both(
        agent.acting_policy(), agent.action_map, training.environment, EPISODES, restarts=restarts
    )


def main() -> None:
    """Ship what the command line names."""
    with one_line_errors():
        arguments = parse_settings(Arguments, prog="python -m programs ship")
        folder = ship(arguments.run, arguments.name, arguments.agents or shipped.AGENTS, arguments.commit)
        card: Any = read_json(folder / shipped.CARD)
        for name, what in card["stages"].items():
            print(f"{name}: {what['steps']:,} steps, score {what['mean']:.1f} over {what['episodes']} episodes")
        print(f"{folder}: python -m programs watch {arguments.name}")


if __name__ == "__main__":
    main()
