"""A run: train, record every epoch, save checkpoints, stop on a signal, resume, score and film at the end.

Four parts have files of their own: `each_epoch` (what follows an epoch), `saver` (when a checkpoint is written),
`signals` (Ctrl-C) and `after_training` (scores and film).
"""

import re
import shutil
import time
from collections.abc import Callable, Collection
from pathlib import Path

from common import files, progress
from common.config import MAY_CHANGE, TrainingConfig
from common.envs.shards import shards_for_workers
from common.errors import DivergedError, NotFiniteError, UserError
from common.results import EpochResult, score_text
from common.runs import after_training, checkpoint, finished, foreign_modules, run_folder, trust
from common.runs.each_epoch import EachEpoch
from common.runs.fit import fitted
from common.runs.one_process import FolderLostError, only_here
from common.runs.options import RunOptions
from common.runs.protocols import MakeTrainer, Trainer
from common.runs.recorder import Recorder, Terminal
from common.runs.saver import Saver
from common.runs.signals import StopSignals
from common.state import State

CHECKPOINTS = run_folder.CHECKPOINTS


def run(
    make_trainer: MakeTrainer,
    preset: str,
    config: TrainingConfig,
    options: RunOptions,
    screen: Terminal | None = None,
    on_epoch: Callable[[EpochResult], None] | None = None,
    typed: Collection[str] | None = None,
) -> Path:
    """Train, record, evaluate and film a new run, or continue one that was interrupted.

    Args:
        make_trainer: called with the config before anything is written, so that a wrong setting leaves no files.
        preset: name of the preset, for config.json and the folder's name.
        options: where the run is written and what is written.
        screen: shows the run; None takes the terminal.
        on_epoch: called with each epoch's row, once the epoch is recorded and a checkpoint that is due is written.
            What it raises ends the run.
        typed: names of the settings and options that stay where the others are chosen for a slow environment; None
            keeps all.

    Returns:
        The run folder.

    Raises:
        UserError: a setting does not work here, or the folder is taken, in use or damaged.
        StoppedError: a signal asked it to stop; a checkpoint was written.
    """
    screen = screen or Terminal()
    if options.resume is None:
        foreign_modules.refuse_runs(Path(options.runs_folder))
        run_folder.check_creatable(options.runs_folder, options.name, _default_name(preset, config))
        if typed is not None:
            config, options = fitted(config, options, typed, screen.say)
        config, line = _divided(config, options)
        return _run(make_trainer, preset, config, options, screen, on_epoch, line)
    if not goes_on(options.resume, config):
        check_unfinished(options.resume, config, options)
        _check_trains_more(options.resume, config)
    if typed is not None and "evaluation_episodes" not in typed:
        _, options = fitted(config, options, typed, screen.say)
    try:
        return _run(make_trainer, preset, config, options, screen, on_epoch)
    except UserError as error:
        kept = _kept_settings(str(error), config)
        if not kept:
            raise
        raise UserError(f"{error}; a resumed run keeps its {kept[0]}, so another one takes a new run") from None


def _default_name(preset: str, config: TrainingConfig) -> str:
    return f"{preset}-seed{config.seed}"


def _divided(config: TrainingConfig, options: RunOptions) -> tuple[TrainingConfig, str]:
    """The settings of a new run with workers, which needs shards for them, and the line that says so."""
    if not options.workers or config.shards is not None:
        return config, ""
    shards = shards_for_workers(config)
    count = "1 shard" if shards == 1 else f"{shards} shards"
    line = f"environments are divided into {count}: --shards {shards} gives the same table without workers"
    return config.replace(shards=shards), line


def _kept_settings(advice: str, config: TrainingConfig) -> list[str]:
    """The flags named in an error message that a resumed run must not change, but for those of its own command."""
    command = trust.flags_again(config)
    flags = re.findall(r"--[a-z][a-z-]*[a-z]", advice.replace(command, "") if command else advice)
    return [flag for flag in flags if hasattr(config, name := flag[2:].replace("-", "_")) and name not in MAY_CHANGE]


