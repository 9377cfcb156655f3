"""The functions that `training.ipynb` calls: choose, train or resume, change hyperparameters, compare, score, watch.

Training is `common.runs.session.run`, as from the command line: the same folder, checkpoints and exact resume.
TensorFlow is imported with the first agent that learns, so that an agent can be watched before.
"""

import functools
import itertools
import re
import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from IPython import get_ipython

from common import files, progress
from common.config import TrainingConfig
from common.envs.environment import environment_of
from common.envs.vector_env import resolve_backend
from common.errors import StoppedError, UserError
from common.rollout import evaluation
from common.runs import finished, run_folder, session
from common.runs.film import FilmedEpisode
from common.runs.options import RunOptions
from ppo import presets
from ppo.config import PPOConfig
from ppo.live_settings import LiveHyperparameters
from programs import methods, plot, shipped
from programs.api import replaced
from programs.methods import load_agent, new_agent
from programs.notebook import display, films
from programs.notebook.display import Screen, one_line, put, show, trained
from programs.preset_files import find_preset

PRESETS: dict[str, TrainingConfig] = {
    name: config for method in methods.METHODS.values() for name, config in method.presets.items()
}
LONG = 10  # minutes from which a warning is given
STEPS_PER_SECOND = {"envpool": 6_000, "other": 2_000, "off-policy": 500}
"""Environment steps a second on two cores, updates included; the walker's runs in the log are the measure."""


@one_line()
def choose(preset: str, environment: str = "", epochs: int = 0, **settings: object) -> tuple[str, TrainingConfig]:
    """The name of a preset of any method, and its settings with changes.

    Args:
        environment: a Gymnasium id, whose preset (`ppo.presets.preset_for`) replaces `preset`; "" keeps `preset`.
        epochs: 0 takes the preset's own.

    Raises:
        UserError: a name or a value is wrong, or the environment cannot be made.
    """
    if environment:
        preset, settings = presets.preset_for(environment), settings | {"env": environment}
    preset, _, config = find_preset(preset, **{name: settings.get(name) for name in run_folder.TYPED})
    config = replaced(preset, config, settings | ({"epochs": epochs} if epochs else {}))
    return preset, config.replace(env=environment_of(config).id)  # with its version


@one_line()
def announce(preset: str, config: TrainingConfig) -> None:
    """Print what will be trained and, where that takes more than about ten minutes, how long and what to do.

    Raises:
        UserError: the backend that was chosen is not installed, or does not have the environment.
    """
    steps, stop = config.epochs * config.steps_per_epoch, config.stop_score
    total = f"{steps:,} steps in all" if stop is None else f"at most {steps:,} steps, until it scores {stop:g}"
    print(f"{preset}: {config.env}, {config.epochs:,} epochs of {config.steps_per_epoch:,} steps, {total}")
    kind = "off-policy"
    if isinstance(config, PPOConfig):
        kind = "envpool" if resolve_backend(config.backend, environment_of(config)) == "envpool" else "other"
    rate = STEPS_PER_SECOND[kind]
    minutes = steps / rate / 60
    if minutes > LONG:
        duration = f"about {minutes:.0f} minutes" if minutes < 90 else f"about {minutes / 60:.0f} hours"
        fewer = max(1, int(LONG * 60 * rate / config.steps_per_epoch))
        print(
            f"this is long: it may take {duration} on two cores. "
            f"Set epochs to {fewer:,} for about ten minutes, or choose another preset"
        )


@one_line("stopped at once: run this cell again to continue from the last checkpoint")
def train(
    preset: str, config: TrainingConfig, runs_folder: str, label: str = "", stop_after: int | None = None
) -> Path:
    """Train a run to its end and return its folder; a run with these settings that was interrupted is continued.

    A run with other settings is left alone, and its folder is not reused.

    Args:
        label: appended to the folder's name.
        stop_after: stop after this epoch, with a checkpoint; None trains to the end.

    Raises:
        StoppedError: the stop button was pressed; a checkpoint was written.
        UserError: a setting does not work here.
    """
    folder, saved = place(runs_folder, _name(preset, config, label), config)
    if saved is not None and saved.epochs < config.epochs:
        stretched = f"its schedules stretch to the new total of {config.epochs}"
        print(f"{folder} was started with {saved.epochs} epochs: {stretched}")
    screen = Screen(folder, stop_after)
    ended = saved is not None and finished.is_done(folder, finished.ADOPT, config.epochs)
    if ended and not session.goes_on(folder, config):
        put({"text/plain": f"{folder} is finished: nothing is left to train"})
        screen.figure(plot.draw("five", [folder]))
        return folder
    screen.open()
    options = _options(folder, "figure", "tensorboard")
    if saved is not None:
        config, options = saved.changed_as(config), options.replace(name=None, runs_folder="runs", resume=folder)
    try:
        return session.run(functools.partial(_trainer, preset), preset, config, options, screen)
    except StoppedError as stopped:
        line = f"stopped after epoch {screen.done} of {screen.epochs}, which is saved: run this cell again to continue"
        if stop_after is None or screen.done != stop_after:
            raise StoppedError(line, stopped.exit_code - 128) from None
        screen.say(line)
        return folder


