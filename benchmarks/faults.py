"""What can happen to a run, done to it many times: python benchmarks/faults.py

Prints one table: fault, how often it was done, how often the run survived it. Survived means for a kill that the
run, resumed until it is done, is the run that was never killed (weights and table to the bit); for a damaged or
hostile file that an intact checkpoint is loaded or the file is refused in one line, and that nothing of it is
executed; for a wrong setting that it is refused in one line. Two cores need about an hour.
"""

import builtins
import contextlib
import io
import json
import os
import pickle
import random
import resource
import shutil
import subprocess
import sys
import tempfile
import threading
import time
import zipfile
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, fields
from pathlib import Path
from unittest import mock

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import common.quiet_start  # noqa: F401  isort: skip  (before anything else imports TensorFlow)
import numpy as np
from speed import RESULTS, ROOT, machine

from common import arrays_file, checkpoint, run_folder, session
from common.command_line import one_line_errors, parse, parse_settings
from common.config import PPOConfig
from common.errors import UserError
from common.presets import PRESETS, preset_for
from common.results import TIMING_COLUMNS

SMALL = "--num-envs 2 --steps-per-epoch 512 --hidden-sizes 16 --seed 3 --checkpoint-every 2"
QUIET = "--evaluation-episodes 0 --no-video --no-tensorboard --no-figure"
PPO = f"PPOAgentTrainer.py pendulum --epochs 60 --minibatch-size 256 {SMALL}"
DISCRETE = f"PPOAgentTrainer.py cartpole --epochs 60 --objective clip+kl {SMALL}"
OFF_POLICY = f"--env Pendulum-v1 --epochs 20 --batch-size 16 --warmup-steps 600 --train-every 4 {SMALL}"
PROGRAMS = {
    "PPO": f"{PPO} --backend gymnasium".split(),
    "PPO on EnvPool": f"{PPO} --backend envpool".split(),
    "discrete PPO": DISCRETE.split(),
    "TD3": f"-m companions.OffPolicyAgentTrainer td3 {OFF_POLICY}".split(),
    "DDPG": f"-m companions.OffPolicyAgentTrainer ddpg --exploration ornstein_uhlenbeck {OFF_POLICY}".split(),
}

KILLS = "kill -9 at a random moment, "  # and the program's name
CRASHES = "crash at a file operation of a save"
CORRUPTIONS = "random corruption of checkpoints"
HOSTILE = "hostile file in place of a checkpoint or weights"
MALFORMED = "malformed setting"
FULL = "disk full while training"


@dataclass
class Tally:
    """A row of the table."""

    fault: str
    tries: int = 0
    survived: int = 0

    def count(self, survived: bool) -> None:
        self.tries += 1
        self.survived += survived


@dataclass(frozen=True)
class Arguments:
    """Do to runs and checkpoints what can happen to them, and count what survives."""

    kills: int = 50
    """Kills of each program."""
    corruptions: int = 1000
    """Damaged checkpoints."""
    hostile: int = 1000
    """Files made to run code, or to write elsewhere."""
    settings: int = 10_000
    """Malformed settings."""
    limits: int = 20
    """Runs on a disk that fills up."""
    only: str = ""
    """Only rows whose name contains this."""
    go_on: bool = False
    """Only rows that results/faults.json does not have yet."""


# -- kills --


def outcome(folder: Path) -> dict[str, np.ndarray]:
    """What must not depend on kills: the table without its times, and the best agent."""
    columns = run_folder.read_results(folder)
    with np.load(folder / run_folder.BEST_AGENT) as file:
        weights = {name: file[name] for name in file.files}
    return weights | {name: column for name, column in columns.items() if name not in TIMING_COLUMNS}


def equal(one: dict[str, np.ndarray], other: dict[str, np.ndarray]) -> bool:
    return one.keys() == other.keys() and all(np.array_equal(one[k], other[k], equal_nan=True) for k in one)


