"""Put the agent of a finished run into the project: python -m programs ship RUN NAME

agents/NAME then holds all that shows the agent and says where it is from; `python -m programs watch NAME` shows it.
"""

import shlex
import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path, PurePath
from typing import Any

import numpy as np

from common import arrays_file
from common.config import TrainingConfig
from common.envs.environment import Environment
from common.errors import UserError
from common.files import read_json, write_json
from common.nets.network import Dense
from common.results import score_text
from common.rollout import evaluation, policy_file
from common.runs import checkpoint, finished, run_folder, trust
from common.runs.command_line import one_line_errors, parse_settings
from common.runs.options import is_folder_name
from common.settings import setting
from common.state import pack_json, part_of
from programs import onnx_files, shipped
from programs.methods import load_agent, new_agent, read_config
from programs.run_arguments import RetypedCode

EPISODES = 100  # that every stage's score is the mean of
TRIED_EPISODES = 10  # of each checkpoint, to choose the half-way one
OBSERVATIONS, IMAGES = 64, 16  # how many are recorded with their actions
LARGEST_POLICY, LARGEST_IMAGE_POLICY = 2**20, 8 * 2**20  # bytes
LICENCE = "MIT, as the project's LICENSE"
UNKNOWN = "unknown"  # the commit of a run trained without git, say from an unpacked ZIP


@dataclass(frozen=True)
class Arguments(RetypedCode):
    """Put the agent of a finished run into the project, with its settings, scores and exported policies."""

    run: Path = field(kw_only=True, metadata={"example": "runs/NAME"})
    """Folder of a finished run, like runs/NAME. The half-way policy is chosen among the run's checkpoints: if one is
    wanted, train the run with --checkpoint-every K --keep-checkpoints 1000."""
    name: str = field(kw_only=True, metadata={"example": "NAME"})
    """Name of the agent, by which watch shows it. An agent of this name is replaced."""
    commit: str | None = None
    """Commit of the project that the run was trained with; only for runs whose config.json does not name it."""
    episodes: int = setting(EPISODES, at_least=1)
    """How many episodes the untrained and the half-way policy are scored with; fewer for slow environments. The
    trained policy is always scored with 100."""
    agents: Path | None = None
    """Folder of all agents; the default is the project's own, where watch finds them by name."""


@dataclass(frozen=True)
class Training:
    """A finished run; `agent`, with which it ended, plays in `environment`."""

    folder: Path
    preset: str
    config: TrainingConfig
    agent: Any
    environment: Environment
    table: dict[str, np.ndarray]  # of its results

    def steps_of(self, epoch: int) -> int:
        """Environment steps until the end of an epoch, where the table counts actions."""
        return int(self.table["steps"][list(self.table["epoch"]).index(epoch)]) * self.config.action_repeat[0]

    @property
    def last_epoch(self) -> int:
        """The last one that was trained: earlier than planned where `stop_score` was reached."""
        return int(self.table["epoch"][-1])

    @property
    def best_epoch(self) -> int:
        """The epoch whose parameters the run ended with."""
        best = self.table["epoch"][self.table["is_best"] == 1] if self.config.adopt_best else []
        return int(best[-1]) if len(best) else self.last_epoch

    def agent_at(self, epoch: int) -> Any:
        """The agent of an epoch: that of its checkpoint (UserError if it is missing), of 0 an untrained one."""
        agent: Any = new_agent(self.config, self.environment)
        if epoch:
            agent.load_state(part_of(checkpoint.load(self.folder / run_folder.CHECKPOINTS, epoch), "agent"))
        return agent

    def checkpoints(self) -> Iterator[tuple[int, Any]]:
        """The epochs and the agents of all checkpoints before the best epoch."""
        epochs = reversed(checkpoint.generations(self.folder / run_folder.CHECKPOINTS))
        return ((epoch, self.agent_at(epoch)) for epoch in epochs if epoch < self.best_epoch)

    def score(self, agent: Any, episodes: int) -> evaluation.Evaluation:
        """Deterministic episodes, the first ones that `python -m programs evaluate` plays."""
        acting, restarts = (agent.acting_policy(), agent.action_map), self.config.environment_restarts
        return evaluation.evaluate(*acting, self.environment, episodes, True, restarts=restarts)


def training_of(run: Path, **typed: Any) -> Training:
    """What is known of a run; UserError if it is not finished or cannot be shipped; see `methods.load_agent`."""
    preset, config = read_config(run, **typed)
    if not finished.is_done(run, finished.ADOPT, config.epochs):
        raise UserError(f"{run} is not finished: continue it with {trust.command('resume', run, config)}")
    agent, config, environment = load_agent(run, **typed)
    policy: Any = agent.acting_policy()
    hidden = getattr(policy.heads, "hidden", [None])
    if not agent.sees_images and not all(isinstance(layer, Dense) for layer in hidden):
        raise UserError(
            f"{run} has layers that are not dense, and cannot be shipped: use the run itself, or python -m programs "
            "export"
        )
    return Training(run, preset, config, agent, environment, run_folder.read_results(run))


