"""A run: train, record every epoch, save checkpoints, stop on a signal, resume, score and film at the end.

Three parts have files of their own: `recorder` (what follows an epoch, and when a checkpoint is written), `signals`
(Ctrl-C) and `after_training` (scores and film).
"""

import functools
import math
import shutil
import time
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from common import files, progress
from common.config import TrainingConfig
from common.errors import DivergedError, NotFiniteError, UserError
from common.results import EpochResult, score_text
from common.rollout.workers.shard import shards_for_workers
from common.runs import after_training, checkpoint, finished, run_folder, trust
from common.runs.command_line import names_of_flags, parse
from common.runs.fit import fitted
from common.runs.one_process import FolderLostError, only_here
from common.runs.options import RunOptions
from common.runs.recorder import Recorder
from common.runs.terminal import Terminal
from common.state import State

if TYPE_CHECKING:
    from common.learning.trainer_base import TrainerBase  # imports TensorFlow

CHECKPOINTS = run_folder.CHECKPOINTS
MakeTrainer = Callable[[Any], "TrainerBase"]  # from the method's own config


def train_as_typed(
    trainer: Any,
    arguments: list[str],
    program: str,
    presets: Mapping[str, TrainingConfig],
    default_preset: str,
    preset_for: Callable[[str], str],
    fitted_preset: str = "",
) -> None:
    """Train what a command line names, for every method; for the arguments and errors see `command_line.parse`.

    Args:
        trainer: a class, called with a config.
        fitted_preset: the preset whose settings, unless they were typed, are chosen again for a slow environment.
    """
    preset, config, options = parse(arguments, program, presets, default_preset, preset_for)
    typed = names_of_flags(arguments) if preset == fitted_preset else None
    make_trainer = functools.partial(trainer, description=f"preset {preset}", workers=options.placement)
    run(make_trainer, preset, config, options, typed=typed)


def run(
    make_trainer: MakeTrainer,
    preset: str,
    config: TrainingConfig,
    options: RunOptions,
    screen: Terminal | None = None,
    on_epoch: Callable[[EpochResult], object] | None = None,
    typed: Collection[str] | None = None,
) -> Path:
    """Train, record, evaluate and film a new run, or continue one that was interrupted.

    Args:
        make_trainer: called with the config before anything is written, so that a wrong setting leaves no files.
        preset: name of the preset, for config.json and the folder's name.
        screen: shows the run; None takes the terminal.
        on_epoch: called with each epoch's row, once the epoch is recorded and a checkpoint that is due is written.
            If it returns True, training ends with a checkpoint, and the run is evaluated and filmed; a resume trains
            the other epochs. What it raises ends the run.
        typed: names of the settings and options that stay where the others are chosen for a slow environment, once
            for a new run; None keeps all.

    Returns:
        The run folder.

    Raises:
        UserError: a setting does not work here, or the folder is taken, in use or damaged.
        StoppedError: a signal asked it to stop; a checkpoint was written.
    """
    screen = screen or Terminal()
    if options.resume is None:
        trust.refuse_runs(Path(options.runs_folder))
        run_folder.check_creatable(options.runs_folder, options.name, _default_name(preset, config))
        if typed is not None:
            config, options = fitted(config, options, typed, screen.say)
    elif not goes_on(options.resume, config):
        _check_unfinished(options.resume, config, options)
    return _run(make_trainer, preset, config, options, screen, on_epoch)


def _default_name(preset: str, config: TrainingConfig) -> str:
    return f"{preset}-seed{config.seed}"


