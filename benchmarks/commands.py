"""Types what the pages print, in a copy of the project: python benchmarks/commands.py

Every command of their code blocks is given to a shell exactly as printed, in the virtual environment that README's
first block makes; what runs longer than `--seconds` gets a Ctrl-C, as its reader would press it, and has to end by
itself. Then come their lines of Python, as one program. results/commands.md says how each ended, and how much of the
cores other programs took. The tests' own command is left to `.ci/run`. Two quiet cores need about half an hour.
"""

import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from speed import RESULTS, ROOT, busy_seconds, machine

from common.errors import UserError
from common.runs import run_folder
from common.runs.command_line import one_line_errors, parse_settings

PAGES = (
    "README.md",
    *(f"docs/{name}.md" for name in ("quick-start", "methods/index", "methods/ppo", "methods/ddpg", "methods/td3")),
    *(f"docs/{name}.md" for name in ("methods/sac", "methods/tqc", "presets", "runs", "figures", "deploy", "studies")),
    "docs/coming-from.md",
)
LEFT_OUT = shutil.ignore_patterns(".git", ".venv*", "__pycache__", ".*_cache")
STOPS = (signal.SIGINT, signal.SIGTERM)
INTERRUPTED = {0} | {128 + number for number in STOPS} | {-number for number in STOPS}  # exit codes after a Ctrl-C
PATIENCE = 300  # seconds in which a program that was interrupted has to end: an epoch of Breakout is a minute
SHORT = "--epochs 3 --evaluation-episodes 2 --record figure"
LINES = "the lines of Python"
STAND_INS = {  # runs that the pages name without having trained them
    "A": "--seed 0", "B": "--seed 1", "A-seed0": "--seed 0", "A-seed1": "--seed 1", "pendulum-seed0": "--seed 0"
}  # fmt: skip


def left_out(folder: str, names: list[str]) -> set[str]:
    """What a copy of the project does without: LEFT_OUT everywhere, and its own runs."""
    return LEFT_OUT(folder, names) | ({"runs"} & set(names) if Path(folder) == ROOT else set())


@dataclass(frozen=True)
class Arguments:
    """Type the pages' commands."""

    seconds: float = 180.0
    """After which a command is interrupted; the first block and the commands that resume are not."""
    only: str = ""
    """Only commands that contain this, after the first block; the rows of the others stay as they are in the table."""


def blocks(language: str) -> list[str]:
    """The pages' code blocks in a language, top to bottom."""
    text = "\n".join((ROOT / page).read_text(encoding="utf-8") for page in PAGES)
    return re.findall(rf"^```{language}\n(.*?)^```", text, re.MULTILINE | re.DOTALL)


def commands() -> list[str]:
    """The first shell block as one command, then every line of the others, each once, but the tests' own."""
    installation, *others = blocks("bash")
    lines = [" && ".join(installation.splitlines())]
    lines += [line for block in others for line in block.splitlines() if line.strip()]
    once: dict[str, str] = {}
    for line in lines:
        once.setdefault(without_comment(line), line)
    return [line for line in once.values() if "-m pytest" not in line]


def without_comment(line: str) -> str:
    return re.sub(r"  +#.*", "", line)


def typed(command: str, folder: Path, seconds: float | None) -> tuple[str, str]:
    """How a command ended in a shell in `folder`, and everything it wrote."""
    with tempfile.TemporaryFile("w+", encoding="utf-8") as screen:
        shell = subprocess.Popen(
            ["bash", "-c", command], cwd=folder, stdout=screen, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL,
            start_new_session=True, preexec_fn=_hear_ctrl_c,
        )  # fmt: skip
        try:
            ended = _said(shell.wait(seconds))
        except subprocess.TimeoutExpired:
            # TensorBoard is deaf to a Ctrl-C without a terminal.
            os.killpg(shell.pid, signal.SIGTERM if "tensorboard --" in command else signal.SIGINT)
            try:
                code = shell.wait(PATIENCE)
                ended = "interrupted" if code in INTERRUPTED else f"{_said(code)} by Ctrl-C"
            except subprocess.TimeoutExpired:
                os.killpg(shell.pid, signal.SIGKILL)
                ended = f"failed: still there {PATIENCE} seconds after Ctrl-C"
        screen.seek(0)
        return ended, screen.read()


