"""The tiny programs that things are done to, started and watched."""

import contextlib
import itertools
import os
import select
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from fault_table.child import BETWEEN, HERE

ROOT = HERE.parent.parent
EPOCHS = 14
PATIENCE = 300.0  # seconds after which a program counts as hanging
OPTIONS = "--checkpoint-every 2 --record tensorboard video --evaluation-episodes"
FEW, MANY = 4, 18  # episodes; many are evaluated by worker processes, and filmed by another at the same time
SMALL = "--num-envs 2 --steps-per-epoch 256 --max-episode-steps 50 --hidden-sizes 16 --seed 3"
OFF_POLICY = f"--env Pendulum-v1 --batch-size 16 --warmup-steps 300 --train-every 4 {SMALL}"
PPO, COMPANIONS, SAC = "PPOAgentTrainer", "companions.OffPolicyAgentTrainer", "companions.SACAgentTrainer"
NETWORKS = "--networks fault_table.own_networks:make_networks"
PROGRAMS = {  # name → module and settings
    "PPO": (PPO, f"pendulum --minibatch-size 128 --backend gymnasium {SMALL}"),
    "PPO on EnvPool": (PPO, f"pendulum --minibatch-size 128 --backend envpool {SMALL}"),
    "PPO in processes": (PPO, f"pendulum --minibatch-size 128 --backend processes {SMALL}"),
    "discrete PPO": (PPO, f"cartpole --objective clip+kl {SMALL}"),
    "PPO with a memory": (PPO, f"pendulum --minibatch-size 128 --backend gymnasium --memory gru {SMALL}"),
    "PPO with action masks": (PPO, f"--env Taxi-v4 --action-masks --minibatch-size 128 {SMALL}"),
    "PPO with own networks": (PPO, f"pendulum --minibatch-size 128 --backend gymnasium {NETWORKS} {SMALL}"),
    "TD3": (COMPANIONS, f"td3 {OFF_POLICY}"),
    "DDPG": (COMPANIONS, f"ddpg --exploration ornstein_uhlenbeck {OFF_POLICY}"),
    "SAC": (SAC, f"sac {OFF_POLICY}"),
    "TQC": (SAC, f"tqc --n-step 3 --normalize-observations --layer-norm {OFF_POLICY}"),
    "CrossQ": (SAC, f"crossq --critic-hidden-sizes 24 {OFF_POLICY}"),
}


def _options(program: str) -> list[str]:
    return [*OPTIONS.split(), str(MANY if program == "PPO on EnvPool" else FEW)]


def first_command(program: str, folder: Path, epochs: int = EPOCHS) -> list[str]:
    """Module and arguments that begin a run in a folder."""
    module, settings = PROGRAMS[program]
    where = ["--runs-folder", str(folder.parent), "--name", folder.name]
    return [module, *settings.split(), "--epochs", str(epochs), *_options(program), *where]


def resume_command(program: str, folder: Path, epochs: int | None = None) -> list[str]:
    """Module and arguments that go on with it, to more epochs if asked."""
    more = [] if epochs is None else ["--epochs", str(epochs)]
    module, settings = PROGRAMS[program]
    more += NETWORKS.split() if NETWORKS in settings else []  # which have to be typed again
    return [module, "--resume", str(folder), *more, *_options(program)]


@dataclass
class Announced:
    """What a program has said of itself so far."""

    lines: list[tuple[float, str]] = field(default_factory=list)  # monotonic time, line

    def entrances(self, phase: str) -> int:
        return sum(line == f"phase {phase}" for _, line in self.lines)

    @property
    def phase(self) -> str:
        """The one it is in."""
        return next((line[6:] for _, line in reversed(self.lines) if line.startswith("phase ")), "import")

    def numbers(self, word: str) -> list[int]:
        """Of the lines "word NUMBER"."""
        return [int(line.split()[1]) for _, line in self.lines if line.startswith(word + " ")]

    def profile(self) -> dict[str, tuple[int, float]]:
        """How often each phase was entered, and its mean length in seconds."""
        spans: dict[str, list[float]] = {}
        marks = [(at, line[6:]) for at, line in self.lines if line.startswith("phase ")]
        for (began, phase), (ended, _) in itertools.pairwise(marks):
            spans.setdefault(phase, []).append(ended - began)
        return {phase: (len(each), sum(each) / len(each)) for phase, each in spans.items() if phase != BETWEEN}


