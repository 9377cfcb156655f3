"""Run folders from somebody else: files, settings, links made to execute something, or to write or read elsewhere."""

import contextlib
import json
import os
import random
import shutil
import socket
import sys
from collections.abc import Callable
from pathlib import Path

import common.learning.quiet_start  # noqa: F401  isort: skip  (before anything else imports TensorFlow)
import numpy as np
import tensorflow as tf

import PPOAgentTrainer
from common import arrays_file
from common.errors import UserError
from common.runs import checkpoint, one_process, run_folder, session
from fault_table import broken as ways
from fault_table import guard as guards
from fault_table import payloads
from fault_table.tally import Tally
from ppo.config import PPOConfig
from ppo.live_settings import FILE as HYPERPARAMETERS
from ppo.live_settings import LiveHyperparameters
from programs import evaluate, export, plot

TINY = (
    "pendulum --backend gymnasium --num-envs 1 --steps-per-epoch 32 --max-episode-steps 16 --minibatch-size 32 "
    "--passes 1 --hidden-sizes 4 --checkpoint-every 1 --record tensorboard --evaluation-episodes 1 --epochs 2"
)
RESUMED = "--epochs 3 --checkpoint-every 1 --record tensorboard --evaluation-episodes 1"
TREES = ("checkpoints", "tensorboard", "export")
PLAIN = (
    run_folder.CONFIG, run_folder.RESULTS, run_folder.WEIGHTS, run_folder.BEST_AGENT, run_folder.EVALUATION,
    HYPERPARAMETERS, run_folder.FIGURE, run_folder.VIDEO, one_process.LOCK,
)  # fmt: skip
NEWEST = f"{session.CHECKPOINTS}/00000002"
INSIDE = (f"{NEWEST}/{checkpoint.STATE}", f"{NEWEST}/{checkpoint.MANIFEST}", NEWEST)
NEXT = (f"{session.CHECKPOINTS}/00000003", f"{session.CHECKPOINTS}/.unfinished-00000003")
UNFINISHED = (*(f"{name}.tmp" for name in PLAIN), *NEXT)


class Yard:
    """A place for hostile folders: `runs`, importable as the project's is; `outside`, to be left alone; `out`."""

    def __init__(self, work: Path) -> None:
        self.runs, self.outside, self.out = work / "runs", work / "outside", work / "out"
        for folder in (self.runs, self.outside / "folder", self.out):
            folder.mkdir(parents=True)
        (self.outside / "secret.json").write_text('{"secret": 1}', "utf-8")
        (self.outside / "folder" / "secret").write_text("secret", "utf-8")
        self.trap = self.outside / "executed"
        os.chdir(work)
        sys.path.insert(0, str(work))
        tf.config.run_functions_eagerly(True)  # compiling for every folder would take hours
        self.original = self.runs / "original"
        fault, _ = guards.call(PPOAgentTrainer.main, *TINY.split(), "--runs-folder", self.runs, "--name", "original")
        if fault:
            raise RuntimeError(f"the run that hostile ones are made of failed: {fault}")
        temporary = Path(os.environ.get("TMPDIR", "/tmp"))
        self.guard = guards.Guard(self.outside, [self.runs, self.out], temporary)
        guards.limit_memory()

    def copy(self, name: str) -> Path:
        """A new run folder; only with a name without hyphens can a module in it be named."""
        folder = self.runs / name
        shutil.copytree(self.original, folder)
        return folder

    def try_everything(self, folder: Path, film: bool = False) -> list[str]:
        """What was wrong when the folder was resumed, evaluated, exported and drawn."""
        video = [] if film else ["--no-video"]
        programs: tuple[tuple[str, Callable[[], None], list], ...] = (
            ("resume", PPOAgentTrainer.main, ["--resume", folder, *RESUMED.split()]),
            ("evaluate", evaluate.main, [folder, "--episodes", "1", *video]),
            ("plot", plot.main, [folder, "--output", self.out / "figure.png"]),
            ("export", export.main, [folder]),
        )
        faults = []
        for name, main, arguments in programs:
            with self.guard.watching() as violations:
                ended, _ = guards.call(main, *arguments)
            if self.trap.exists():
                violations.append("code was executed")
                self.trap.unlink()
            faults += [f"{name}: {fault}" for fault in (*filter(None, [ended]), *violations)]
        return faults

    def clear(self, folder: Path) -> None:
        shutil.rmtree(folder, ignore_errors=True)
        shutil.rmtree(self.out)
        self.out.mkdir()


# -- tricks: each does one hostile thing to a folder and names it --


