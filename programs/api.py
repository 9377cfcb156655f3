"""What a Python program or a notebook of your own calls: train, load, act, evaluate, film.

    from programs.api import load, train

A run is the same as from the command line: the same folder, checkpoints and exact resume.
"""

import dataclasses
import functools
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np

from common.config import MakeNetworks, TrainingConfig
from common.env_wrappers import RewardDesign
from common.envs.action_masks import in_a_row
from common.envs.environment import Environment, played_environment_of, prepared
from common.envs.make_env import MakeEnv
from common.envs.stored_spaces import SpacesAlone, from_json, rows_of
from common.envs.supported_spaces import as_numbers_or_image
from common.envs.vector_env import copied_observations
from common.errors import UserError
from common.results import EpochResult
from common.rollout.evaluation import EVALUATION_SEED, Summaries, evaluate_both
from common.rollout.policies import InEpisodes
from common.runs import film, run_folder, session, trust
from common.runs.command_line import check_same_run
from common.runs.options import RunOptions
from ppo import presets
from programs import shipped
from programs.methods import KINDS, METHODS, WhichWeights, config_to_play, new_agent, read_config, weights_of
from programs.preset_files import find_preset

OPTIONS = frozenset(field.name for field in dataclasses.fields(RunOptions))


def train(
    preset: str = "",
    *,
    on_epoch: Callable[[EpochResult], object] | None = None,
    make_env: MakeEnv | None = None,
    make_networks: MakeNetworks | None = None,
    reward_design: RewardDesign | None = None,
    typed: dict[str, Any] | None = None,
    **settings: Any,
) -> "TrainedAgent":
    """Train, evaluate and film a new run, or continue one with `resume`; return the agent that it ended with.

    Args:
        preset: name of a preset of any method. "" takes PPO's for the environment.
        on_epoch: called after each epoch with its row; training ends if it returns True.
        make_env, make_networks, reward_design: functions in place of the settings `env`, `networks` and
            `reward_design`; see `common.learning.trainer_base.TrainerBase`.
        typed: of a run to resume, `env`, `env_kwargs`, `wrappers` and `networks`, where they must be typed again.
        settings: settings and options of the command line by their names, such as `env`, `epochs`, `resume`.

    Raises:
        UserError: a name or a value is wrong, or the environment cannot be trained.
        StoppedError: Ctrl-C or a signal stopped the run; a checkpoint was written.
    """
    chosen = {name: settings.pop(name) for name in OPTIONS & set(settings)}
    chosen_again = None
    if chosen.get("resume") is not None:
        if preset:
            raise UserError(f"resume continues the preset of its run: leave {preset!r:.40} out")
        folder = chosen["resume"] = Path(chosen["resume"])
        preset, saved = read_config(folder, **typed or {})
        config = replaced(preset, saved, settings)
        check_same_run(saved, config, folder)
        options = run_folder.read_options(folder, KINDS).replace(**chosen)
    else:
        preset = preset or (presets.preset_for(settings["env"]) if settings.get("env") else presets.FOR_ANY)
        preset, _, config = find_preset(preset, **{name: settings.get(name) for name in run_folder.TYPED})
        config, options = replaced(preset, config, settings), RunOptions(**chosen)
        chosen_again = [*settings, *chosen] if preset == presets.FOR_ANY and make_env is None else None
    make_trainer = functools.partial(
        METHODS[config.METHOD].trainer, description=f"preset {preset}", workers=options.placement, make_env=make_env,
        make_networks=make_networks, reward_design=reward_design,
    )  # fmt: skip
    folder = session.run(make_trainer, preset, config, options, on_epoch=on_epoch, typed=chosen_again)
    stored = run_folder.read_content(folder, KINDS)[1]  # which names the environment with its version
    again = {name: getattr(stored, name) for name in (run_folder.TYPED if make_env is None else ("networks",))}
    return TrainedAgent(folder, make_env=make_env, make_networks=make_networks, typed=again)