_background: "BackgroundRun | None" = None  # the last one that was started


@one_line()
def start(preset: str, config: PPOConfig, runs_folder: str, label: str = "") -> "BackgroundRun":
    """Train a new run in the background, so that its hyperparameters can be changed meanwhile; see `train`.

    Only one run trains at a time: a run that an earlier call started is stopped first, with a checkpoint.
    """
    global _background
    if _background is not None:
        _background.stop()
    folders = _folders(runs_folder, _name(preset, config, label))
    _background = BackgroundRun(preset, config, next(folder for folder in folders if not folder.exists()))
    return _background


class BackgroundRun:
    """A run in a thread of its own."""

    def __init__(self, preset: str, config: TrainingConfig, folder: Path) -> None:
        self.folder, self._config = folder, config
        self._screen = Screen(folder)
        self._cell: int | None = -1  # number of the execution of the cell that shows the run
        self._live: LiveHyperparameters | None = None
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._work, args=(preset, config), daemon=True)
        self._thread.start()

    @property
    @one_line()
    def live(self) -> LiveHyperparameters:
        """What may be changed: `run.live["clip_range"] = 0.1` holds from the next update on, until the run is over."""
        if not isinstance(self._config, PPOConfig):
            raise UserError(f"{self.folder} is not a run of PPO: nothing can be changed while it trains")
        self._wait(lambda: self._live is not None)
        if self._live is None or not self._thread.is_alive():
            raise UserError(f"{self.folder} is over: hyperparameters can be changed only while a run trains")
        return self._live

    @one_line()
    def wait(self, epoch: int | None = None) -> Path:
        """Show the run until an epoch, by default the last, is over, and return its folder.

        All calls of one cell update one output. The stop button ends the run after its current epoch.
        """
        cell = getattr(get_ipython(), "execution_count", None)
        if cell != self._cell:
            self._cell = cell
            self._screen.open()
        self._wait(lambda: epoch is not None and self._screen.done >= epoch)
        return self.folder

    def stop(self) -> None:
        """End the run after its current epoch, and wait for that."""
        self._screen.stop = signal.SIGINT
        while self._thread.is_alive():
            self._screen.refresh()
            self._thread.join(0.1)

    def _wait(self, enough: Callable[[], bool]) -> None:
        try:
            while self._thread.is_alive() and not enough():
                self._screen.refresh()
                time.sleep(0.1)
        except KeyboardInterrupt:
            self.stop()
        self._screen.refresh()
        if isinstance(self._error, StoppedError):
            line = f"stopped after epoch {self._screen.done} of {self._screen.epochs}; this cell begins a new run"
            raise StoppedError(line, signal.SIGINT)
        if self._error is not None:
            raise self._error

    def _work(self, preset: str, config: TrainingConfig) -> None:
        def make(config: TrainingConfig) -> Any:
            trainer = _trainer(preset, config)
            self._live = trainer.live
            return trainer

        try:
            session.run(make, preset, config, _options(self.folder, "tensorboard"), self._screen)
        except BaseException as error:
            self._error = error
        if self._live is not None:
            self._live.is_over = True


def _trainer(preset: str, config: TrainingConfig) -> Any:
    return methods.METHODS[config.METHOD].trainer(config, description=f"preset {preset}")


def _options(folder: Path, *record: Any) -> RunOptions:
    """Those of a new run in a folder, without evaluation and film, which are cells of their own."""
    return RunOptions(name=folder.name, runs_folder=str(folder.parent), evaluation_episodes=0, record=record)


