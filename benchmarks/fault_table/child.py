"""A program of this project under observation: python benchmarks/fault_table/child.py MODULE [its arguments]

It runs MODULE's `main` and announces on a pipe what it is doing, so that whoever started it can kill it in a certain
phase. It can be broken on purpose first (see `fault_table.broken`), and its file operations can be recorded (see
`fault_table.disk_trace`). Nothing of this is in the programs themselves: functions are replaced in this process alone.

Environment variables:
    FAULT_PIPE: where to announce; lines "phase NAME", "row EPOCH" and "saved EPOCH".
    FAULT_BROKEN: names of `broken.WAYS`, separated by "|".
    FAULT_TRACE: a file for the record of file operations, and FAULT_TRACED the folder they are recorded of.
"""

import contextlib
import functools
import importlib
import inspect
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent.parent), str(HERE.parent)]  # the project's modules, and this package's

from fault_table import disk_trace  # noqa: E402
from fault_table.replacing import replace  # noqa: E402

PHASES = {  # phase → the functions in which it is spent
    "restoring": [("common.runs.checkpoint", "load_newest"), ("common.runs.session", "restore_checkpoint")],
    "collecting": [("common.rollout.collector", "Collector.collect")],
    "updating": [("Agent", "Agent.update"), ("companions.DDPGAgent", "DDPGAgent.update")],
    "saving": [("common.runs.checkpoint", "save")],
    "evaluating": [("common.rollout.evaluation", "evaluate_both")],
    "filming": [("common.runs.after_training", "film_episode")],
}
BETWEEN = "between"  # none of the above
EVERY_PHASE = ("import", "starting", *PHASES)  # those before main, and in it before the first of the above


class Announcer:
    """Writes what this process is doing to a pipe, a line at a time; processes forked from it stay silent."""

    def __init__(self, pipe: str) -> None:
        self._pipe, self._process = os.open(pipe, os.O_WRONLY), os.getpid()
        self._phases: list[str] = []

    def say(self, line: str) -> None:
        if os.getpid() == self._process:
            os.write(self._pipe, line.encode() + b"\n")  # whole: it is shorter than PIPE_BUF
            disk_trace.note(line)

    @contextlib.contextmanager
    def doing(self, phase: str) -> Iterator[None]:
        """Announce a phase, and at its end the one around it."""
        self._phases.append(phase)
        self.say(f"phase {phase}")
        try:
            yield
        finally:
            self._phases.pop()
            self.say(f"phase {self._phases[-1] if self._phases else BETWEEN}")

    def observe(self) -> None:
        """Wrap the functions of every phase."""
        for phase, functions in PHASES.items():
            for module, path in functions:
                replace(module, path, lambda real, phase=phase: self._announced(phase, real))
        replace("common.runs.terminal", "Terminal.row", lambda real: self._then("row", real, lambda row: row.epoch))
        replace(
            "common.runs.checkpoint", "save", lambda real: self._then("saved", real, lambda generation: generation)
        )

    def _announced(self, phase: str, real: Callable) -> Callable:
        @functools.wraps(real)
        def generator(*arguments: object, **named: object) -> Iterator:
            with self.doing(phase):
                yield from real(*arguments, **named)

        if inspect.isgeneratorfunction(real):
            return generator

        @functools.wraps(real)
        def function(*arguments: object, **named: object) -> object:
            with self.doing(phase):
                return real(*arguments, **named)

        return function

    def _then(self, word: str, real: Callable, number: Callable[..., int]) -> Callable:
        """Announce "WORD NUMBER", of the second argument, once the function has returned."""

        @functools.wraps(real)
        def function(first: object, second: object, *others: object, **named: object) -> object:
            result = real(first, second, *others, **named)
            self.say(f"{word} {number(second)}")
            return result

        return function


def install() -> None:
    """Record, break and observe as the environment variables say; the program's modules are imported by now."""
    from fault_table import broken

    if trace := os.environ.get("FAULT_TRACE"):
        disk_trace.record(Path(trace), Path(os.environ["FAULT_TRACED"]))
    broken.apply(os.environ.get("FAULT_BROKEN", ""))
    if pipe := os.environ.get("FAULT_PIPE"):
        importlib.import_module("companions.DDPGAgent")
        announcer = Announcer(pipe)
        announcer.observe()
        announcer.say("phase starting")


def main() -> None:
    name, *arguments = sys.argv[1:]
    module = importlib.import_module(name)
    install()
    sys.argv = [name, *arguments]
    module.main()


if __name__ == "__main__":
    main()