def kills(name: str, wanted: int, work: Path) -> Tally:
    """kill -9 at random moments, resume, repeat; a kill survived if its run's end is that of the undisturbed one."""
    tally, rng = Tally(KILLS + name), random.Random(0)
    program = [sys.executable, *PROGRAMS[name], *QUIET.split(), "--runs-folder", str(work)]
    began = time.monotonic()
    subprocess.run([*program, "--name", "whole"], cwd=ROOT, check=True, stdout=subprocess.DEVNULL)
    length = time.monotonic() - began
    whole, run = outcome(work / "whole"), 0
    while tally.tries < wanted:
        folder, killed, done = work / f"run{run}", 0, False
        run += 1
        while not done:
            words = 2 if "-m" in program else 1  # of the program's name
            resume = [*program[: 1 + words], "--resume", str(folder), *QUIET.split()]
            begins = not (folder / run_folder.CONFIG).exists()
            if begins:
                shutil.rmtree(folder, ignore_errors=True)
            command = [*program, "--name", folder.name] if begins else resume
            began = time.monotonic()
            process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
            try:
                timeout = rng.uniform(0.2, 0.9) * length if tally.tries + killed < wanted else None
                _, complaint = process.communicate(timeout=timeout)
                done = True
                if begins:  # the machine has become faster: kill sooner
                    length = min(length, time.monotonic() - began)
                if process.returncode:
                    print(complaint.decode(), file=sys.stderr)
            except subprocess.TimeoutExpired:
                process.kill()
                process.communicate()
                killed += 1
                done = (folder / run_folder.BEST_AGENT).exists()  # its last file
        survived = (folder / run_folder.BEST_AGENT).exists() and equal(outcome(folder), whole)
        for _ in range(killed):
            tally.count(survived)
    return tally


# -- a save that is cut off --


class Crash(BaseException):
    """The machine stops; nothing after it happens."""


STATE = {"numbers": np.arange(1000.0), "name": checkpoint.pack_json({"epoch": 3})}
OPERATIONS = [(os, name) for name in ("mkdir", "fsync", "rename", "open", "close", "rmdir", "unlink")]
OPERATIONS.append((builtins, "open"))


@contextlib.contextmanager
def crash_at(number: int) -> Iterator[list[int]]:
    """The so-manieth file operation does not happen any more, nor any after it."""
    calls = [0]

    def failing(real: Callable) -> Callable:
        def operation(*arguments: object, **named: object) -> object:
            calls[0] += 1
            if calls[0] >= number:
                raise Crash
            return real(*arguments, **named)

        return operation

    with contextlib.ExitStack() as stack:
        for module, name in OPERATIONS:
            stack.enter_context(mock.patch.object(module, name, failing(getattr(module, name))))
        yield calls


def crashes(work: Path) -> Tally:
    """A crash at every file operation of a save, with and without an older checkpoint to remove."""
    tally = Tally(CRASHES)
    for keep in (1, 3):
        for number in range(1, 1000):
            folder = work / f"crash-{keep}-{number}"
            checkpoint.save(folder, 1, STATE, keep=3)
            try:
                with crash_at(number):
                    checkpoint.save(folder, 2, STATE, keep=keep)
                break  # there is no operation of that number
            except Crash:
                pass
            generation, state = checkpoint.load_newest(folder, lambda _: None)
            checkpoint.save(folder, 3, STATE, keep=1)
            tally.count(generation in (1, 2) and equal(state, STATE) and checkpoint.generations(folder) == [3])
    return tally


# -- damage --


def intact_or_refused(folder: Path, contents: dict[int, dict[str, np.ndarray]]) -> bool:
    try:
        generation, state = checkpoint.load_newest(folder, lambda _: None)
    except UserError as error:
        return "\n" not in str(error)
    return equal(state, contents[generation])