def _hear_ctrl_c() -> None:
    """A program that a shell started in the background ignores Ctrl-C, and so would what it starts."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def _own_seconds() -> float:
    """Processor time of this program and of all that it started."""
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system


def _said(code: int) -> str:
    return "done" if code == 0 else f"failed: exit code {code}"


def write_table(rows: dict[str, tuple[str, str]], foot: str, only: str) -> None:
    """Write results/commands.md.

    Args:
        rows: command → how it ended, and after how many seconds.
        foot: where and when that was.
        only: which commands were typed; if not all, the other rows and the foot of the table are kept.
    """
    path = RESULTS / "commands.md"
    if only:
        table, *feet = path.read_text(encoding="utf-8").strip().split("\n\n")
        kept = {row[0]: (row[1], row[2]) for row in (line.strip("| ").split(" | ") for line in table.splitlines()[2:])}
        rows, foot = kept | rows, "\n\n".join([*feet, f"The first block, and the commands with `{only}`: {foot}"])
    lines = [f"| {command} | {ended} | {seconds} |" for command, (ended, seconds) in rows.items()]
    path.write_text("\n".join(["| command | ended | seconds |", "|---|---|---:|", *lines, "", foot, ""]), "utf-8")


def main() -> None:
    with one_line_errors():
        arguments = parse_settings(Arguments)
        if not arguments.seconds > 0:
            raise UserError(f"seconds is {arguments.seconds}: expected a positive number")
        where, rows = machine(), []
        start, busy = time.monotonic(), busy_seconds()
        with tempfile.TemporaryDirectory() as work:
            folder = Path(work) / "project"
            shutil.copytree(ROOT, folder, ignore=left_out)

            def run(name: str, command: str, seconds: float | None) -> None:
                began = time.monotonic()
                ended, wrote = typed(command, folder, seconds)
                if "Traceback (most recent call last)" in wrote:
                    ended = "failed: a traceback"
                rows.append((name, ended, time.monotonic() - began))
                print(f"{ended:12} {rows[-1][2]:5.0f} s  {name}", flush=True)
                if ended.startswith("failed"):
                    print(wrote[-5000:], file=sys.stderr)

            first_block, *others = commands()
            others = [command for command in others if arguments.only in command]
            run(first_block, first_block, None)
            inside = ". .venv/bin/activate && "
            trained = folder / "runs" / "bipedal-walker-fast-seed0"
            for name, seed in STAND_INS.items():
                typed(f"{inside} python PPOAgentTrainer.py pendulum {seed} --name {name} {SHORT}", folder, None)
            for command in others:
                resumes = "resume" in command
                if resumes and "--epochs" not in command:
                    # As if it had been cut off while it was evaluated: else there were nothing to resume.
                    (trained / run_folder.EVALUATION).unlink(missing_ok=True)
                run(command, inside + command, None if resumes else arguments.seconds)  # the next ones need it whole
            if arguments.only in LINES:
                (folder / "lines.py").write_text("\n".join(blocks("python")), encoding="utf-8")
                run(LINES, f"{inside} python lines.py", None)
        foreign = (busy_seconds() - busy - _own_seconds()) / (time.monotonic() - start)
        foot = f"{where['date']}, {where['cores']} cores of {where['cpu']}, {where['system']}. "
        foot += f"Other programs kept {max(foreign, 0.0):.1f} cores busy."
        write_table(
            {f"`{without_comment(name)}`": (ended, f"{seconds:.0f}") for name, ended, seconds in rows},
            foot,
            arguments.only,
        )
        if any(ended.startswith("failed") for _, ended, _ in rows):
            raise SystemExit(1)


if __name__ == "__main__":
    main()
