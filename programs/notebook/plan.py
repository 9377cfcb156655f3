"""What a training will take, told before it begins."""

from common.config import TrainingConfig
from common.envs.environment import environment_of
from common.envs.vector_env import resolve_backend
from ppo.config import PPOConfig

LONG = 10  # minutes from which a warning is given
STEPS_PER_SECOND = {"envpool": 6_000, "other": 2_000, "off-policy": 500}
"""Environment steps a second on two cores, updates included; the walker's runs in the log are the measure."""


def plan(preset: str, config: TrainingConfig) -> list[str]:
    """Lines that say what will be trained and, where that takes more than about ten minutes, how long and what to do.

    Raises:
        UserError: the backend that was chosen is not installed, or does not have the environment.
    """
    steps, stop = config.epochs * config.steps_per_epoch, config.stop_score
    total = f"{steps:,} steps in all" if stop is None else f"at most {steps:,} steps, until it scores {stop:g}"
    lines = [f"{preset}: {config.env}, {config.epochs:,} epochs of {config.steps_per_epoch:,} steps, {total}"]
    rate = steps_per_second(config)
    minutes = steps / rate / 60
    if minutes > LONG:
        fewer = max(1, int(LONG * 60 * rate / config.steps_per_epoch))
        lines.append(
            f"this is long: it may take {_duration(minutes)} on two cores. "
            f"Set epochs to {fewer:,} for about ten minutes, or choose another preset"
        )
    return lines


def steps_per_second(config: TrainingConfig) -> int:
    """About how many environment steps a second are trained on two cores."""
    if not isinstance(config, PPOConfig):
        return STEPS_PER_SECOND["off-policy"]
    environment = environment_of(config)
    backend = resolve_backend(config.backend, environment)
    return STEPS_PER_SECOND["envpool" if backend == "envpool" else "other"]


def _duration(minutes: float) -> str:
    return f"about {minutes:.0f} minutes" if minutes < 90 else f"about {minutes / 60:.0f} hours"