class Child:
    """A program that runs under observation, see `fault_table.child`; a context manager that leaves none behind.

    Args:
        command: module and arguments.
        work: where its pipe and output go.
        broken: names of `broken.WAYS`.
        trace: file for a record of its file operations in the folder `traced`.
        options: of `subprocess.Popen`.
    """

    def __init__(
        self,
        command: list[str],
        work: Path,
        broken: str = "",
        trace: Path | None = None,
        traced: Path | None = None,
        **options: object,
    ) -> None:
        self.mark, self.announced = uuid.uuid4().hex, Announced()
        self._pipe = work / f"pipe-{self.mark}"
        os.mkfifo(self._pipe)
        self._reader, self._rest = os.open(self._pipe, os.O_RDONLY | os.O_NONBLOCK), b""
        self._stdout = open(work / f"out-{self.mark}", "w+", encoding="utf-8")  # noqa: SIM115  closed by __exit__
        self._stderr = open(work / f"err-{self.mark}", "w+", encoding="utf-8")  # noqa: SIM115
        tracing = {} if trace is None else {"FAULT_TRACE": str(trace), "FAULT_TRACED": str(traced)}
        self.environment = {"FAULT_PIPE": str(self._pipe), "FAULT_BROKEN": broken, "FAULT_MARK": self.mark, **tracing}
        self.began = time.monotonic()
        self.process = self._start(command, **options)

    def _start(self, command: list[str], **options: object) -> subprocess.Popen:
        return subprocess.Popen(
            [sys.executable, str(HERE / "child.py"), *command],
            cwd=ROOT, env=os.environ | self.environment, stdin=subprocess.DEVNULL, stdout=self._stdout,
            stderr=self._stderr, start_new_session=True, **options,
        )  # fmt: skip

    def __enter__(self) -> "Child":
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        for number in self.survivors():
            with contextlib.suppress(ProcessLookupError):
                os.kill(number, signal.SIGKILL)
        os.close(self._reader)
        self._stdout.close()
        self._stderr.close()
        self._pipe.unlink()

    def listen(self, seconds: float) -> None:
        """Take up what it announces for at most so long; returns with the first announcement."""
        if not select.select([self._reader], [], [], seconds)[0]:
            return
        try:
            content = os.read(self._reader, 1 << 16)
        except BlockingIOError:
            return
        if not content:  # nobody has opened the other end yet, or nobody has it any more
            time.sleep(min(seconds, 0.005))
            return
        *lines, self._rest = (self._rest + content).split(b"\n")
        self.announced.lines += [(time.monotonic(), line.decode()) for line in lines]

    def reaches(self, phase: str, nth: int) -> bool:
        """Wait until it enters a phase for the nth time; False if it ends before."""
        deadline = time.monotonic() + PATIENCE
        while self.announced.entrances(phase) < nth:
            if self.over() or time.monotonic() > deadline:
                self.listen(0)
                return self.announced.entrances(phase) >= nth
            self.listen(0.05)
        return True

    def over(self) -> bool:
        """It has ended."""
        return self.process.poll() is not None

    def kill(self, number: int = signal.SIGKILL) -> None:
        """A signal to the program alone, not to its children."""
        self.process.send_signal(number)

    def finish(self) -> int | None:
        """Its exit code once it has ended; None if it hangs."""
        deadline = time.monotonic() + PATIENCE
        while not self.over() and time.monotonic() < deadline:
            self.listen(0.05)
        while True:
            before = len(self.announced.lines)
            self.listen(0)
            if len(self.announced.lines) == before:
                return self.process.returncode

    @property
    def output(self) -> str:
        return self._read(self._stdout)

    @property
    def errors(self) -> list[str]:
        """The lines of its error stream."""
        return self._read(self._stderr).strip().splitlines()

    def _read(self, stream: object) -> str:
        stream.seek(0)
        return stream.read()

    def said(self) -> str:
        """How it ended, for a note."""
        return f"exit code {self.process.returncode}: {' / '.join(self.errors[-3:])[-300:]}"

    def survivors(self) -> list[int]:
        """Processes that it started and that are alive, whoever their parent is by now."""
        return [number for number in _marked(self.mark) if number != self.process.pid]

    def left_behind(self, seconds: float = 10.0) -> list[int]:
        """The survivors that are still there after so long."""
        deadline = time.monotonic() + seconds
        while (alive := self.survivors()) and time.monotonic() < deadline:
            time.sleep(0.1)
        return alive


def _marked(mark: str) -> Iterator[int]:
    """Ids of the processes whose environment holds a mark; of those that have ended only the corpse may be there."""
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            with contextlib.suppress(OSError):  # ended meanwhile, or another user's
                if mark.encode() in (entry / "environ").read_bytes():
                    yield int(entry.name)


def complete(command: list[str], work: Path) -> Child:
    """Run a program to its end, undisturbed.

    Raises:
        RuntimeError: it failed, so that there is nothing to compare with.
    """
    with Child(command, work) as child:
        if child.finish() != 0:
            raise RuntimeError(f"{' '.join(command)} failed undisturbed, {child.said()}")
    return child