def replaced(preset: str, config: TrainingConfig, settings: dict[str, Any]) -> TrainingConfig:
    """A preset's config with these settings; UserError for a name or a value that is wrong."""
    try:
        return config.replace(**settings)
    except TypeError as error:
        raise UserError(f"{preset}: {error}") from None


def load(
    run: str | Path,
    *,
    weights: WhichWeights = "best",
    stage: str = "trained",
    make_env: MakeEnv | None = None,
    make_networks: MakeNetworks | None = None,
    typed: dict[str, Any] | None = None,
) -> "TrainedAgent":
    """The agent of a run, or one that comes with the project.

    Args:
        run: a run's folder, or an agent's name, such as "walker".
        weights: of a run: "best" for the agent that it ended with, "last" for that of its last checkpoint.
        stage: of an agent that comes with the project: "untrained", "half-way" or "trained"; of a run "trained".
        make_env, make_networks: as `train` had them. `act` does not need the environment.
        typed: the run's `env`, `env_kwargs`, `wrappers` and `networks`, where they must be typed again. `act` needs
            them only if there are `networks`.

    Raises:
        UserError: there is no such agent, it has no such weights or stage, or a file is missing or damaged.
    """
    return TrainedAgent(shipped.folder_of(Path(run)), weights, stage, make_env, make_networks, typed)


def _check_which(folder: Path, weights: str, stage: str) -> None:
    comes_along = shipped.is_shipped(folder)
    of_runs: dict[str, Collection[str]] = {"weights": ("best", "last"), "stage": ("trained",)}
    known = {"weights": ("best",), "stage": shipped.STAGES} if comes_along else of_runs
    for name, value in (("weights", weights), ("stage", stage)):
        if value not in known[name]:
            what = "an agent that comes with the project" if comes_along else "a run"
            raise UserError(f"{name} is {value!r:.40}, and {folder} is {what}: expected {' or '.join(known[name])}")


