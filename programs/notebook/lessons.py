"""The reader's own two functions at the heart of PPO: whether they equal the project's, and figures of their effect.

The reader's functions take plain arrays; both are printed in `training.ipynb`.
"""

import contextlib
import io
import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from common import funcs
from common.config import TrainingConfig
from common.envs.environment import Environment
from common.errors import UserError
from common.rollout.evaluation import EVALUATION_SEED
from common.rollout.playing import FILM_BOUND
from common.rollout.policies import InEpisodes
from common.rollout.rewards import Shaping
from common.runs import run_folder
from common.user_code import closed
from ppo.batch import EPSILON
from ppo.config import PPOConfig
from programs.methods import load_agent
from programs.notebook import figures
from programs.notebook.display import one_line, show, trained

Advantages = Callable[..., np.ndarray]
"""(rewards [T], values [T+1], terminated [T], truncated [T], gamma, gae_lambda) → advantages [T]."""
Surrogate = Callable[..., float]
"""(log_probs [B], old_log_probs [B], advantages [B], clip_range) → the loss."""

PRESETS_OWN = -1  # in place of a number in a form
ROUNDING = 1e-6
RANDOM_STEPS, RANDOM_SAMPLES = 500, 1000
LARGEST_RATIO, RATIOS = 2.0, 401


class Episode(NamedTuple):
    """An episode as training sees it."""

    rewards: np.ndarray  # [T], shaped and scaled
    values: np.ndarray  # [T+1], by the critic
    terminated: np.ndarray  # [T] bool
    truncated: np.ndarray  # [T] bool


def play(agent: Any, config: PPOConfig, environment: Environment, results: Mapping[str, np.ndarray]) -> Episode:
    """One episode with sampled actions; it is cut after 2,000 steps where the environment has no limit.

    Where a function of the user's computes the rewards, the environment's own are taken.

    Args:
        results: the run's table. Its last `reward_std` is what rewards are divided by, where the settings scale them,
            and falls and actions cost what they cost at its highest `score`.

    Raises:
        UserError: the environment cannot be made.
    """
    observations, actions, rewards, terminated, truncated = _steps(agent, environment)  # [T+1, S], [T, A], 3 × [T]
    values = np.asarray(agent.values(observations), np.float64)  # [T+1]
    if config.reward_design == "function":
        config = config.replace(reward_design="unchanged")
    shaping = Shaping(config, environment)
    shaping.follow(float(np.nanmax(results["score"], initial=-math.inf)))  # NaN before the first score
    rewards = shaping.shape(rewards, terminated, truncated, np.arange(1, len(rewards) + 1), actions)  # [T]
    if config.reward_scaling != "none":
        rewards = rewards / (results["reward_std"][-1] + EPSILON)  # [T]
    if "truncation_is_terminal" in config.quirks:
        terminated, truncated = terminated | truncated, np.zeros_like(truncated)  # [T], [T]
    return Episode(rewards, values, terminated, truncated)


def _steps(agent: Any, environment: Environment) -> tuple[np.ndarray, ...]:
    """Observations [T+1, S], the policy's actions [T, A], the environment's rewards, terminated and truncated [T]."""
    acting, rng = InEpisodes(agent.acting_policy(), 1), np.random.default_rng(0)
    rows: list[tuple[np.ndarray, float, bool, bool]] = []
    with closed(environment.make()) as env:
        observations, over = [np.array(env.reset(seed=EVALUATION_SEED)[0])], False
        while not over and len(rows) < FILM_BOUND:
            noise = rng.standard_normal((1, agent.action_map.noise_size), np.float32)  # [1, X]
            chosen = acting.act(np.asarray(observations[-1])[None], noise)  # [1, A]
            observation, reward, terminated, truncated, _ = env.step(agent.action_map(chosen)[0])
            observations.append(np.array(observation))  # an environment may use one array again
            rows.append((chosen[0], float(np.asarray(reward).item()), bool(terminated), bool(truncated)))
            over = terminated or truncated
    return np.stack(observations), *(np.array(column) for column in zip(*rows))


@one_line()
def show_advantages(
    run: Path | None, function: Advantages, gamma: float = PRESETS_OWN, gae_lambda: float = PRESETS_OWN, **typed: Any
) -> None:
    """Compare the reader's advantages with the project's, and draw both over one episode of a run.

    Args:
        gamma, gae_lambda: the reader's; −1 takes the run's own.
        typed: see `notebook.score`.

    Raises:
        UserError: the function returned something else, or a number is out of its range.
    """
    [folder] = trained(run)
    print(check_advantages(function))
    agent, config, environment = load_agent(folder, **typed)
    if not isinstance(config, PPOConfig):
        print(f"{folder.name} has no critic V of states ({config.METHOD} learns Q of actions): choose a preset of PPO")
        return
    own = (config.gamma if config.final_gamma is None else config.final_gamma, config.gae_lambda)
    asked = _number("gamma", gamma, own[0]), _number("gae_lambda", gae_lambda, own[1])
    episode = play(agent, config, environment, run_folder.read_results(folder))
    before, after = advantages_of(project_advantages, episode, *own), advantages_of(function, episode, *asked)  # [T]
    print(figures.horizons(own, asked))
    show(figures.advantages_figure(episode, before, after, own, asked))


