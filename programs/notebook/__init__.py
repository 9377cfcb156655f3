"""The functions that `training.ipynb` calls: choose, train or resume, change hyperparameters, compare, score, watch.

Training is `common.runs.session.run`, as from the command line: the same folder, checkpoints and exact resume.
TensorFlow is imported with the first agent that learns, so that an agent can be watched before.
"""

import itertools
import re
import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from IPython import get_ipython

from common import progress
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
from programs import methods, plot
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
    """The name of a preset and its settings with changes.

    Args:
        preset: name of a preset of any method.
        environment: a Gymnasium id, whose preset (`ppo.presets.preset_for`) replaces `preset`; "" keeps `preset`.
        epochs: 0 takes the preset's own.
        settings: fields of the preset's config, by name.

    Raises:
        UserError: a name or a value is wrong, or the environment cannot be made.
    """
    if environment:
        preset, settings = presets.preset_for(environment), settings | {"env": environment}
    preset, _, config = find_preset(preset)
    config = replaced(preset, config, settings | ({"epochs": epochs} if epochs else {}))
    environment = environment_of(config).id  # with its version
    return preset, config.replace(env=environment)


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
    """Train a run to its end; a run with these settings that was interrupted is continued.

    Args:
        config: the settings. A run with other settings is left alone, and its folder is not reused.
        label: appended to the folder's name.
        stop_after: stop after this epoch, with a checkpoint; None trains to the end.

    Returns:
        The run folder.

    Raises:
        StoppedError: the stop button was pressed; a checkpoint was written.
        UserError: a setting does not work here.
    """
    folder, saved = place(runs_folder, _name(preset, config, label), config)
    if saved is not None and saved.epochs < config.epochs:
        stretched = f"its schedules stretch to the new total of {config.epochs}"
        print(f"{folder} was started with {saved.epochs} epochs: {stretched}")
    screen = Screen(folder, stop_after)
    screen.open()
    ended = saved is not None and finished.is_done(folder, finished.ADOPT, config.epochs)
    if ended and not session.goes_on(folder, config):
        screen.refresh(f"{folder} has all its epochs")
        screen.figure(plot.draw("five", [folder], (), "range"))
        return folder
    try:
        return _run(preset, config, folder, saved, screen)
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
    """A run in a thread of its own.

    Args:
        preset, config: see `train`.
        folder: of the run, which is made.
    """

    def __init__(self, preset: str, config: TrainingConfig, folder: Path) -> None:
        self.folder = folder
        self._screen = Screen(folder)
        self._cell: int | None = -1  # number of the execution of the cell that shows the run
        self._live: LiveHyperparameters | None = None
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._work, args=(preset, config), daemon=True)
        self._thread.start()

    @property
    @one_line()
    def live(self) -> LiveHyperparameters:
        """What may be changed: `run.live["clip_range"] = 0.1` holds from the next update on.

        Raises:
            UserError: the run is over.
        """
        self._wait(lambda: self._live is not None)
        if not self._thread.is_alive():
            raise UserError(f"{self.folder} is over: hyperparameters can be changed only while a run trains")
        assert self._live is not None  # set before training starts
        return self._live

    @one_line()
    def wait(self, epoch: int | None = None) -> Path:
        """Show the run until an epoch is over; the stop button ends the run after its current epoch.

        All calls of one cell update one output.

        Args:
            epoch: None waits for the last.

        Returns:
            The run folder.
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
        def hold(trainer: Any) -> None:
            self._live = trainer.live

        try:
            _run(preset, config, self.folder, None, self._screen, figure=False, made=hold)
        except BaseException as error:
            self._error = error


def _run(
    preset: str,
    config: TrainingConfig,
    folder: Path,
    saved: TrainingConfig | None,
    screen: Screen,
    figure: bool = True,
    made: Callable[[Any], None] = lambda trainer: None,
) -> Path:
    """Train in the folder that `place` found, without evaluation and film, which are cells of their own.

    Args:
        made: called with the trainer before it trains.
    """
    where = {"name": folder.name, "runs_folder": str(folder.parent)} if saved is None else {"resume": folder}
    if saved is not None:
        config = saved.changed_as(config)
    record: Any = ("figure", "tensorboard") if figure else ("tensorboard",)
    options = RunOptions(**where, evaluation_episodes=0, record=record)

    def make(config: TrainingConfig) -> Any:
        trainer = methods.METHODS[config.METHOD].trainer(config, description=f"preset {preset}")
        made(trainer)
        return trainer

    return session.run(make, preset, config, options, screen)


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
        if saved.epochs <= config.epochs and not saved.differences(_as_saved(config, saved)):
            return folder, saved
    return folder, None


def _folders(runs_folder: str | Path, name: str) -> Iterator[Path]:
    """NAME, NAME-2, NAME-3, …"""
    return (Path(runs_folder) / (name if i == 1 else f"{name}-{i}") for i in itertools.count(1))


def _as_saved(config: TrainingConfig, saved: TrainingConfig) -> TrainingConfig:
    """The settings with the backend and the shards that a run found for them, where they leave that to the run."""
    if config.backend != "auto":
        return config
    return config.replace(backend=saved.backend, shards=saved.shards if config.shards is None else config.shards)


def _name(preset: str, config: TrainingConfig, label: str) -> str:
    made_for_it = preset not in PRESETS or PRESETS[preset].env == config.env
    return f"{preset if made_for_it else re.sub('[/:]', '-', config.env)}-seed{config.seed}" + (label and f"-{label}")


@one_line()
def compare(*runs: Path | None) -> None:
    """Show the rewards of several runs and, folded, KL, clipping, entropy, σ and explained variance.

    Raises:
        UserError: a run is not trained to its end.
    """
    folders = trained(runs)
    show(display.rewards(folders))
    put(display.folded("KL, clipping, entropy, σ", plot.draw("diagnostics", folders, (), "range")))


@one_line()
def show_changes(run: Path, changed: str) -> None:
    """Show a hyperparameter that was changed during a run, the policy's standard deviation and the reward."""
    show(plot.draw("seeds", [run], (f"hp_{changed}", "mean_std", "avg_reward_orig"), "range"))


@one_line()
def score(*runs: Path | None, episodes: int = 100, **typed: Any) -> None:
    """Show a table of unshaped scores: of the untrained agent, then of each run's best agent.

    Each run's scores are also written to its evaluation.json.

    Args:
        episodes: played with deterministic actions, and as many again with sampled ones.
        typed: `env`, `env_kwargs`, `wrappers` and `networks` of the runs, see `methods.read_config`; only needed again
            where they import a module of your own or hold texts.
    """
    folders = trained(runs)
    shown, rows = put({"text/plain": "playing ..."}), {}
    for run in (None, *dict.fromkeys(folders)):
        best, config, found = load_agent(run or folders[0], "best", **typed)
        agent: Any = best if run is not None else new_agent(config, found)
        name = "untrained" if run is None else run.name
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

    An environment that draws no pictures gets a line instead.

    Args:
        typed: see `score`.
    """
    (folder,) = trained((run,))
    best, config, found = load_agent(folder, "best", **typed)
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
    """Show an agent that comes with the project, untrained and trained, side by side. No TensorFlow is needed.

    Args:
        name: of the agent, like best-hardcore.

    Raises:
        UserError: there is no such agent.
    """
    films.show_films(films.takes_of_shipped(name))