def _run(
    make_trainer: MakeTrainer,
    preset: str,
    config: TrainingConfig,
    options: RunOptions,
    screen: Terminal,
    on_epoch: Callable[[EpochResult], object] | None,
) -> Path:
    is_divided = options.resume is None and options.workers > 0 and config.shards is None
    if is_divided:
        config = config.replace(shards=shards_for_workers(config))
    trainer = make_trainer(config)
    folder = None
    try:
        if options.workers and not trainer.has_workers:
            raise UserError(
                f"{options.workers} workers are asked for, and the trainer has none: give it workers=options.placement"
            )
        if is_divided:
            screen.say(f"environments are divided: --shards {config.shards} gives the same table without workers")
        if options.resume is None:
            folder = run_folder.create(options.runs_folder, options.name, _default_name(preset, config))
        else:
            folder = options.resume
        trainer.name = folder.name
        with only_here(folder, screen.say) as check_lock:
            files.remove_unfinished(folder)
            checkpoint.remove_unfinished(folder / CHECKPOINTS)
            if not goes_on(folder, trainer.config) and finished.is_done(folder, finished.ADOPT, trainer.config.epochs):
                screen.say(f"{folder} is trained already: only its evaluation and film are left to do")
                epochs, environment = _last_row(folder)[0] or trainer.config.epochs, trainer.environment
                run_folder.write_config(folder, trainer.config, preset, epochs, options, environment)
                trainer.agent.read_weights(folder / run_folder.BEST_AGENT)
            else:
                _train(trainer, folder, preset, options, screen, on_epoch, check_lock)
            trainer.close()  # perhaps no more environments may exist
            after_training.score_and_film(trainer, folder, options, screen, check_lock)
    except FolderLostError:
        raise  # what is there may be another run
    except (UserError, MemoryError, OSError) as error:
        if options.resume is None and folder is not None and not trainer.results:
            shutil.rmtree(folder, ignore_errors=True)
        elif folder is not None and isinstance(error, OSError) and error.errno in files.FULL:
            with run_folder.lost_disk_error(error.filename or folder, trust.command("resume", folder, trainer.config)):
                raise
        raise
    finally:
        trainer.close()
    return folder


def goes_on(folder: Path, config: TrainingConfig) -> bool:
    """Whether a run that ended early, solved or by `on_epoch`, has to go on with the `stop_score` of `config`."""
    epoch, metric = _last_row(folder)
    ended_early = finished.epochs_of(folder) == config.epochs and 0 < epoch < config.epochs
    return ended_early and (config.stop_score is None or not metric >= config.stop_score)  # or NaN


def _last_row(folder: Path) -> tuple[int, float]:
    """The last epoch of results.csv and its metric; 0 and NaN where it cannot be read."""
    try:
        table = run_folder.read_results(folder)
    except UserError:  # it is written again from the checkpoint
        return 0, math.nan
    return int(table["epoch"][-1]), float(table["metric"][-1])


def _check_unfinished(folder: Path, config: TrainingConfig, options: RunOptions) -> None:
    """Raise UserError if there is nothing to train, score or film, or if a solved run would stop again at once."""
    epoch, metric = _last_row(folder)
    if not finished.missing(folder, config.epochs, options):
        state = f"has all its {config.epochs} epochs" if config.stop_score is None else "has been trained to its end"
        longer = f"and --epochs N to go beyond {config.epochs} epochs"
        more = "--epochs N" if config.stop_score is None else f"--stop-score None ({longer})"
        raise UserError(
            f"{folder} {state}, and nothing is left to do: train more with {more}, or "
            f"score and film it again with {trust.command('evaluate', folder, config)}"
        )
    is_extended = finished.epochs_of(folder) not in (0, config.epochs)
    if is_extended and config.stop_score is not None and metric >= config.stop_score:
        raise UserError(
            f"{folder} was solved after epoch {epoch}: to train it further, give --stop-score None and more --epochs "
            "than that"
        )