def half_way(training: Training, middle: float, episodes: int) -> tuple[int, Any] | None:
    """Epoch and agent of the checkpoint before the best epoch whose score is nearest to `middle`; None without one."""

    def distance(saved: tuple[int, Any]) -> float:
        return abs(float(training.score(saved[1], episodes).returns.mean()) - middle)

    return min(training.checkpoints(), key=distance, default=None)


def write_policy(path: Path, agent: Any) -> None:
    """Write what acting needs of an agent. Raises UserError if that is too large to be kept with the project."""
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


def ship(asked: Arguments) -> Path:
    """Write agents/NAME atomically, and return it. Raises UserError if the run or the agent is refused."""
    if not is_folder_name(asked.name):
        raise UserError(f"name {asked.name!r} is not a folder name: use letters, digits, '-', '_' and '.'")
    folder = (asked.agents or shipped.AGENTS) / asked.name
    if folder.exists() and not shipped.is_shipped(folder):
        raise UserError(f"{folder} is there already, and is not a shipped agent: choose another name")
    training = training_of(asked.run, **asked.typed)
    folder.parent.mkdir(parents=True, exist_ok=True)
    unfinished = Path(tempfile.mkdtemp(prefix=".unfinished-", dir=folder.parent))
    try:
        write_all(unfinished, training, asked)
        unfinished.chmod(0o755)
        _replace(folder, unfinished)
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)
    return folder


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


def write_all(folder: Path, training: Training, asked: Arguments) -> None:
    """Write every file of an agent."""
    from programs.policy_files import export  # imports TensorFlow

    agent, config, environment, name = training.agent, training.config, training.environment, asked.name
    run = f"runs/{training.folder.resolve().name}"
    # What may be refused goes before the evaluations, which take minutes.
    write_policy(folder / shipped.STAGES["trained"], agent)
    export(agent, folder / shipped.EXPORT, onnx=onnx_files.can_write())
    scores: Any = evaluation_of(training)
    write_json(folder / run_folder.EVALUATION, scores)
    shutil.copyfile(training.folder / run_folder.CONFIG, folder / run_folder.CONFIG)
    arrays_file.write_weights(folder / shipped.RECORDED, recorded(training, agent))
    stages = {}

    def earlier(which: str, epoch: int, agent: Any) -> None:
        stages[which] = stage(training, epoch, training.score(agent, asked.episodes).summary())
        if not agent.sees_images:  # whose policies take megabytes each
            write_policy(folder / shipped.STAGES[which], agent)

    earlier("untrained", 0, training.agent_at(0))
    middle = (float(stages["untrained"]["mean"]) + float(scores["deterministic"]["mean"])) / 2
    nearest = half_way(training, middle, min(asked.episodes, TRIED_EPISODES))
    if nearest is not None:
        earlier("half-way", *nearest)
    stages["trained"] = stage(training, training.best_epoch, scores["deterministic"])
    content: Any = read_json(training.folder / run_folder.CONFIG)
    changing = [resume for resume in content.get("resumed", []) if resume["changed"]]
    table = training.table
    live = [column for column in table if column.startswith("hp_") and len(np.unique(table[column])) > 1]
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
            "commit": asked.commit or content.get("versions", {}).get("commit", UNKNOWN),
            "trained_by": " && ".join(part.get("command", UNKNOWN) for part in (content, *changing)),
            "not_repeated": [f"Its setting {column[3:]} was changed during training." for column in live],
            "shipped_by": f"python -m programs ship {shlex.quote(run)} {name}{trust.flags_again(config)}",
            "licence": LICENCE,
            "stages": stages,
        },
    )


def evaluation_of(training: Training) -> Any:
    """The run's own evaluation.json if its 100 episodes are those that would be played now; else they are played."""
    agent, config, limit = training.agent, training.config, training.environment.max_episode_steps
    if finished.is_done(training.folder, finished.EVALUATE, config.epochs):  # not of other weights
        scores: Any = read_json(training.folder / run_folder.EVALUATION)
        wanted = {"episodes": EPISODES, "seed": evaluation.EVALUATION_SEED, "max_episode_steps": limit}
        if wanted.items() <= scores.get("deterministic", {}).items():
            return scores
    acting, restarts = (agent.acting_policy(), agent.action_map), config.environment_restarts
    return evaluation.evaluate_both(*acting, training.environment, EPISODES, restarts=restarts)


def main() -> None:
    """Ship what the command line names."""
    with one_line_errors():
        arguments = parse_settings(Arguments, prog="python -m programs ship")
        folder = ship(arguments)
        card: Any = read_json(folder / shipped.CARD)
        for name, what in card["stages"].items():
            score = f"score {score_text(what['mean'])} over {what['episodes']} episodes"
            print(f"{name}: {what['steps']:,} steps, {score}")
        if not onnx_files.can_write():
            print("no ONNX file was written, which needs pip install -r requirements/export.txt")
        if card["commit"] == UNKNOWN:
            print("the commit that the run was trained with is unknown; add --commit to name it on the agent's card")
        for sentence in card["not_repeated"]:
            print(f"the commands on the agent's card do not repeat this: {sentence}")
        _, config = read_config(folder, **arguments.typed)
        watched = folder if arguments.agents else PurePath(arguments.name)
        print(f"{folder}: {trust.command('watch', watched, config)}")


if __name__ == "__main__":
    main()