def corruptions(wanted: int, work: Path) -> Tally:
    """Flipped bits, cut ends, missing and mixed files, in one to three of three generations."""
    tally, rng = Tally(CORRUPTIONS), random.Random(1)
    contents = {n: {"numbers": np.random.default_rng(n).random(200)} for n in (1, 2, 3)}
    original = work / "original"
    for number, state in contents.items():
        checkpoint.save(original, number, state, keep=3)
    for attempt in range(wanted):
        folder = work / f"corrupt-{attempt}"
        shutil.copytree(original, folder)
        for number in rng.sample((3, 2, 1), rng.randint(1, 3)):
            victim = folder / f"{number:08d}" / rng.choice((checkpoint.STATE, checkpoint.MANIFEST))
            content = bytearray(victim.read_bytes())
            kind = rng.randrange(5)
            if kind == 0:
                content[rng.randrange(len(content))] ^= 1 << rng.randrange(8)
            elif kind == 1:
                del content[rng.randrange(len(content)) :]
            elif kind == 2:
                content[rng.randrange(len(content)) :] = rng.randbytes(rng.randint(1, 300))
            elif kind == 3:
                other = folder / f"{rng.choice((1, 2, 3)):08d}" / victim.name
                content = bytearray(other.read_bytes()) if other.exists() else bytearray()
            if kind == 4:
                victim.unlink()
            else:
                victim.write_bytes(content)
        tally.count(intact_or_refused(folder, contents))
        shutil.rmtree(folder)
    return tally


# -- files somebody made on purpose --


class Bomb:
    """Unpickling it makes a file."""

    def __init__(self, trap: Path) -> None:
        self._trap = trap

    def __reduce__(self) -> tuple:
        return open, (str(self._trap), "w")


def hostile_content(rng: random.Random, trap: Path) -> bytes:
    """A file that would make `trap` if something in it were executed or unpacked."""
    buffer, kind = io.BytesIO(), rng.randrange(6)
    if kind == 0:
        return pickle.dumps(Bomb(trap), protocol=rng.randrange(6))
    if kind == 1:
        np.savez(buffer, **{f"array_{rng.randrange(9)}": np.array([Bomb(trap)], dtype=object)})
    elif kind == 2:
        np.save(buffer, np.array([Bomb(trap), rng.random()], dtype=object), allow_pickle=True)
    elif kind == 3:  # a Keras archive with a Lambda layer
        code = f"__import__('pathlib').Path({str(trap)!r}).touch()"
        layer = {
            "class_name": "Lambda",
            "config": {"function": {"class_name": "__lambda__", "config": {"code": code}}},
        }
        with zipfile.ZipFile(buffer, "w") as archive:
            archive.writestr("config.json", json.dumps({"class_name": "Sequential", "config": {"layers": [layer]}}))
    elif kind == 4:  # names that climb
        with zipfile.ZipFile(buffer, "w") as archive:
            inner = io.BytesIO()
            np.save(inner, np.zeros(rng.randint(1, 5)))
            climbing = "../" * rng.randint(1, 6) + trap.name
            archive.writestr(rng.choice((climbing, str(trap))), inner.getvalue())
    else:  # a header that promises more than there is, or code for a shape
        shape = rng.choice(("(10000000000000,)", f"(open({str(trap)!r}, 'w'),)", "(1" + "0" * 40 + ",)"))
        header = f"{{'descr': '<f8', 'fortran_order': False, 'shape': {shape}, }}".ljust(117) + "\n"
        inner_content = b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header.encode()
        with zipfile.ZipFile(buffer, "w") as archive:
            archive.writestr("numbers.npy", inner_content)
    return buffer.getvalue()