def _train(
    trainer: "TrainerBase",
    folder: Path,
    preset: str,
    options: RunOptions,
    screen: Terminal,
    callback: Callable[[EpochResult], object] | None,
    check_lock: Callable[[], None],
) -> None:
    config = trainer.config
    resumed = options.resume is not None
    finished_earlier = finished.epochs_of(folder) != config.epochs or goes_on(folder, config)
    last, _ = _last_row(folder)
    warnings = _restored(trainer, folder, screen) if resumed else []
    after = trainer.epoch if resumed else None
    content = run_folder.write_config(folder, config, preset, after, options, trainer.environment)
    aside = finished.set_aside(folder, last or trainer.epoch) if finished_earlier else None
    if aside is not None:
        screen.say(f"earlier results are now in {aside}")
    with Recorder(trainer, folder, options, screen, content, check_lock, callback) as recorder:
        screen.say(
            f"{preset}: {config.env}, {config.num_envs} environment{'s' if config.num_envs > 1 else ''} on "
            f"{config.backend}, seed {config.seed}, {config.epochs} epoch{'s' if config.epochs > 1 else ''} of "
            f"{config.steps_per_epoch:,} steps, in {folder}"
            + (f", continuing after epoch {trainer.epoch}" if resumed else "")
        )
        _warn(screen, warnings)  # not before: a notebook then clears its lines
        trainer.warn = screen.say
        if trainer.live is not None:
            trainer.live.watch(folder)
        began = time.perf_counter()
        try:
            with progress.followed(recorder.show, recorder.between_steps):
                results = trainer.train(max(0, config.epochs - trainer.epoch), recorder)
        except (NotFiniteError, DivergedError) as error:
            if not trainer.results:
                raise  # no epoch is finished; the folder of a new run is removed
            check_lock()
            trainer.agent.save_weights(folder / run_folder.WEIGHTS)
            raise UserError(f"{error}; {_what_is_left(folder, config)}") from None
        check_lock()
        share = recorder.saving_seconds / max(1e-9, time.perf_counter() - began)
        recorder.draw(last=True)
    trainer.agent.save_weights(folder / run_folder.BEST_AGENT)
    finished.note(folder, finished.ADOPT, config.epochs, run_folder.BEST_AGENT)
    if trainer.solved:
        metric = trainer.results[-1].metric
        screen.say(
            f"solved after epoch {trainer.epoch} of {config.epochs}: its score of {score_text(metric)} has reached "
            f"stop_score {config.stop_score:g}"
        )
    elif trainer.epoch < config.epochs:
        screen.say(f"on_epoch ended the training after epoch {trainer.epoch} of {config.epochs}")
    screen.say(
        f"trained for {results['processing_time_total_string']} ({share:.1%} of it for checkpoints); "
        f"table and weights are in {folder}"
    )


def _warn(screen: Terminal, warnings: list[str]) -> None:
    for warning in warnings:
        screen.say(f"warning: {warning}")


def _restored(trainer: "TrainerBase", folder: Path, screen: Terminal) -> list[str]:
    """The warnings of `_restore`; if it fails, they are said before its error."""
    warnings: list[str] = []
    try:
        _restore(trainer, folder, screen, warnings.append)
    except BaseException:
        _warn(screen, warnings)
        raise
    return warnings


def _what_is_left(folder: Path, config: TrainingConfig) -> str:
    """Advice for a run that was ended by NaN or infinity."""
    weights = f"the last good weights are in {folder / run_folder.WEIGHTS}"
    if config.on_not_finite == "skip" or not checkpoint.generations(folder / CHECKPOINTS):
        return f"{weights}; start a new run with other settings"
    resume = f"{trust.command('resume', folder, config)} --on-not-finite skip"
    return f"{weights}; start a new run with other settings, or continue with {resume}"


def _restore(trainer: "TrainerBase", folder: Path, screen: Terminal, warn: Callable[[str], None]) -> None:
    """Load the newest whole checkpoint into the trainer; without any checkpoint the run begins again."""
    _, _, damage = run_folder.read_content(folder, {trainer.config.METHOD: type(trainer.config)})
    if damage:
        warn(f"{folder / run_folder.CONFIG} is damaged ({damage}), it is written again from a checkpoint")
    if not checkpoint.generations(folder / CHECKPOINTS):
        warn("the run was interrupted before its first checkpoint, so it starts again with epoch 1")
        return
    number, state = checkpoint.load_newest(folder / CHECKPOINTS, warn)
    if number > trainer.config.epochs:
        raise UserError(f"{folder} has {number} epochs already: ask for as many or more with --epochs")
    run_folder.check_same_settings(folder, trainer.config, checkpoint.settings_of(state))
    screen.say(f"restoring {folder} ...")  # environments repeat their actions, for up to a minute
    restore_checkpoint(trainer, folder / CHECKPOINTS, number, state)


def restore_checkpoint(trainer: "TrainerBase", folder: Path, number: int, state: State) -> None:
    """Load a checkpoint into a trainer.

    Raises:
        UserError: the checkpoint is of a trainer with other settings, or there is not enough memory.
    """
    try:
        checkpoint.check_fits(state, trainer.state())
        trainer.load_state(state)
    except MemoryError:
        raise UserError(
            f"there is not enough memory to restore checkpoint {number} in {folder}: end other programs and try again"
        ) from None
    except (LookupError, ValueError, ArithmeticError, TypeError, AttributeError, RecursionError) as error:
        raise UserError(
            f"checkpoint {number} in {folder} does not fit this run's settings ({type(error).__name__}): "
            "use the config.json that belongs to it"
        ) from None