def _bad_archive(folder: Path, yard: Yard, rng: random.Random) -> str:
    make = rng.choice(payloads.ARCHIVES)
    for name in rng.sample((run_folder.WEIGHTS, run_folder.BEST_AGENT, checkpoint.STATE), rng.randint(1, 3)):
        content = make(rng, yard.trap)
        if name == checkpoint.STATE:
            _as_checkpoint(folder / NEWEST, content)
        else:
            _put(folder / name, content)
    return f"archive{make.__name__}"


def _as_checkpoint(generation: Path, content: bytes) -> None:
    """Hostile content with a right checksum."""
    with contextlib.suppress(OSError):  # another trick took its place
        _put(generation / checkpoint.STATE, content)
        _put(generation / checkpoint.MANIFEST, json.dumps(checkpoint.manifest(2, content)).encode())


def _put(path: Path, content: bytes) -> None:
    with contextlib.suppress(OSError):
        _remove(path)
        path.write_bytes(content)


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def environments(folder: Path) -> tuple[str, ...]:
    """Names that make a program import what lies in a run folder, or something it should not."""
    package = f"runs.{folder.name}.evil"
    return (
        f"{package}:X-v0", "evil:X-v0", "antigravity:X-v0", "this:X-v0", "os:system-v0", f"..{package}:X-v0",
        f"{folder}/evil.py:X-v0", "runs:X-v0", ":X-v0", "evil:X-v0:Y-v0", f"{package}:Pendulum-v1",
        "Pendulum-v1\n", "../Pendulum-v1", "", "\ud800-v0", "x" * 10_000 + ":y-v0", f"{package}:make", "evil:make",
    )  # fmt: skip


def _bad_environment(folder: Path, yard: Yard, rng: random.Random) -> str:
    content = json.loads((yard.original / run_folder.CONFIG).read_text("utf-8"))
    content["config"]["env"] = rng.choice(environments(folder))
    _put(folder / run_folder.CONFIG, json.dumps(content).encode("utf-8", "surrogatepass"))
    _plant_modules(folder, yard, rng)
    return f"environment {content['config']['env'][:40]!r}"


def _plant_modules(folder: Path, yard: Yard, rng: random.Random) -> str:
    code = f"import pathlib\npathlib.Path({str(yard.trap)!r}).touch()\n"
    for name in ("evil.py", "__init__.py", "sitecustomize.py", "numpy.py", "X.py", "conftest.py"):
        (folder / name).write_text(code, "utf-8")
    return "modules"


def _bad_config(folder: Path, yard: Yard, rng: random.Random) -> str:
    content = json.loads((yard.original / run_folder.CONFIG).read_text("utf-8"))
    paths = [(name,) for name in content] + [("config", name) for name in content["config"]] + [("config", "x")]
    path = rng.choice(paths)
    whole = rng.random() < 0.2
    _put(
        folder / run_folder.CONFIG,
        payloads.strange_file(rng) if whole else payloads.with_value(content, path, payloads.strange_value(rng)),
    )
    return "config.json as a whole" if whole else f"config.json {'.'.join(path)}"


def _bad_hyperparameters(folder: Path, yard: Yard, rng: random.Random) -> str:
    content = json.loads((yard.original / HYPERPARAMETERS).read_text("utf-8"))
    path = rng.choice([("values",), ("ranges",), *(("values", name) for name in (*content["values"], "__class__"))])
    whole = rng.random() < 0.3
    _put(
        folder / HYPERPARAMETERS,
        payloads.strange_file(rng) if whole else payloads.with_value(content, path, payloads.strange_value(rng)),
    )
    return f"{HYPERPARAMETERS} {'as a whole' if whole else '.'.join(path)}"


def _bad_table(folder: Path, yard: Yard, rng: random.Random) -> str:
    table = (yard.original / run_folder.RESULTS).read_bytes()
    _put(folder / run_folder.RESULTS, rng.choice((
        b"", table[:-7], table.replace(b".", b","), table + b"\xff\xfe\x00\n", table.replace(b"\n", b'"\n', 1),
        b"epoch,steps\n" + b"1," * 100_000, table + b'"' + b"x" * 200_000, table.upper(), rng.randbytes(2000),
        table + b"1e400," * 30 + b"\n", b"\n" * 1000, table.replace(b"epoch", b"=cmd|' /C calc'!A0", 1), table * 2,
    )))  # fmt: skip
    return run_folder.RESULTS


def _link(folder: Path, yard: Yard, rng: random.Random) -> str:
    name = rng.choice((*PLAIN, *TREES, *INSIDE, *UNFINISHED))
    return plant_link(folder / name, yard, rng)


