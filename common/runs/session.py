"""A run from its first epoch to its film: recorded, checkpointed, stopped and resumed."""

import contextlib
import os
import re
import signal
import time
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Protocol

from common import files
from common.config import MAY_CHANGE, TrainingConfig
from common.envs.environment import Environment
from common.errors import DivergedError, NotFiniteError, StoppedError, UserError
from common.results import EpochResult
from common.rollout import evaluation
from common.runs import checkpoint, film, finished, foreign_modules, run_folder
from common.runs.one_process import LOCK, only_here  # noqa: F401  (LOCK: for whoever looks into a run folder)
from common.runs.options import RunOptions
from common.runs.recorder import Recorder, Terminal
from common.state import State

if TYPE_CHECKING:
    from common.runs.board import Board

CHECKPOINTS = run_folder.CHECKPOINTS
DEFAULT_INTERVAL = 10  # epochs between checkpoints at least
LARGEST_SHARE = 0.01  # of the time since the last one, that a checkpoint may take
_SIGHUP = getattr(signal, "SIGHUP", None)  # Windows has none
_SIGNALS = (signal.SIGINT, signal.SIGTERM, *([] if _SIGHUP is None else [_SIGHUP]))
STOPPING = b"\nstopping at the end of this epoch, which is then saved; another Ctrl-C stops at once\n"


class Agent(Protocol):
    """What a session needs of an agent."""

    action_map: Callable

    def acting_policy(self) -> Callable:
        """The present policy, raw observations → actions."""

    def save_weights(self, path: Path) -> None:
        """Everything that acting and going on with training need, whole or not at all."""


class Live(Protocol):
    """Settings that may be changed while a run goes on."""

    def watch(self, folder: Path) -> None:
        """Keep a file in the run folder in step with them."""


class Trainer(Protocol):
    """What a session needs of a trainer."""

    name: str
    config: TrainingConfig
    agent: Agent
    environment: Environment
    epoch: int
    results: list[EpochResult]
    result_type: type[EpochResult]
    warn: Callable[[str], None]
    live: Live | None  # what may be changed while it goes on

    def train(self, epochs: int, on_epoch: Callable[[EpochResult], None]) -> dict[str, object]:
        """So many more epochs; `on_epoch` is told of each. Returns the results dictionary."""

    def state(self) -> State:
        """Everything that changes, between two epochs."""

    def load_state(self, state: State) -> None:
        """Take over what `state` returned."""

    def close(self) -> None:
        """End the environments."""


def run(
    make_trainer: Callable[[TrainingConfig], Trainer],
    preset: str,
    config: TrainingConfig,
    options: RunOptions,
    screen: Terminal | None = None,
) -> Path:
    """Train, record, evaluate and film; or go on with a run that was cut off.

    Args:
        make_trainer: called before anything is written, so that a wrong setting leaves nothing behind.
        screen: where the run is watched; None takes the terminal.

    Returns:
        The run folder.

    Raises:
        UserError: a setting does not work here, or the folder is taken, in use or damaged.
        StoppedError: a signal asked it to stop; a checkpoint was written.
    """
    if options.resume is None:
        foreign_modules.refuse_runs(Path(options.runs_folder))
        return _run(make_trainer, preset, config, options, screen or Terminal())
    check_unfinished(options.resume, config, options)
    try:
        return _run(make_trainer, preset, config, options, screen or Terminal())
    except UserError as error:
        kept = _kept_settings(str(error), config)
        if not kept:
            raise
        raise UserError(f"{error}; a resumed run keeps its {kept[0]}, so another one takes a new run") from None


def _kept_settings(advice: str, config: TrainingConfig) -> list[str]:
    """The flags in a line that a resumed run cannot be given."""
    flags = re.findall(r"--[a-z][a-z-]*[a-z]", advice)
    return [flag for flag in flags if hasattr(config, name := flag[2:].replace("-", "_")) and name not in MAY_CHANGE]


def _run(
    make_trainer: Callable[[TrainingConfig], Trainer],
    preset: str,
    config: TrainingConfig,
    options: RunOptions,
    screen: Terminal,
) -> Path:
    trainer = make_trainer(config)
    try:
        if options.resume is None:
            folder = run_folder.create(options.runs_folder, options.name, f"{preset}-seed{config.seed}")
        else:
            folder = options.resume
        trainer.name = folder.name
        with only_here(folder, screen.say):
            files.remove_unfinished(folder)
            checkpoint.remove_unfinished(folder / CHECKPOINTS)
            if finished.is_done(folder, finished.ADOPT, trainer.config.epochs):
                screen.say(f"{folder} is trained already: what is left is done now")
                run_folder.write_config(folder, trainer.config, preset, resumed_after=trainer.config.epochs)
                trainer.agent.read_weights(folder / run_folder.BEST_AGENT)
            else:
                _train(trainer, folder, preset, options, screen)
            _look_back(trainer, folder, options, screen)
    finally:
        trainer.close()
    return folder


