"""Ours side by side with Stable-Baselines3 and with stepping alone: python benchmarks/speed.py

Every contestant runs in a process of its own with its own defaults for threads (TensorFlow's, PyTorch's),
one after the other, and the whole round is repeated. Whole epochs are timed by the wall clock, everything
included, from the end of the warm-up to the end of the last one. The peers get an environment of their
own, .venv-benchmarks, made on first use. Two quiet cores need about twelve minutes for it all.

On a machine that does other work at the same time the ratios mean nothing: PyTorch's threads wait for one
another in busy loops and lose far more than their share. Each run records what others were doing. Those
loops may take cores from EnvPool's threads too, so on EnvPool a peer with one thread runs as well.
"""

import dataclasses
import datetime
import json
import os
import platform
import subprocess
import sys
import time
import venv
from dataclasses import dataclass
from pathlib import Path
from statistics import median

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from contestants import CONTESTANTS, Job
from fault_table import record

from common.errors import UserError
from common.results import format_seconds
from common.runs.command_line import one_line_errors, parse_settings

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "benchmarks" / "results"
OURS, OURS_2021, SB3, SB3_SUBPROCESSES, SB3_ONE_THREAD, STEPPING = CONTESTANTS
PRODUCTS_OF = {"amx_bf16": "AMX", "avx512_bf16": "AVX-512 BF16", "avx512f": "AVX-512", "avx2": "AVX2"}  # widest first
BUSY = 0.25  # cores kept busy by others from which on the results are marked as not to be trusted


@dataclass(frozen=True)
class Setting:
    """One line-up: ours, and against each opponent the ratio of speeds that is required (None: none)."""

    name: str
    backend: str
    num_envs: int
    passes: int
    epochs: int  # to be measured
    required: dict[str, float | None]
    ours: str = OURS

    def job(self, contestant: str) -> Job:
        passes = 0 if contestant == STEPPING else self.passes  # so that settings share it
        # Compilation happens in the first epoch, which is not counted. Ours collects once before it.
        # Many environments started together time out together, so there the others warm up twice and
        # all are timed over the same stretch of their episodes.
        later = contestant != self.ours and self.backend == "envpool"
        return Job(contestant, self.backend, self.num_envs, passes, 2 if later else 1, self.epochs)


GYMNASIUM_1 = {SB3: 1.2, STEPPING: None}
GYMNASIUM_16 = {SB3: 1.15, SB3_SUBPROCESSES: 1.15, STEPPING: 0.9}
ENVPOOL_1_PASS = {SB3: 2.2, SB3_ONE_THREAD: None, STEPPING: 0.93}
ENVPOOL_10_PASSES = {SB3: 2.8, SB3_ONE_THREAD: None, STEPPING: 0.8}
SETTINGS = (
    Setting("1 Gymnasium environment, 10 passes", "gymnasium", 1, 10, 1, GYMNASIUM_1),
    Setting("1 Gymnasium environment, 1 pass", "gymnasium", 1, 1, 1, GYMNASIUM_1),
    Setting("16 Gymnasium environments, 10 passes", "gymnasium", 16, 10, 2, GYMNASIUM_16),
    Setting("64 EnvPool environments, 1 pass", "envpool", 64, 1, 4, ENVPOOL_1_PASS),
    Setting("64 EnvPool environments, 10 passes", "envpool", 64, 10, 4, ENVPOOL_10_PASSES),
    Setting("64 EnvPool environments, 1 pass, 2021 network", "envpool", 64, 1, 4, {STEPPING: None}, OURS_2021),
)
NOTES = (
    "SB3 is Stable-Baselines3's PPO on its DummyVecEnv unless said otherwise, on EnvPool through `sb3_envpool.py`; "
    "it keeps no episode statistics here, ours does. Stepping alone takes random actions drawn ahead. `speed.json` "
    "has the instant at which every epoch of every run ended and the number of episodes that ended in it."
)
PUBLISHED = Job(OURS_2021, "envpool", num_envs=64, passes=1, warm_up=0, epochs=500)


@dataclass(frozen=True)
class RaceArguments:
    """Measure how many environment steps a second training makes, beside its peers."""

    repeats: int = 3
    """Rounds; in each, every contestant of every setting runs once."""
    peer_python: Path | None = None
    """Python of an environment with requirements/benchmarks.txt; None makes .venv-benchmarks."""
    quick: bool = False
    """One round of tiny epochs, to see that it works; nothing is written."""


@dataclass(frozen=True)
class Arguments(RaceArguments):
    """Measure how many environment steps a second training makes, beside Stable-Baselines3 and stepping alone."""

    published: bool = False
    """Run the 500 published epochs of the corrected 2021 study on EnvPool instead, and time them."""


