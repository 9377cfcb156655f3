"""Write the policy of a run as files that need nothing of this project: python -m programs export RUN

`programs.policy_files` writes the files and checks them.
"""

from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from common import arrays_file
from common.config import TrainingConfig
from common.envs.environment import Environment
from common.errors import UserError
from common.rollout.evaluation import EVALUATION_SEED, evaluate, evaluation_line
from common.runs.command_line import one_line_errors, parse_settings
from common.settings import Needs, setting
from programs import shipped
from programs.run_arguments import RunArguments

SCORED = Needs("episodes", bool, "--episodes 100")


def score(path: Path, environment: Environment, episodes: int, seed: int, restarts: int, memory_size: int = 0) -> str:
    """Play episodes with an exported file, whose policy remembers `memory_size` numbers.

    Returns:
        A line such as 'deterministic 301.2 [298.0, 303.9]'.
    """
    from programs.policy_files import READ  # imports TensorFlow

    policy, as_they_are = READ[path.name](path), lambda actions: actions
    exported: Any = SimpleNamespace(
        act=lambda observations, noise=None, *memory: policy(observations, *memory), memory_size=memory_size
    )
    played = evaluate(exported, as_they_are, environment, episodes, True, seed, restarts)  # type: ignore[arg-type]
    return evaluation_line({"deterministic": played.summary()})


def duties(config: TrainingConfig) -> list[str]:
    """What whoever uses the files has to do as the training did it, in a line each."""
    lines = []
    if getattr(config, "memory", "none") != "none":  # a setting of PPO's alone
        lines.append("begin an episode with a memory of zeros, and give each step's next_memory to the next one")
    if config.action_masks:
        lines.append("the last numbers of the input are the action mask: 1 for each choice that is allowed, else 0")
    if (repeat := config.action_repeat[-1]) > 1:
        lines.append(f"hold each action for {repeat} steps of the environment")
    return lines


@dataclass(frozen=True)
class Arguments(RunArguments):
    """Write a run's deterministic policy as a TensorFlow SavedModel and a LiteRT (TensorFlow Lite) file.

    With --onnx it is written as an ONNX file, too. The agents that come with the project are exported already; --out
    copies their files.
    """

    onnx: bool = False
    """Write policy.onnx, too. This needs packages of its own: pip install -r requirements/export.txt."""
    episodes: int = setting(0, at_least=0)
    """How many episodes each exported policy plays to be scored; the default, 0, plays none."""
    seed: int = setting(EVALUATION_SEED, at_least=0, needs=SCORED)
    """Seed of the first episode; each further episode has the next one. The default is that of `evaluate`."""
    max_episode_steps: int | None = setting(None, at_least=1, needs=SCORED)
    """Step limit of an episode, in environment steps. By default the run's own limit."""
    out: Path | None = field(default=None, metadata={"alias": "--output"})
    """Folder for the files; the default is export in the run folder. An earlier export there is replaced."""


def main() -> None:
    """Export what the command line names."""
    with one_line_errors():
        arguments = parse_settings(Arguments, "python -m programs export")
        folder = arguments.folder_of_run
        exported = folder / shipped.EXPORT  # there already if the agent was shipped
        if shipped.is_shipped(folder) and not exported.exists():
            raise UserError(f"{folder} was shipped without exports: export takes the folder of a run, like runs/NAME")
        if shipped.is_shipped(folder) and arguments.out is None:
            raise UserError(f"{exported} holds the exported policies already: copy them with --out FOLDER")
        agent, config, environment = arguments.load()
        out = arguments.out or exported
        from programs import policy_files  # imports TensorFlow

        if shipped.is_shipped(folder):
            seen = arrays_file.read(folder / shipped.RECORDED)["observations"]
            written = policy_files.copy(agent, seen, exported, out, arguments.onnx)
        else:
            written = policy_files.export(agent, out, arguments.onnx)
        for file in written:
            print(f"{file.path}: {file.size:,} bytes, largest difference {file.difference:.2g}")
            if arguments.episodes:
                limited = environment.limited_to(arguments.max_episode_steps)
                asked = arguments.episodes, arguments.seed, config.environment_restarts
                scored = score(file.path, limited, *asked, getattr(agent.acting_policy(), "memory_size", 0))
                print(f"{file.path}: unshaped reward of {arguments.episodes} episodes: {scored}")
        for duty in duties(config):
            print(duty)


if __name__ == "__main__":
    main()