def check_unfinished(folder: Path, config: TrainingConfig, options: RunOptions) -> None:
    """Raises UserError if a run has all its epochs, and all that the options ask for after them."""
    if not finished.missing(folder, config.epochs, options):
        raise UserError(
            f"{folder} has all its {config.epochs} epochs and what follows them: ask for more with --epochs, or score "
            "and film it again with evaluate.py"
        )


def _train(trainer: Trainer, folder: Path, preset: str, options: RunOptions, screen: Terminal) -> None:
    config = trainer.config
    warnings: list[str] = []
    resumed = options.resume is not None
    if resumed:
        _restore(trainer, folder, screen, warnings.append)
    content = run_folder.write_config(folder, config, preset, trainer.epoch if resumed else None)
    aside = finished.set_aside(folder, config.epochs, trainer.epoch)
    if aside is not None:
        screen.say(f"what the shorter run ended with is now in {aside}")
    with (
        Recorder(folder, trainer.results, trainer.result_type, config.epochs, options, screen) as recorder,
        _Signals() as signals,
    ):
        for warning in warnings:
            recorder.say(f"warning: {warning}")
        recorder.say(
            f"{preset}: {config.env}, {config.num_envs} environment{'s' if config.num_envs > 1 else ''} "
            f"on {config.backend}, seed {config.seed}, "
            f"{config.epochs} epochs of {config.steps_per_epoch:,} steps, in {folder}"
            + (f", going on after epoch {trainer.epoch}" if resumed else "")
        )

        recorder.settings(config)
        saver = _Saver(trainer, folder, options, content)

        def on_epoch(result: EpochResult) -> None:
            recorder(result)
            epoch, stopped = result.epoch, signals.received or screen.stop
            if saver.due(epoch) or epoch == config.epochs or stopped:
                saver.save(epoch)
            if options.evaluate_every and epoch % options.evaluate_every == 0:
                recorder.write_evaluation(epoch, _evaluate(trainer, options.evaluation_episodes))
            if stopped:
                if options.figure:
                    recorder.draw(last=True)
                raise StoppedError(
                    f"stopped after epoch {epoch} of {config.epochs}; go on with --resume {folder}", stopped
                )

        trainer.warn = recorder.say
        if trainer.live is not None:
            trainer.live.watch(folder)
        began = time.perf_counter()
        try:
            results = trainer.train(max(0, config.epochs - trainer.epoch), on_epoch)
        except (NotFiniteError, DivergedError) as error:
            trainer.agent.save_weights(folder / run_folder.WEIGHTS)
            raise UserError(f"{error}; {_what_is_left(folder, config)}") from None
        share = saver.seconds / max(1e-9, time.perf_counter() - began)
        if options.figure and trainer.results:
            recorder.draw(last=True)
    trainer.agent.save_weights(folder / run_folder.BEST_AGENT)
    finished.note(folder, finished.ADOPT, config.epochs, run_folder.BEST_AGENT)
    screen.say(
        f"trained for {results['processing_time_total_string']} ({share:.1%} of it for checkpoints); "
        f"table and weights are in {folder}"
    )


def _what_is_left(folder: Path, config: TrainingConfig) -> str:
    """What to do about a run that NaN or infinity ended."""
    weights = f"the last good weights are in {folder / run_folder.WEIGHTS}"
    if config.on_not_finite == "skip" or not checkpoint.generations(folder / CHECKPOINTS):
        return f"{weights}; start a new run with other settings"
    return f"{weights}; start a new run with other settings, or --resume {folder} --on-not-finite skip"


def _restore(trainer: Trainer, folder: Path, screen: Terminal, warn: Callable[[str], None]) -> None:
    """Bring the trainer to the newest whole checkpoint."""
    damage = run_folder.damage_of_config(folder, {trainer.config.METHOD: type(trainer.config)})
    if damage:
        warn(f"{folder / run_folder.CONFIG} is damaged ({damage}), it is written again from a checkpoint")
    if not checkpoint.generations(folder / CHECKPOINTS):
        warn("the run was cut off before its first checkpoint, so it begins with its first epoch")
        return
    number, state = checkpoint.load_newest(folder / CHECKPOINTS, warn)
    if number > trainer.config.epochs:
        raise UserError(f"{folder} has {number} epochs already: ask for as many or more with --epochs")
    run_folder.check_same_settings(folder, trainer.config, checkpoint.settings_of(state))
    screen.say(f"bringing {folder} back to where it was ...")  # environments repeat their actions, for a minute maybe
    take_up(trainer, folder / CHECKPOINTS, number, state)


def take_up(trainer: Trainer, folder: Path, number: int, state: State) -> None:
    """Load a checkpoint, as `checkpoint.load_newest` found it in a folder, into a trainer.

    Raises:
        UserError: it is of a trainer with other settings.
    """
    try:
        checkpoint.check_fits(state, trainer.state())
        trainer.load_state(state)
    except MemoryError:
        raise UserError(
            f"there is not enough memory to take up checkpoint {number} in {folder}: end other programs and try again"
        ) from None
    except (LookupError, ValueError, ArithmeticError, TypeError, AttributeError, RecursionError) as error:
        raise UserError(
            f"checkpoint {number} in {folder} does not fit this run's settings ({type(error).__name__}): "
            "use the config.json that belongs to it"
        ) from None


