"""The one table of methods: settings, presets, trainer and agent of each; agents are loaded from run folders here."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from common.config import MakeNetworks, TrainingConfig
from common.envs.environment import Environment, played_environment_of
from common.envs.make_env import MakeEnv
from common.envs.stored_spaces import SpacesAlone
from common.errors import UserError
from common.runs import run_folder, trust
from companions import presets as companions_presets
from companions import sac_presets
from companions.config import OffPolicyConfig, SACConfig
from companions.OffPolicyAgentTrainer import OffPolicyAgentTrainer
from companions.SACAgentTrainer import SACAgentTrainer
from ppo import presets as ppo_presets
from ppo.config import PPOConfig
from PPOAgentTrainer import PPOAgentTrainer

if TYPE_CHECKING:
    from Agent import Agent
    from companions.DDPGAgent import DDPGAgent

WhichWeights = Literal["best", "last"]


class Method(NamedTuple):
    """What the programs need of a method."""

    config: type[TrainingConfig]
    presets: Mapping[str, TrainingConfig]
    preset_for: Callable[[str], str]  # an environment's id → the name of the preset that `--env ID` starts from
    default_preset: str  # where neither a preset nor an environment is named
    trainer: Any  # a class, called with a config; its `make_agent` makes agents alone


METHODS = {
    PPOConfig.METHOD: Method(
        PPOConfig, ppo_presets.PRESETS, ppo_presets.preset_for, ppo_presets.DEFAULT, PPOAgentTrainer
    ),
    OffPolicyConfig.METHOD: Method(
        OffPolicyConfig, companions_presets.PRESETS, companions_presets.preset_for, "pendulum-td3-fast",
        OffPolicyAgentTrainer,
    ),
    SACConfig.METHOD: Method(
        SACConfig, sac_presets.PRESETS, sac_presets.preset_for, "pendulum-sac", SACAgentTrainer
    ),
}  # fmt: skip


KINDS: run_folder.Kinds = {name: method.config for name, method in METHODS.items()}


def read_config(folder: Path, **typed: Any) -> tuple[str, TrainingConfig]:
    """The preset's name and the config of a run of any method; for what was typed see `run_folder.read_config`."""
    return run_folder.read_config(folder, KINDS, **typed)


def config_to_play(folder: Path, **typed: Any) -> TrainingConfig:
    """The config of a run or of a shipped agent, whose environment is played and may not be another one."""
    _, config = read_config(folder, **typed)
    trust.check_no_other_environment(folder, config, trust.Typed(**typed))
    return config


def new_agent(
    config: TrainingConfig, environment: Environment | SpacesAlone, make_networks: MakeNetworks | None = None
) -> "Agent | DDPGAgent":
    """The untrained agent that a run with these settings begins with, to act and not to learn: in float32.

    Of the environment only the spaces are used.
    """
    config = config.replace(precision="float32")  # which every processor has, and in which exported files act
    make = METHODS[config.METHOD].trainer.make_agent
    return make(environment.observation_space, environment.action_space, config, config.seeds()[0], make_networks)


def load_agent(
    run: Path,
    weights: WhichWeights = "best",
    make_env: MakeEnv | None = None,
    *,
    device: str | None = None,
    make_networks: MakeNetworks | None = None,
    **typed: Any,
) -> tuple["Agent | DDPGAgent", TrainingConfig, Environment]:
    """The agent of a run, the run's settings and its environment as the agent plays it.

    Args:
        weights: "best" loads the agent the run ended with, "last" that of its last checkpoint.
        make_env: builds the environment, where the run was trained with such a function.
        device: what TensorFlow computes on, "auto", "cpu" or "gpu"; None takes the run's own setting.
        make_networks: makes the hidden layers, where the run was trained with such a function.
        typed: `env`, `env_kwargs`, `wrappers` and `networks` of the run, typed again; see `run_folder.read_config`.

    Raises:
        UserError: there is no run, its environment cannot be made or must be typed again, or its weights are missing
            or damaged.
    """
    config = config_to_play(run, **typed)
    path = weights_of(run, config, weights)
    if device is not None:
        config = config.replace(device=device)
    environment = played_environment_of(config, make_env)
    agent = new_agent(config, environment, make_networks)
    agent.read_weights(path)
    return agent, config, environment


def weights_of(run: Path, config: TrainingConfig, weights: WhichWeights = "best") -> Path:
    """The file with a run's weights; see `load_agent`. Raises UserError if there is none."""
    path = run / (run_folder.BEST_AGENT if weights == "best" else run_folder.WEIGHTS)
    if path.exists():
        return path
    if (run / run_folder.WEIGHTS).exists():
        raise UserError(
            f"{run} has no {path.name}, since its training has not ended: continue it with "
            f"{trust.command('resume', run, config)}, or let watch, evaluate or export use its last weights "
            "with --weights last"
        )
    raise UserError(f"{run} holds no {path.name}: train it until its first checkpoint at least")