@one_line()
def show_surrogate(function: Surrogate, clip_range: float = PRESETS_OWN, config: TrainingConfig | None = None) -> None:
    """Compare the reader's clipped surrogate with the project's, and draw both over the probability ratio.

    Args:
        clip_range: the reader's ε; −1 takes the preset's own.
        config: the preset's settings; those of another method than PPO, or None, stand for PPO's defaults.

    Raises:
        UserError: the function returned something else, or the number is out of its range.
    """
    print(check_surrogate(function))
    own = (config if isinstance(config, PPOConfig) else PPOConfig()).clip_range
    asked = _number("clip_range", clip_range, own)
    ratios = np.linspace(0.0, LARGEST_RATIO, RATIOS)[1:]  # [K]
    curves = {
        sign: (objective(project_surrogate, ratios, sign, own), objective(function, ratios, sign, asked))
        for sign in (1.0, -1.0)
    }
    show(figures.surrogate_figure(ratios, curves, own, asked))


def check_advantages(function: Advantages) -> str:
    """A line that says whether a function equals `common.funcs.generalized_advantages`, and by how much it differs."""
    rng = np.random.default_rng(0)
    ends = rng.random(RANDOM_STEPS)  # [T]; several episodes, of both ends
    terminated, truncated = ends < 0.02, (ends >= 0.02) & (ends < 0.04)  # [T], [T]
    episode = Episode(rng.normal(size=RANDOM_STEPS), rng.normal(size=RANDOM_STEPS + 1), terminated, truncated)
    found, expected = (advantages_of(f, episode, 0.99, 0.95) for f in (function, project_advantages))  # [T], [T]
    where = f"common/funcs.generalized_advantages on {RANDOM_STEPS:,} random steps"
    return _verdict(where, np.abs(found - expected).max(), np.abs(expected).max())


def check_surrogate(function: Surrogate) -> str:
    """A line that says whether a function equals `ppo.losses.clipped_surrogate`, and by how much it differs."""
    rng = np.random.default_rng(0)
    columns = *rng.normal(0, 0.4, (2, RANDOM_SAMPLES)), rng.normal(size=RANDOM_SAMPLES)  # [B] each
    losses = [[_called(f, (), *columns, e) for e in (0.05, 0.2, 0.5)] for f in (function, project_surrogate)]
    difference = float(np.abs(np.diff(losses, axis=0)).max())
    return _verdict(f"ppo/losses.clipped_surrogate on {RANDOM_SAMPLES:,} random samples", difference, 1.0)


def _verdict(what: str, difference: float, size: float) -> str:
    if difference <= ROUNDING * max(1.0, size):
        return f"your function equals {what} (the largest difference is {difference:.1g})"
    return f"your function differs from {what}, by up to {difference:.3g}"


def project_advantages(
    rewards: np.ndarray, values: np.ndarray, terminated: np.ndarray, truncated: np.ndarray, gamma: float, lam: float
) -> np.ndarray:
    """The project's advantages with the reader's arguments; see `Advantages`."""
    ends, valid = (terminated[:, None], truncated[:, None]), np.ones((len(rewards), 1), bool)  # [T, 1] each
    return funcs.generalized_advantages(rewards[:, None], values[:, None], *ends, valid, gamma, lam)[:, 0]  # [T]


def project_surrogate(
    log_probs: np.ndarray, old_log_probs: np.ndarray, advantages: np.ndarray, clip_range: float
) -> float:
    """The project's loss with the reader's arguments; see `Surrogate`."""
    from ppo.losses import clipped_surrogate  # imports TensorFlow

    weights = np.ones(len(log_probs))  # [B]
    return float(clipped_surrogate(log_probs, old_log_probs, advantages, weights, clip_range))


def objective(function: Surrogate, ratios: np.ndarray, advantage: float, clip_range: float) -> np.ndarray:
    """The objective, which is minus the loss, of one sample for each of the probability ratios [K] above 0; [K]."""
    one = np.array([advantage])  # [1]
    with contextlib.redirect_stdout(io.StringIO()):  # a `print` in the function would come hundreds of times
        return np.array([-_called(function, (), np.log([ratio]), np.zeros(1), one, clip_range) for ratio in ratios])


def advantages_of(function: Advantages, episode: Episode, gamma: float, gae_lambda: float) -> np.ndarray:
    """What a function returns for an episode, [T]; for errors see `_called`."""
    return _called(function, episode.rewards.shape, *episode, gamma, gae_lambda)


def _called(function: Callable, shape: tuple[int, ...], *arguments: Any) -> np.ndarray:
    """What a function returns for copies of its arguments.

    Raises:
        UserError: it returned another shape, NaN or infinity; what it raises itself is shown as Python shows it.
    """
    copies = (one.copy() if isinstance(one, np.ndarray) else one for one in arguments)
    found = np.asarray(function(*copies), np.float64)
    if found.shape != shape or not np.isfinite(found).all():
        what = "NaN or infinity" if found.shape == shape else f"an array of shape {found.shape}"
        expected = f"an array of {shape[0]} finite numbers" if shape else "one finite number"
        raise UserError(f"{getattr(function, '__name__', 'your function')} returned {what}: expected {expected}")
    return found


def _number(name: str, value: float, own: float) -> float:
    if value == PRESETS_OWN:
        return own
    if not 0 <= value <= 1:
        raise UserError(f"{name} is {value:g}: expected 0 to 1, or {PRESETS_OWN} for the preset's own")
    return value