def plant_link(path: Path, yard: Yard, rng: random.Random) -> str:
    """A link in place of a file or folder of a run, to something outside."""
    targets = [yard.outside / "secret.json", yard.outside / "folder", yard.outside / "new", path, Path("/dev/zero")]
    copy = yard.outside / "folder" / "secret"
    target = rng.choice([*targets, copy])
    with contextlib.suppress(OSError):
        path.parent.mkdir(exist_ok=True)
        _remove(path)
        path.symlink_to(target)
    return f"link {path.name} → {target.name}"


def _special_file(folder: Path, yard: Yard, rng: random.Random) -> str:
    name = rng.choice((*PLAIN, *TREES, *INSIDE, *UNFINISHED))
    path, kind = folder / name, rng.choice(("pipe", "socket", "folder", "unreadable"))
    with contextlib.suppress(OSError):
        _remove(path)
        if kind == "pipe":
            os.mkfifo(path)
        elif kind == "socket":
            here = os.getcwd()
            os.chdir(path.parent)  # a socket's path is short
            with socket.socket(socket.AF_UNIX) as made:
                made.bind(path.name)
            os.chdir(here)
        elif kind == "folder":
            (path / "something").mkdir(parents=True)
        else:
            path.write_bytes(b"")
            path.chmod(0)
    return f"{kind} {name}"


def _bad_checkpoint_names(folder: Path, yard: Yard, rng: random.Random) -> str:
    names = ("99999999999999999999", "²", "00000009", "-1", "00000003 ", "٣", "1e5", "..00000003", "00000002\n")
    name = rng.choice(names)
    with contextlib.suppress(OSError):
        shutil.copytree(folder / NEWEST, folder / session.CHECKPOINTS / name)
    return f"checkpoint named {name!r}"


def _bad_numbers(folder: Path, yard: Yard, rng: random.Random) -> str:
    """A checkpoint with right names and checksums, and wrong shapes, types or values."""
    state = checkpoint.load_newest(yard.original / session.CHECKPOINTS, lambda _: None)[1]
    name = rng.choice(sorted(state))
    array = np.asarray(state[name])
    changed: np.ndarray = rng.choice((
        np.zeros((0,)), np.zeros((3, 3, 3)), np.int64(-1), array.ravel()[:1] * 1.0, np.full_like(array, 1),
        np.frombuffer(b"[" * 50_000, np.uint8), np.frombuffer(b'{"a": 1e999}', np.uint8), np.int64(2**62),
    ))  # fmt: skip
    _as_checkpoint(folder / NEWEST, arrays_file.packed(state | {name: np.asarray(changed)}))
    return f"state {name}"


TRICKS: tuple[Callable[[Path, Yard, random.Random], str], ...] = (
    _bad_archive, _bad_archive, _bad_environment, _bad_config, _bad_hyperparameters, _bad_table, _link, _link,
    _special_file, _plant_modules, _bad_checkpoint_names, _bad_numbers,
)  # fmt: skip


# -- rows --


def folders(wanted: int, work: Path, broken: str = "") -> Tally:
    """Whole run folders with one to four tricks; each is resumed, evaluated, drawn and exported.

    Survived is a folder if nothing of it was executed, nothing outside of it was written, changed or read, every
    program ended well or in one line, and in bounded time and memory.
    """
    tally, rng, yard = Tally(), random.Random(9), Yard(work)
    ways.apply(broken)
    for attempt in range(wanted):
        folder = yard.copy(f"hostile_{attempt}")
        tricks = [trick(folder, yard, rng) for trick in rng.sample(TRICKS, rng.randint(1, 4))]
        faults = yard.try_everything(folder, film=attempt % 25 == 0)
        tally.count(not faults, f"{', '.join(tricks)}: {'; '.join(faults)}")
        yard.clear(folder)
    return tally


def links(wanted: int, work: Path, broken: str = "") -> Tally:
    """A link in place of each file and folder that a run has or writes, to a file, a folder and to nothing outside."""
    tally, rng, yard = Tally(), random.Random(10), Yard(work)
    ways.apply(broken)
    names = (*PLAIN, *TREES, *INSIDE, *UNFINISHED)
    for attempt in range(wanted):
        name = names[attempt % len(names)]
        folder = yard.copy(f"linked_{attempt}")
        trick = plant_link(folder / name, yard, rng)
        faults = yard.try_everything(folder)
        tally.count(not faults, f"{name}, {trick}: {'; '.join(faults)}")
        yard.clear(folder)
    return tally