def _look_back(trainer: Trainer, folder: Path, options: RunOptions, screen: Terminal) -> None:
    """Score and film the trained agent, so far as that is not done."""
    left = finished.missing(folder, trainer.config.epochs, options)
    if not left:
        return
    episodes = options.evaluation_episodes if finished.EVALUATE in left else 0
    with _board(folder, options, screen) as board, contextlib.ExitStack() as ended:
        if finished.FILM in left:
            filmed = ended.enter_context(_filming(trainer, folder, options.gif, episodes))
        if finished.EVALUATE in left:
            _score(trainer, folder, episodes, screen, board)
        if finished.FILM in left:
            _film(filmed, trainer, folder, screen, board)


def _board(folder: Path, options: RunOptions, screen: Terminal) -> contextlib.AbstractContextManager["Board | None"]:
    if not options.tensorboard:
        return contextlib.nullcontext()
    from common.runs.board import Board  # and with it TensorFlow

    return Board(folder / run_folder.TENSORBOARD, screen.say)


def _score(trainer: Trainer, folder: Path, episodes: int, screen: Terminal, board: "Board | None") -> None:
    screen.say(f"evaluating {episodes} episodes, deterministic and sampled ...")
    summaries = _evaluate(trainer, episodes)
    finished.note_evaluation(folder, trainer.config.epochs, summaries)
    screen.say("unshaped reward: " + evaluation.evaluation_line(summaries))
    if board is not None:
        board.scores("final", summaries, trainer.config.epochs)  # of the agent that was adopted


def _filming(
    trainer: Trainer, folder: Path, gif: bool, episodes: int
) -> contextlib.AbstractContextManager[Callable[[], tuple[str, film.Opening | None]]]:
    """See `film.filming`; `episodes` are evaluated meanwhile, deterministic and sampled."""
    agent = trainer.agent
    return film.filming(
        folder, agent.acting_policy(), agent.action_map, trainer.environment, gif,
        restarts=trainer.config.environment_restarts, beside=2 * episodes,
    )  # fmt: skip


def _film(
    filmed: Callable[[], tuple[str, film.Opening | None]],
    trainer: Trainer,
    folder: Path,
    screen: Terminal,
    board: "Board | None",
) -> None:
    epochs = trainer.config.epochs
    line, opening = filmed()
    finished.note_film(folder, epochs)
    screen.say(line)
    if board is not None and opening is not None:
        board.film(opening.frames, opening.rate, epochs)


def _evaluate(trainer: Trainer, episodes: int) -> dict[str, dict[str, object]]:
    agent = trainer.agent
    return evaluation.evaluate_both(
        agent.acting_policy(), agent.action_map, trainer.environment, episodes,
        restarts=trainer.config.environment_restarts,
    )  # fmt: skip


class _Saver:
    """Writes checkpoints, and the weights beside them, as often as the options say."""

    def __init__(self, trainer: Trainer, folder: Path, options: RunOptions, content: object = None) -> None:
        """content: of config.json."""
        self._trainer, self._folder, self._options, self._content = trainer, folder, options, content
        self.seconds = 0.0  # spent on it so far
        self._last_seconds = 0.0  # on the last one
        self._last_epoch, self._last_end = trainer.epoch, time.perf_counter()

    def due(self, epoch: int) -> bool:
        every = self._options.checkpoint_every
        if every:
            return epoch % every == 0
        since = time.perf_counter() - self._last_end
        return epoch - self._last_epoch >= DEFAULT_INTERVAL and self._last_seconds <= LARGEST_SHARE * since

    def save(self, epoch: int) -> None:
        began = time.perf_counter()
        state = checkpoint.with_settings(self._trainer.state(), self._content)
        checkpoint.save(self._folder / CHECKPOINTS, epoch, state, self._options.keep_checkpoints)
        self._trainer.agent.save_weights(self._folder / run_folder.WEIGHTS)
        self._last_epoch, self._last_end = epoch, time.perf_counter()
        self._last_seconds = self._last_end - began
        self.seconds += self._last_seconds


class _Signals:
    """The first Ctrl-C, SIGTERM or SIGHUP (a terminal that was closed) waits for the epoch's end, so that it can be
    saved; a second Ctrl-C does not. A signal that is ignored, as SIGHUP is under nohup, stays ignored.
    """

    def __init__(self) -> None:
        self.received = 0
        self._before: dict[int, object] = {}

    def __enter__(self) -> "_Signals":
        for number in _SIGNALS:
            try:
                if number != _SIGHUP or signal.getsignal(number) != signal.SIG_IGN:
                    self._before[number] = signal.signal(number, self._note)
            except ValueError:  # not the main thread: signals are somebody else's
                break
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _note(self, number: int, _: FrameType | None) -> None:
        if self.received and number == signal.SIGINT:
            raise KeyboardInterrupt
        self.received = number
        with contextlib.suppress(OSError):  # not `print`, in the middle of which the signal may have come
            os.write(2, STOPPING)