def place(runs_folder: str | Path, name: str, config: TrainingConfig) -> tuple[Path, TrainingConfig | None]:
    """The folder of the run with these settings and its saved settings; or a free folder and None.

    The saved run may have fewer epochs.
    """
    for folder in _folders(runs_folder, name):
        if not folder.exists():
            break
        try:
            typed = {name: getattr(config, name) for name in run_folder.TYPED}
            _, saved = methods.read_config(folder, **typed)
        except UserError as error:
            if (folder / run_folder.CONFIG).exists():  # else it was killed before it wrote its settings
                print(f"left alone: {error}")
            continue
        asked = config
        if config.backend == "auto":  # the run has found a backend and shards for it
            asked = config.replace(backend=saved.backend, shards=config.shards or saved.shards)
        if saved.epochs <= config.epochs and not saved.differences(asked):
            return folder, saved
    return folder, None


def _folders(runs_folder: str | Path, name: str) -> Iterator[Path]:
    """NAME, NAME-2, NAME-3, …"""
    return (Path(runs_folder) / (name if i == 1 else f"{name}-{i}") for i in itertools.count(1))


def _name(preset: str, config: TrainingConfig, label: str) -> str:
    made_for_it = preset not in PRESETS or PRESETS[preset].env == config.env
    return f"{preset if made_for_it else re.sub('[/:]', '-', config.env)}-seed{config.seed}" + (label and f"-{label}")


@one_line()
def compare(*runs: Path | None) -> None:
    """Show the rewards of several runs and, folded, KL, clipping, entropy, σ and explained variance."""
    folders = trained(*runs)
    show(display.rewards(folders))
    put(display.folded("KL, clipping, entropy, σ", plot.draw("diagnostics", folders)))


@one_line()
def show_changes(run: Path, changed: str) -> None:
    """Show a hyperparameter that was changed during a run, the policy's standard deviation and the reward."""
    show(plot.draw("seeds", [run], (f"hp_{changed}", "mean_std", "avg_reward_orig")))


@one_line()
def score(*runs: Path | None, episodes: int = 100, **typed: Any) -> None:
    """Show a table of unshaped scores: of the untrained agent, then of each run's best agent.

    Each run's scores are also written to its evaluation.json.

    Args:
        episodes: played with deterministic actions, and as many again with sampled ones.
        typed: `env`, `env_kwargs`, `wrappers` and `networks` of the runs, see `methods.read_config`; only needed again
            where they import a module of your own or hold texts.
    """
    folders = trained(*runs)
    shown, rows = put({"text/plain": "playing ..."}), {}
    names = [run.name for run in dict.fromkeys(folders)]
    for run in (None, *dict.fromkeys(folders)):
        best, config, found = load_agent(run or folders[0], **typed)
        agent: Any = best if run is not None else new_agent(config, found)
        name = "untrained" if run is None else str(run) if names.count(run.name) > 1 else run.name
        with progress.followed(lambda text: shown.update({"text/plain": f"{name}: {text}"}, raw=True)):  # noqa: B023
            rows[name] = evaluation.evaluate_both(
                agent.acting_policy(), agent.action_map, found, episodes, restarts=config.environment_restarts
            )
        if run is not None:
            finished.note_evaluation(run, config.epochs, rows[name])
    shown.update(display.table(rows), raw=True)
    for name, summaries in rows.items():
        for remark in evaluation.remarks(summaries):
            print(f"{name}: {remark}")


@one_line()
def watch(run: Path | None, **typed: Any) -> None:
    """Show the same episode played by the untrained agent and by a run's best agent, side by side.

    An environment that draws no pictures gets a line instead. For `typed` see `score`.
    """
    [folder] = trained(run)
    best, config, found = load_agent(folder, **typed)
    agents: dict[str, Any] = {"untrained": new_agent(config, found), "trained": best}
    try:
        takes = {
            stage: FilmedEpisode(agent.acting_policy(), agent.action_map, found, most_frames=films.FRAMES_PER_SECOND)
            for stage, agent in agents.items()
        }
        films.show_films(takes)
    except UserError as error:
        print(f"not filmed: {error}")


@one_line()
def watch_agent(name: str) -> None:
    """Show episodes with the median score of an agent that comes with the project, untrained and trained.

    No TensorFlow is imported, unless the agent sees images.

    Raises:
        UserError: there is no such agent, or its environment draws no pictures.
    """
    folder = shipped.folder_of(Path(name))
    if not shipped.is_shipped(folder):
        raise UserError(f"{name} is not an agent that comes with the project: expected one of {shipped.names()}")
    card: Any = files.read_json(folder / shipped.CARD)
    takes = {}
    for stage in ("untrained", "trained"):
        agent, _, found = shipped.load(folder, stage)
        seed, rate = card["stages"][stage]["median_seed"], films.FRAMES_PER_SECOND
        takes[stage] = FilmedEpisode(agent.acting_policy(), agent.action_map, found, seed, rate)
    films.show_films(takes)