def _run(
    make_trainer: MakeTrainer,
    preset: str,
    config: TrainingConfig,
    options: RunOptions,
    screen: Terminal,
    on_epoch: Callable[[EpochResult], None] | None,
    line: str = "",
) -> Path:
    trainer = make_trainer(config)
    folder = None
    try:
        if options.workers and not trainer.has_workers:
            raise UserError(
                f"{options.workers} workers are asked for, and the trainer has none: give it workers=options.placement"
            )
        if line:  # not before the trainer has accepted the settings
            screen.say(line)
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
                run_folder.write_config(folder, trainer.config, preset, resumed_after=trainer.config.epochs)
                trainer.agent.read_weights(folder / run_folder.BEST_AGENT)
            else:
                _train(trainer, folder, preset, options, screen, on_epoch, check_lock)
            if trainer.config.num_envs == 1:
                trainer.close()  # perhaps only one environment may exist
            after_training.score_and_film(trainer, folder, options, screen, check_lock)
    except FolderLostError:
        raise  # what is there may be another run
    except (UserError, MemoryError, OSError) as error:
        if options.resume is None and folder is not None and not trainer.results:
            shutil.rmtree(folder, ignore_errors=True)
        elif folder is not None and isinstance(error, OSError) and error.errno in files.FULL:
            raise UserError(
                f"{error.filename or folder} cannot be written ({error.strerror}): make room on its disk, then "
                f"continue with {trust.command('resume', folder, trainer.config)}"
            ) from None
        raise
    finally:
        trainer.close()
    return folder


def goes_on(folder: Path, config: TrainingConfig) -> bool:
    """Whether a run that ended early, because it was solved, has to go on with the `stop_score` of `config`."""
    if finished.epochs_of(folder) != config.epochs:
        return False
    try:
        table = run_folder.read_results(folder)
    except UserError:  # it is damaged: what was trained is kept
        return False
    early = table["epoch"][-1] < config.epochs
    return bool(early and (config.stop_score is None or table["metric"][-1] < config.stop_score))


def _last_epoch(folder: Path) -> int:
    """The last epoch of results.csv; 0 if it cannot be read."""
    try:
        return int(run_folder.read_results(folder)["epoch"][-1])
    except UserError:
        return 0


def check_unfinished(folder: Path, config: TrainingConfig, options: RunOptions) -> None:
    """Raise UserError if nothing is left to do: all epochs are trained, and scored and filmed as the options ask."""
    if not finished.missing(folder, config.epochs, options):
        state = f"has all its {config.epochs} epochs" if config.stop_score is None else "has been trained to its end"
        longer = f"and --epochs N to go beyond {config.epochs} epochs"
        more = "--epochs N" if config.stop_score is None else f"--stop-score None ({longer})"
        raise UserError(
            f"{folder} {state}, and nothing is left to do: train more with {more}, or "
            f"score and film it again with {trust.command('evaluate', folder, config)}"
        )


def _check_trains_more(folder: Path, config: TrainingConfig) -> None:
    """Raise UserError for a run that was solved and is given another number of epochs: it would stop at once."""
    planned = finished.epochs_of(folder)
    if not planned or planned == config.epochs or config.stop_score is None:
        return
    try:
        table = run_folder.read_results(folder)
    except UserError:  # it is damaged, and is written again from the checkpoint
        return
    if table["metric"][-1] >= config.stop_score:
        raise UserError(
            f"{folder} was solved after epoch {table['epoch'][-1]:.0f}: to train it further, give "
            "--stop-score None and more --epochs than that"
        )