def configs(wanted: int, work: Path, broken: str = "") -> Tally:
    """A hostile config.json; the run is evaluated and resumed."""
    return _one_trick((_bad_config, _bad_config, _bad_environment), wanted, work, broken)


def _one_trick(tricks: tuple[Callable, ...], wanted: int, work: Path, broken: str) -> Tally:
    tally, rng, yard = Tally(), random.Random(11), Yard(work)
    ways.apply(broken)
    for attempt in range(wanted):
        folder = yard.copy(f"config_{attempt}")
        trick = rng.choice(tricks)(folder, yard, rng)
        faults = []
        for name, main, arguments in (
            ("resume", PPOAgentTrainer.main, ["--resume", folder, *RESUMED.split()]),
            ("evaluate", evaluate.main, [folder, "--episodes", "1", "--no-video"]),
        ):
            with yard.guard.watching() as violations:
                ended, _ = guards.call(main, *arguments)
            faults += [f"{name}: {fault}" for fault in (*filter(None, [ended]), *violations)]
        tally.count(not faults, f"{trick}: {'; '.join(faults)}")
        yard.clear(folder)
    return tally


def hyperparameters(wanted: int, work: Path, broken: str = "") -> Tally:
    """A hostile hyperparameters.json: refused in one line, and every value stays as it was."""
    tally, rng, yard = Tally(), random.Random(12), Yard(work)
    ways.apply(broken)
    config = PPOConfig(env="Pendulum-v1")
    for attempt in range(wanted):
        folder = yard.copy(f"live_{attempt}")
        trick = _bad_hyperparameters(folder, yard, rng)
        live = LiveHyperparameters(config)
        before, fault = dict(live.values), ""
        with yard.guard.watching() as violations:
            try:
                with guards.time_limit(guards.PATIENCE):
                    live.watch(folder)
                    polled = live.poll()
                if "\n" in polled.refused:
                    fault = "more than one line"
                if live.values != before and polled.refused:
                    fault = "refused, and yet taken"
                if any(not low <= live.values[name] <= high for name, (low, high) in live.ranges.items()):
                    fault = f"out of range: {live.values}"
            except UserError as error:
                fault = "more than one line" if "\n" in str(error) else ""
            except BaseException as error:
                fault = f"a traceback of {type(error).__name__}"
        tally.count(not fault and not violations, f"{trick}: {fault}; {'; '.join(violations)}")
        yard.clear(folder)
    return tally


def archives(wanted: int, work: Path, broken: str = "") -> Tally:
    """Archives in place of checkpoints and weights, taken up by a trainer: refused in one line.

    They hold code, names that climb, and headers that promise, or compressed data that unpacks to, far more than a
    machine has.
    """
    tally, rng, yard = Tally(), random.Random(2), Yard(work)
    ways.apply(broken)
    config = PPOConfig(env="Pendulum-v1", backend="gymnasium", num_envs=1, steps_per_epoch=8, minibatch_size=8)
    trainer = PPOAgentTrainer.PPOAgentTrainer(config.replace(hidden_sizes=(4,)))
    for attempt in range(wanted):
        checkpoints = yard.runs / f"archive-{attempt}" / session.CHECKPOINTS
        checkpoint.save(checkpoints, 2, {"numbers": np.zeros(1)}, keep=1)
        make = payloads.ARCHIVES[attempt % len(payloads.ARCHIVES)]
        weights = checkpoints / "00000002" / checkpoint.STATE
        _as_checkpoint(weights.parent, make(rng, yard.trap))
        faults = []
        for attack in (
            lambda checkpoints=checkpoints: session.restore_checkpoint(
                trainer, checkpoints, *checkpoint.load_newest(checkpoints, lambda _: None)
            ),
            lambda weights=weights: arrays_file.read_weights(weights, trainer.agent.state(), {}),
        ):
            with yard.guard.watching() as violations:
                faults.append(_refusal_fault(attack))
            faults += violations
        if yard.trap.exists():
            faults.append("code was executed")
            yard.trap.unlink()
        faults = list(filter(None, faults))
        tally.count(not faults, f"{make.__name__}: {'; '.join(faults)}")
        yard.clear(checkpoints.parent)
    trainer.close()
    return tally


def _refusal_fault(attack: Callable[[], object]) -> str:
    try:
        with guards.time_limit(guards.PATIENCE):
            attack()
    except UserError as error:
        return "more than one line" if "\n" in str(error) else ""
    except BaseException as error:
        return f"a traceback of {type(error).__name__}"
    return "it was taken"