def hostile(wanted: int, work: Path) -> Tally:
    """Checkpoints and weights with right checksums and wrong intentions, taken up by a trainer."""
    from PPOAgentTrainer import PPOAgentTrainer

    tally, rng = Tally(HOSTILE), random.Random(2)
    config = PPOConfig(env="Pendulum-v1", backend="gymnasium", num_envs=1, steps_per_epoch=8, minibatch_size=8)
    trainer = PPOAgentTrainer(config.replace(hidden_sizes=(4,)))
    for attempt in range(wanted):
        folder = work / f"hostile-{attempt}"
        checkpoints, trap = folder / "a" / "b" / session.CHECKPOINTS, folder / "executed"
        checkpoint.save(checkpoints, 1, {"numbers": np.zeros(1)}, keep=1)
        content = hostile_content(rng, trap)
        (checkpoints / "00000001" / checkpoint.STATE).write_bytes(content)
        (checkpoints / "00000001" / checkpoint.MANIFEST).write_text(json.dumps(checkpoint.manifest(1, content)))
        before = sorted(folder.rglob("*"))
        refused = 0
        weights = checkpoints / "00000001" / checkpoint.STATE
        for attack in (
            lambda checkpoints=checkpoints: session.take_up(
                trainer, checkpoints, *checkpoint.load_newest(checkpoints, lambda _: None)
            ),
            lambda weights=weights: arrays_file.read_weights(weights, trainer.agent.state(), {}),
        ):
            try:
                attack()
            except UserError as error:
                refused += "\n" not in str(error)
        tally.count(refused == 2 and not trap.exists() and sorted(folder.rglob("*")) == before)
        shutil.rmtree(folder)
    trainer.close()
    return tally


# -- settings --


def _refuses(name: str, value: float) -> bool:
    try:
        PPOConfig().replace(**{name: value})
    except UserError:
        return True
    return False


def malformed(wanted: int) -> Tally:
    """Settings of the wrong kind or out of range, as they are typed."""
    from hypothesis import HealthCheck, Phase, given, settings
    from hypothesis import strategies as st

    tally = Tally(MALFORMED)
    limited = [field.name for field in fields(PPOConfig) if field.type in (int, float) and _refuses(field.name, -1)]
    flag = st.sampled_from(limited).map(lambda name: "--" + name.replace("_", "-"))
    letters = st.text(st.characters(codec="ascii", categories=("L",)), min_size=1, max_size=12)
    not_a_number = letters.filter(lambda text: text.lower() not in ("nan", "inf", "infinity", "none", "e"))
    wrong = st.one_of(
        st.tuples(flag, not_a_number),
        st.tuples(flag, st.floats(max_value=-1e-6, allow_nan=False).map(repr)),
        st.tuples(flag, st.sampled_from(("nan", "inf", "-inf", ""))),
        st.tuples(letters.map(lambda text: f"--x{text}"), st.integers().map(str)),
        st.tuples(st.sampled_from(("--backend", "--entropy", "--std", "--reward-design")), letters),
        st.tuples(letters.map(lambda text: f"x{text}")),
    )

    @settings(
        max_examples=wanted, deadline=None, database=None, derandomize=True, phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )  # fmt: skip
    @given(wrong)
    def refuse(arguments: tuple[str, ...]) -> None:
        try:
            parse(list(arguments), "program", PRESETS, "bipedal-walker", preset_for)
            tally.count(False)
            print("accepted:", arguments, file=sys.stderr)
        except UserError as error:
            tally.count("\n" not in str(error))

    refuse()
    return tally


# -- a full disk --


def full_disks(wanted: int, work: Path) -> Tally:
    """A run resumed where no file may grow beyond a limit: its checkpoint stays, and it says so in one line."""
    tally, rng = Tally(FULL), random.Random(3)
    program = [sys.executable, *PROGRAMS["PPO"], *QUIET.split(), "--runs-folder", str(work), "--name", "run"]
    subprocess.run([*program, "--epochs", "4"], cwd=ROOT, check=True, stdout=subprocess.DEVNULL)
    original = work / "run"
    size = (original / session.CHECKPOINTS / "00000004" / checkpoint.STATE).stat().st_size
    for attempt in range(wanted):
        folder = work / f"full-{attempt}"
        shutil.copytree(original, folder)
        limit = rng.randint(2000, size)

        def limit_files(limit: int = limit) -> None:
            import signal

            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
            resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))

        command = [sys.executable, "PPOAgentTrainer.py", "--resume", str(folder), "--epochs", "8", *QUIET.split()]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, preexec_fn=limit_files)
        generation, _ = checkpoint.load_newest(folder / session.CHECKPOINTS, lambda _: None)
        lines = done.stderr.strip().splitlines()
        survived = generation == 4 and done.returncode == 2 and len(lines) == 1 and lines[0].startswith("error: ")
        tally.count(survived)
        if not survived:
            print(
                f"limit {limit}, generation {generation}, exit code {done.returncode}:",
                *lines,
                sep="\n",
                file=sys.stderr,
            )
        shutil.rmtree(folder)
    return tally