def _train(
    trainer: Trainer,
    folder: Path,
    preset: str,
    options: RunOptions,
    screen: Terminal,
    callback: Callable[[EpochResult], None] | None,
    check_lock: Callable[[], None],
) -> None:
    config = trainer.config
    warnings: list[str] = []
    resumed = options.resume is not None
    finished_earlier = finished.epochs_of(folder) != config.epochs or goes_on(folder, config)
    last = _last_epoch(folder)
    if resumed:
        _restore(trainer, folder, screen, warnings.append)
    content = run_folder.write_config(folder, config, preset, trainer.epoch if resumed else None)
    aside = finished.set_aside(folder, last or trainer.epoch) if finished_earlier else None
    if aside is not None:
        screen.say(f"what the shorter run ended with is now in {aside}")
    with (
        Recorder(folder, trainer.results, trainer.result_type, config.epochs, options, screen) as recorder,
        StopSignals() as signals,
    ):
        for warning in warnings:
            recorder.say(f"warning: {warning}")
        recorder.say(
            _first_line(preset, config, folder) + (f", continuing after epoch {trainer.epoch}" if resumed else "")
        )
        recorder.settings(config)
        saver = Saver(trainer, folder, options, content, check_lock)
        on_epoch = EachEpoch(trainer, folder, options, screen, callback, recorder, signals, saver)
        trainer.warn = recorder.say
        if trainer.live is not None:
            trainer.live.watch(folder)
        began = time.perf_counter()
        try:
            with progress.followed(on_epoch.show, on_epoch.between_steps):
                results = trainer.train(max(0, config.epochs - trainer.epoch), on_epoch)
        except (NotFiniteError, DivergedError) as error:
            if not trainer.results:
                raise  # no epoch is finished; the folder of a new run is removed
            check_lock()
            trainer.agent.save_weights(folder / run_folder.WEIGHTS)
            raise UserError(f"{error}; {_what_is_left(folder, config)}") from None
        check_lock()
        share = saver.seconds / max(1e-9, time.perf_counter() - began)
        if options.figure and trainer.results:
            recorder.draw(last=True)
    trainer.agent.save_weights(folder / run_folder.BEST_AGENT)
    finished.note(folder, finished.ADOPT, config.epochs, run_folder.BEST_AGENT)
    if trainer.solved:
        metric = trainer.results[-1].metric
        screen.say(
            f"solved after epoch {trainer.epoch} of {config.epochs}: its score of {score_text(metric)} has reached "
            f"stop_score {config.stop_score:g}"
        )
    screen.say(
        f"trained for {results['processing_time_total_string']} ({share:.1%} of it for checkpoints); "
        f"table and weights are in {folder}"
    )


def _first_line(preset: str, config: TrainingConfig, folder: Path) -> str:
    """What is trained, where it is stepped, for how long, and where the run is written."""
    return (
        f"{preset}: {config.env}, {config.num_envs} environment{'s' if config.num_envs > 1 else ''} "
        f"on {config.backend}, seed {config.seed}, "
        f"{config.epochs} epoch{'s' if config.epochs > 1 else ''} of {config.steps_per_epoch:,} steps, in {folder}"
    )


def _what_is_left(folder: Path, config: TrainingConfig) -> str:
    """Advice for a run that was ended by NaN or infinity."""
    weights = f"the last good weights are in {folder / run_folder.WEIGHTS}"
    if config.on_not_finite == "skip" or not checkpoint.generations(folder / CHECKPOINTS):
        return f"{weights}; start a new run with other settings"
    resume = f"{trust.command('resume', folder, config)} --on-not-finite skip"
    return f"{weights}; start a new run with other settings, or continue with {resume}"


def _restore(trainer: Trainer, folder: Path, screen: Terminal, warn: Callable[[str], None]) -> None:
    """Load the newest whole checkpoint into the trainer; without any checkpoint the run begins again."""
    damage = run_folder.damage_of_config(folder, {trainer.config.METHOD: type(trainer.config)})
    if damage:
        warn(f"{folder / run_folder.CONFIG} is damaged ({damage}), it is written again from a checkpoint")
    if not checkpoint.generations(folder / CHECKPOINTS):
        warn("the run was interrupted before its first checkpoint, so it starts again with its first epoch")
        return
    number, state = checkpoint.load_newest(folder / CHECKPOINTS, warn)
    if number > trainer.config.epochs:
        raise UserError(f"{folder} has {number} epochs already: ask for as many or more with --epochs")
    run_folder.check_same_settings(folder, trainer.config, checkpoint.settings_of(state))
    screen.say(f"restoring {folder} ...")  # environments repeat their actions, for up to a minute
    restore_checkpoint(trainer, folder / CHECKPOINTS, number, state)


def restore_checkpoint(trainer: Trainer, folder: Path, number: int, state: State) -> None:
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