def find_peer_python(given: Path | None, packages: str) -> Path:
    """The Python that has the peers: the given one, or that of .venv-benchmarks, made where it is missing.

    packages: to be imported, to see that they are there.

    Raises:
        UserError: the given one does not have them, or they cannot be installed.
    """
    if given is not None:
        try:
            subprocess.run([given, "-c", f"import {packages}"], capture_output=True, check=True)
        except (OSError, subprocess.CalledProcessError):
            raise UserError(
                f"{given} is no Python with the peers: run its pip with -r requirements/benchmarks.txt first"
            ) from None
        return given
    folder = ROOT / ".venv-benchmarks"
    python = folder / ("Scripts/python.exe" if os.name == "nt" else "bin/python")
    if not python.exists():
        print(f"making {folder.name} for the peers ...", flush=True)
        venv.create(folder, with_pip=True)
    requirements = ROOT / "requirements" / "benchmarks.txt"
    command = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "-r", requirements]
    if subprocess.run(command).returncode:
        raise UserError(f"the peers could not be installed into {folder.name}: see above, or use --peer-python")
    return python


def busy_cores(seconds: float = 0.5) -> float | None:
    """Cores that other programs keep busy, from a short wait; None where the system does not tell."""
    try:
        before = busy_seconds()
        time.sleep(seconds)
        return round((busy_seconds() - before) / seconds, 2)
    except (OSError, AttributeError):
        return None


def busy_seconds() -> float:
    """Processor time of all cores since the system started: user, nice, system, irq, softirq, steal."""
    ticks = [int(word) for word in Path("/proc/stat").read_text(encoding="utf-8").splitlines()[0].split()[1:9]]
    return (sum(ticks[:3]) + sum(ticks[5:])) / os.sysconf("SC_CLK_TCK")


def run(job: Job, seed: int, peer_python: Path, script: str = "contestants.py") -> dict[str, object]:
    """Run a contestant in a process of its own; what it printed, with the job and the steps a second."""
    python = peer_python if job.contestant.startswith("SB3") else Path(sys.executable)
    command = [python, ROOT / "benchmarks" / script, json.dumps(dataclasses.asdict(job)), str(seed)]
    others = busy_cores()
    process = subprocess.run(command, capture_output=True, text=True)
    if process.returncode:
        complaint = process.stderr.strip().splitlines() or [f"exit code {process.returncode}"]
        raise UserError(f"{job} failed: {complaint[-1]}")
    measured = json.loads(process.stdout.splitlines()[-1])
    start = measured["instants"][job.warm_up - 1] if job.warm_up else 0.0
    seconds = measured["instants"][-1] - start
    return {
        **dataclasses.asdict(job),
        "seed": seed,
        "busy_cores_before": others,
        "steps_per_second": round(job.epochs * job.steps_per_epoch / seconds, 1),
        **measured,
    }


def race(
    settings: tuple[Setting, ...], repeats: int, quick: bool, peer_python: Path, script: str
) -> dict[Job, list[dict]]:
    """Every contestant's runs, one of each in every round. `script`: what runs a job."""
    jobs = dict.fromkeys(setting.job(c) for setting in settings for c in (setting.ours, *setting.required))
    runs: dict[Job, list[dict]] = {job: [] for job in jobs}
    for repeat in range(repeats):
        for job in jobs:
            measured = run(job.tiny() if quick else job, repeat, peer_python, script)
            runs[job].append(measured)
            print(f"round {repeat + 1}/{repeats}  {job}  {measured['steps_per_second']:9,.0f} steps/s", flush=True)
    return runs


def table(settings: tuple[Setting, ...], runs: dict[Job, list[dict]]) -> str:
    """Medians over the rounds, as Markdown that can be read as it stands."""
    header = ("setting", "against", "ours, steps/s", "theirs, steps/s", "ours ÷ theirs", "rounds", "required", "met")
    rows = [header, ("---", "---", "---:", "---:", "---:", "---", "---:", "---")]
    for setting in settings:
        ours = [r["steps_per_second"] for r in runs[setting.job(setting.ours)]]
        for opponent, required in setting.required.items():
            theirs = [r["steps_per_second"] for r in runs[setting.job(opponent)]]
            ratio = median(ours) / median(theirs)
            ratios = sorted(a / b for a, b in zip(ours, theirs))
            met = "" if required is None else "yes" if ratio >= required else "NO"
            rows.append(
                (
                    setting.name,
                    opponent,
                    f"{median(ours):,.0f}",
                    f"{median(theirs):,.0f}",
                    f"{ratio:.2f}",
                    f"{ratios[0]:.2f} to {ratios[-1]:.2f}",
                    "" if required is None else f"{required:.2f}",
                    met,
                )
            )
    widths = [max(len(row[i]) for row in rows) for i in range(len(header))]
    return "\n".join("| " + " | ".join(cell.ljust(w) for cell, w in zip(row, widths)) + " |" for row in rows)