def table(rows: dict[str, dict[str, object]]) -> str:
    """Markdown that can be read as it stands."""
    cells = [("fault", "tries", "survived", "lost"), ("---", "---:", "---:", "---:")]
    for fault, row in rows.items():
        tries, survived = int(row["tries"]), int(row["survived"])
        cells.append((fault, f"{tries:,}", f"{survived:,}", f"{tries - survived:,}"))
    widths = [max(len(row[i]) for row in cells) for i in range(4)]
    return "\n".join("| " + " | ".join(cell.ljust(width) for cell, width in zip(row, widths)) + " |" for row in cells)


class Record:
    """Rows that are done, in results/faults.json as soon as they are; faults.md shows them.

    A row with fewer tries than the one that is there is told, and not written.
    """

    def __init__(self) -> None:
        self._path, self._lock = RESULTS / "faults.json", threading.Lock()
        self.rows: dict[str, dict[str, object]] = {}
        if self._path.exists():
            self.rows = json.loads(self._path.read_text())

    def done(self, fault: str, tries: int) -> bool:
        return int(self.rows.get(fault, {}).get("tries", 0)) >= tries

    def take(self, tally: Tally) -> Tally:
        print(f"{tally.fault}: {tally.survived} of {tally.tries} survived", flush=True)
        with self._lock:
            before = int(self.rows.get(tally.fault, {}).get("tries", 0))
            if tally.tries >= before:
                self.rows[tally.fault] = {"tries": tally.tries, "survived": tally.survived, **machine()}
                run_folder.write_json(self._path, self.rows)
                (RESULTS / "faults.md").write_text(f"{table(self.rows)}\n\n{self._where()}\n")
        return tally

    def _where(self) -> str:
        days = sorted({str(row["date"])[:10] for row in self.rows.values()})
        machines = {f"{row['cores']} cores of {row['cpu']}, {row['system']}" for row in self.rows.values()}
        return f"{' to '.join(dict.fromkeys((days[0], days[-1])))}, {'; '.join(sorted(machines))}."


def main() -> None:
    with one_line_errors(), tempfile.TemporaryDirectory() as temporary:
        arguments, record = parse_settings(Arguments), Record()

        def room(name: str) -> Path:
            path = Path(temporary) / name.replace(" ", "-")
            path.mkdir()
            return path

        def wanted(fault: str, tries: int) -> bool:
            return arguments.only in fault and not (arguments.go_on and record.done(fault, tries))

        def killed(program: str) -> Tally:
            return record.take(kills(program, arguments.kills, room(program)))

        jobs: dict[str, tuple[int, Callable[[], Tally]]] = {
            CRASHES: (1, lambda: crashes(room("crashes"))),
            CORRUPTIONS: (arguments.corruptions, lambda: corruptions(arguments.corruptions, room("corruptions"))),
            HOSTILE: (arguments.hostile, lambda: hostile(arguments.hostile, room("hostile"))),
            MALFORMED: (arguments.settings, lambda: malformed(arguments.settings)),
            FULL: (arguments.limits, lambda: full_disks(arguments.limits, room("disks"))),
        }
        programs = [name for name in PROGRAMS if wanted(KILLS + name, arguments.kills)]
        with ThreadPoolExecutor(max_workers=2) as two_at_once:
            tallies = list(two_at_once.map(killed, programs))
        tallies += [record.take(job()) for fault, (tries, job) in jobs.items() if wanted(fault, tries)]
        print(f"\n{table(record.rows)}")
        if any(tally.tries != tally.survived for tally in tallies):
            raise SystemExit(1)


if __name__ == "__main__":
    main()