class TrainedAgent:
    """An agent that acts, is evaluated and filmed. It does not learn. For the arguments see `load`.

    Attributes:
        folder: of the run, or of the agent that comes with the project.
        config: the settings that it was trained with.
    """

    def __init__(
        self,
        folder: Path,
        weights: WhichWeights = "best",
        stage: str = "trained",
        make_env: MakeEnv | None = None,
        make_networks: MakeNetworks | None = None,
        typed: dict[str, Any] | None = None,
    ) -> None:
        self.folder, self._make_env, self._typed = folder, make_env, typed or {}
        _check_which(folder, weights, stage)
        trust.refuse(folder)
        trust.refuse_runs(folder.resolve().parent)
        content, self.config, _ = run_folder.read_content(folder, KINDS)
        if ":" in (self.config.networks or ""):
            config_to_play(folder, **self._typed)  # raises what must be typed before their module may be imported
        self._native = self._stored_spaces(content.get("spaces"))
        env = as_numbers_or_image(self._native)
        self._wrappers: list[gymnasium.ObservationWrapper] = []
        while isinstance(env, gymnasium.ObservationWrapper):
            self._wrappers, env = [env, *self._wrappers], env.env  # the innermost first
        inputs = prepared(self.config.env, self._native, self.config.action_masks)
        seen = SpacesAlone(inputs.observation_space, inputs.action_space)
        agent: Any
        if shipped.is_shipped(folder):
            agent = shipped.agent_of(shipped.policy_path(folder, stage), self.config, seen)
        else:
            device = "auto" if self.config.device == "gpu" else self.config.device  # that card may be missing here
            agent = new_agent(self.config.replace(device=device), seen, make_networks)
            agent.read_weights(weights_of(folder, self.config, weights))
        self._policy, self._action_map = agent.acting_policy(), agent.action_map
        self._playing = InEpisodes(self._policy, 1)

    def _stored_spaces(self, stored: Any) -> SpacesAlone:
        """The spaces that were stored with the agent; those of its environment where an older version wrote it."""
        if stored is None:
            return SpacesAlone(self.environment.native_observation_space, self.environment.action_space)
        try:
            return SpacesAlone(from_json(stored["observation"]), from_json(stored["action"]))
        except (ValueError, LookupError, TypeError, AssertionError, AttributeError) as error:
            raise UserError(
                f"{self.folder / run_folder.CONFIG} has spaces that cannot be read ({error}): use an undamaged copy"
            ) from None

    @functools.cached_property
    def environment(self) -> Environment:
        """What the agent plays; `make_native()` builds one.

        Raises:
            UserError: it cannot be built, or must be typed again.
        """
        return played_environment_of(config_to_play(self.folder, **self._typed), self._make_env)

    def act(self, observation: Any, action_mask: Any = None, rng: np.random.Generator | None = None) -> Any:
        """The action for an observation as `env.reset` and `env.step` return it, or a batch of actions.

        An agent that was trained with `memory` remembers earlier calls; call `forget` where episodes begin.

        Args:
            observation: one, or a batch as Gymnasium's vector environments return it.
            action_mask: of 0 and 1, as the environment gives it, for an agent trained with `action_masks`; for a batch
                one for each observation.
            rng: draws the policy's noise; without it the action is the deterministic one.

        Returns:
            What `env.step` takes: an int for Discrete, else an array [*space.shape]; [n, *space.shape] for a batch.

        Raises:
            UserError: the observation or the mask does not fit.
        """
        raw, is_batch = rows_of(self._native.observation_space, observation)
        for wrapper in self._wrappers:
            raw = [wrapper.observation(row) for row in raw]
        rows = copied_observations(np.stack(raw))  # [n, *shape]
        if self.config.action_masks:
            rows = self._with_masks(rows, action_mask if is_batch else [action_mask])
        if len(rows) != len(self._playing.memory):
            self._playing = InEpisodes(self._policy, len(rows))
        noise = None if rng is None else rng.standard_normal((len(rows), self._action_map.noise_size), np.float32)
        actions = self._action_map(self._playing.act(rows, noise))  # [n, *space.shape]
        if is_batch:
            return actions
        return int(actions[0]) if isinstance(self._native.action_space, gymnasium.spaces.Discrete) else actions[0]

    def forget(self, which: Any = slice(None)) -> None:
        """Episodes begin: what the agent remembers of those before is dropped.

        Args:
            which: of a batch, [n] bool or indices; all by default.
        """
        self._playing.forget(which)

    def _with_masks(self, rows: np.ndarray, action_masks: Any) -> np.ndarray:
        size = self._action_map.noise_size  # Σ choices
        try:
            masks = np.stack([in_a_row(mask) for mask in action_masks]).astype(np.float32)
        except (TypeError, ValueError):
            masks = np.empty((0, size), np.float32)
        if masks.shape != (len(rows), size):
            raise UserError(
                f"{self.folder} was trained with action masks: give act an action_mask of {size} numbers of 0 or 1 "
                "for each observation"
            )
        return np.concatenate([rows, masks], axis=1)

    def evaluate(self, episodes: int = 100, seed: int = EVALUATION_SEED) -> Summaries:
        """Scores of whole episodes, with deterministic and with sampled actions, like those in evaluation.json.

        Returns:
            "deterministic" and "sampled" → "mean", its 95% interval from "low" to "high", and more.

        Raises:
            UserError: the environment cannot be built, or failed in every episode.
        """
        restarts = self.config.environment_restarts
        return evaluate_both(self._policy, self._action_map, self.environment, episodes, seed=seed, restarts=restarts)

    def film(self, path: str | Path = "video.mp4", seed: int = EVALUATION_SEED) -> Path:
        """Film one deterministic episode as an .mp4 or a .gif; a file of that name is replaced.

        Raises:
            UserError: the environment cannot be built or draws no pictures, or the name has another ending.
        """
        path = Path(path)
        if path.suffix not in (".mp4", ".gif"):
            raise UserError(f"{path} is not a film's name: end it in .mp4 or .gif")
        acting = self._policy, self._action_map, self.environment
        restarts = self.config.environment_restarts
        line, file = film.film_into(path.parent, *acting, path.suffix == ".gif", seed, restarts, path.stem)
        if file is None:
            raise UserError(line)
        return file