def processor(information: str) -> str:
    """The model that /proc/cpuinfo names, and the widest products it has: several kinds share a name like AMD EPYC."""
    lines = {
        key.strip(): value.strip() for key, _, value in (line.partition(":") for line in information.splitlines())
    }
    flags = lines.get("flags", "").split()
    widest = next((name for flag, name in PRODUCTS_OF.items() if flag in flags), None)
    return lines.get("model name", "") + (f" with {widest}" if widest else "")


def machine() -> dict[str, object]:
    """When and on what this runs."""
    information = Path("/proc/cpuinfo")
    text = information.read_text(encoding="utf-8") if information.exists() else ""
    return {
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "commit": record.commit(),
        "cpu": processor(text) or platform.processor(),
        "cores": os.cpu_count(),
        "system": f"{platform.system()} {platform.machine()}",
        "OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS"),  # PyTorch's, if set outside
    }


def describe(where: dict[str, object], runs: list[dict]) -> str:
    """Machine, versions and what others were doing, for the foot of a report."""
    versions = sorted({f"{package} {version}" for r in runs for package, version in r["versions"].items()})
    busy = max((r["busy_cores_before"] or 0.0 for r in runs), default=0.0)
    verdict = f"**Not a quiet machine, do not trust this: {busy} cores**" if busy > BUSY else f"At most {busy} cores"
    return (
        f"{where['date']}, {where['cores']} cores of {where['cpu']}, {where['system']}. {', '.join(versions)}. "
        f"{verdict} were busy with other programs just before a contestant started."
    )


def write(name: str, where: dict[str, object], runs: list[dict], text: str) -> None:
    """results/NAME.json with every run, and results/NAME.md with what the console showed."""
    RESULTS.mkdir(parents=True, exist_ok=True)
    lines = ",\n".join(json.dumps(measured) for measured in runs)
    (RESULTS / f"{name}.json").write_text(f'{{"machine": {json.dumps(where)},\n"runs": [\n{lines}\n]}}\n', "utf-8")
    (RESULTS / f"{name}.md").write_text(text + "\n", "utf-8")
    print(f"\n{text}\n\nwritten: {name}.json and {name}.md in {RESULTS.relative_to(ROOT)}")


def run_published() -> None:
    """The whole published training, from the start of its process to the end of its last epoch."""
    where = machine()
    steps = (PUBLISHED.epochs + 1) * PUBLISHED.steps_per_epoch
    print(f"{PUBLISHED.epochs} epochs, {steps:,} steps; no output until they are done ...", flush=True)
    measured = run(PUBLISHED, 0, Path(sys.executable))
    seconds = measured["instants"][-1]
    text = (
        f"{steps:,} steps of bipedal-walker-2021-corrected on EnvPool with {PUBLISHED.num_envs} environments: "
        f"{format_seconds(seconds)} ({steps / seconds:,.0f} steps/s, start and compilation included)."
    )
    write("published", where, [measured], f"{text}\n\n{describe(where, [measured])}")


def run_race(
    arguments: RaceArguments, name: str, settings: tuple[Setting, ...], notes: str, peers: str, script: str
) -> None:
    """All settings in `repeats` rounds, or --quick.

    Args:
        name: of the files written.
        notes: for the foot of the table.
        peers: packages that the peers' Python must have.
        script: what runs a job.
    """
    if arguments.repeats < 1:
        raise UserError(f"repeats is {arguments.repeats}: expected 1 or more")
    peer_python, where = find_peer_python(arguments.peer_python, peers), machine()
    repeats = 1 if arguments.quick else arguments.repeats
    runs = race(settings, repeats, arguments.quick, peer_python, script)
    text = table(settings, runs)
    if arguments.quick:
        print(f"\n{text}\n\ntoo short to mean anything; nothing written")
        return
    flat = [measured for job in runs for measured in runs[job]]
    notes = (
        f"Medians of {repeats} rounds; the column of that name has the lowest and the highest ratio within one. "
        f"Required is what this repository sets itself. {notes}"
    )
    write(name, where, flat, f"{text}\n\n{notes}\n\n{describe(where, flat)}")


def main() -> None:
    with one_line_errors():
        arguments = parse_settings(Arguments)
        if arguments.published:
            run_published()
        else:
            run_race(arguments, "speed", SETTINGS, NOTES, "stable_baselines3, Box2D, envpool", "contestants.py")


if __name__ == "__main__":
    main()
