"""Collecting on Ray: the same bytes, lost workers and nodes, start and end, scaling: python benchmarks/cluster.py

same: runs with 1, 2 and 4 workers, and one resumed with another number, equal the run without workers to the byte; so
do TD3's, whose policy is sent every few steps. lost: workers, or nodes of a cluster of three, are killed at random
moments of a run, which must equal the undisturbed one. gone: the cluster is killed; the run ends with exit code 2 and
one line, and is resumed without it. studies: twelve runs on two workers, of which one is killed thrice, equal those
that were trained one after the other. start: seconds to the first line, and processes that are left after the end and
after Ctrl-C. walker: the walker on Gymnasium with and without two workers, whole commands, by turns. scaling: an
environment that takes 10 ms a step, on one worker to 64, each with one environment.

All parts need about an hour on two quiet cores; results go to results/cluster.json.
"""

import contextlib
import json
import os
import secrets
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import cloudpickle
import gymnasium
import numpy as np
from fault_table import record
from fault_table.outcome import differences, lasting, outcome
from matplotlib.figure import Figure
from speed import RESULTS, ROOT, machine

from common.config import TrainingConfig
from common.envs.environment import find_environment
from common.envs.spaces import action_map
from common.errors import UserError
from common.figures.style import GREY, colour_of, entitle, save_light_and_dark, stacked_panels, style_axis
from common.nets.network import UNCHANGED, Constant, Dense, Network
from common.records import Timing
from common.rollout.collector import Collector
from common.rollout.policies import NormalPolicy, Policy
from common.rollout.workers.cluster import QUIET, Cluster, WorkerPlacement
from common.rollout.workers.shard import Columns, Task
from common.rollout.workers.team import Team
from common.runs.command_line import one_line_errors, parse_settings
from common.runs.run_folder import read_results
from programs.study_runs import StudyRun, train_all

QUIET_RUN = "--evaluation-episodes 0 --record --checkpoint-every 1"
SMALL = (
    f"{QUIET_RUN} --seed 3 --hidden-sizes 16 --epochs 4 --num-envs 8 --shards 4 --steps-per-epoch 1600 "
    "--max-episode-steps 90 --minibatch-size 160"
)
OFF_POLICY = (
    f"{QUIET_RUN} --seed 3 --hidden-sizes 16 --epochs 4 --num-envs 8 --shards 4 --steps-per-epoch 1600 "
    "--max-episode-steps 90 --warmup-steps 800 --train-every 40 --updates-per-train 5 --batch-size 32"
)
METHODS = {
    "PPO": ("PPOAgentTrainer.py", "bipedal-walker", *SMALL.split()),
    "TD3": ("-m", "programs", "train", "td3", "--env", "BipedalWalker-v3", *OFF_POLICY.split()),
}
STORE = 100 * 2**20  # bytes of shared memory of a node
PATIENCE = 300.0  # seconds that a run may take


@dataclass(frozen=True)
class Arguments:
    """Measure what collecting on Ray keeps and costs."""

    only: tuple[str, ...] = ()
    """Parts to do; none are all."""
    workers_killed: int = 30
    """Runs in which a worker is killed."""
    nodes_killed: int = 10
    """Runs in which a node is killed."""
    workers: tuple[int, ...] = (1, 2, 4, 8, 16, 32, 64)
    """Numbers of workers of the scaling part."""
    steps: int = 200
    """Steps of an epoch in each environment of the scaling part."""
    redraw: bool = False
    """Only draw the figure again, from results/cluster.json."""


def train(folder: Path, *arguments: str, method: str = "PPO") -> Path:
    """A small run of the walker by the command line.

    Raises:
        UserError: it failed.
    """
    command = [sys.executable, *METHODS[method], "--runs-folder", str(folder.parent), "--name", folder.name]
    return finish([*command, *arguments], folder)


def finish(command: list[str], folder: Path) -> Path:
    """Run a command of a run to its end."""
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=PATIENCE)
    if ended.returncode:
        raise UserError(f"a run ended with exit code {ended.returncode}: {ended.stderr.strip()[-500:]}")
    return folder


def resume(folder: Path, *arguments: str) -> Path:
    """Continue a run to its end."""
    return finish([sys.executable, "-m", "programs", "resume", str(folder), *QUIET_RUN.split(), *arguments], folder)


def same(arguments: Arguments) -> Iterator[dict[str, Any]]:
    """Runs with any number of workers against the one without."""
    with tempfile.TemporaryDirectory() as temporary:
        work = Path(temporary)
        expected = outcome(train(work / "none", "--workers", "0", method="TD3"))
        for number in (1, 2, 4):
            differs = differences(expected, outcome(train(work / str(number), "--workers", str(number), method="TD3")))
            yield {"method": "TD3", "workers": number, "differs": differs}
    for backend in ("gymnasium", "envpool"):
        with tempfile.TemporaryDirectory() as temporary:
            work, on = Path(temporary), ("--backend", backend)
            expected = outcome(train(work / "none", *on))
            for number in (1, 2, 4):
                found = train(work / str(number), *on, "--workers", str(number))
                yield {
                    "method": "PPO",
                    "backend": backend,
                    "workers": number,
                    "differs": differences(expected, outcome(found)),
                }
            half = train(work / "half", *on, "--workers", "2", "--epochs", "2")
            resume(half, "--epochs", "4", "--workers", "3")
            whole = train(work / "whole", *on, "--epochs", "2")
            resume(whole, "--epochs", "4")
            differs = differences(outcome(whole), outcome(half))
            yield {"method": "PPO", "backend": backend, "workers": "2, resumed with 3", "differs": differs}


@contextlib.contextmanager
def three_nodes() -> Iterator[Any]:
    """A cluster of a head without processors and three nodes with two each, all on this machine."""
    os.environ.update(QUIET | {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(32)})
    from ray.cluster_utils import Cluster as Nodes

    head = {"num_cpus": 0, "include_dashboard": False, "object_store_memory": STORE}
    nodes = Nodes(initialize_head=True, head_node_args=head)
    try:
        for _ in range(3):
            nodes.add_node(num_cpus=2, object_store_memory=STORE)
        yield nodes
    finally:
        nodes.shutdown()


def lost(arguments: Arguments) -> Iterator[dict[str, Any]]:
    """Runs in which a worker or a node is killed, against the one that nobody disturbs."""
    import psutil

    from ppo.presets import PRESETS
    from PPOAgentTrainer import PPOAgentTrainer

    config = PRESETS["bipedal-walker"].replace(
        seed=3, hidden_sizes=(16,), epochs=4, num_envs=8, shards=4, steps_per_epoch=1600, max_episode_steps=90,
        minibatch_size=160, backend="gymnasium",
    )  # fmt: skip

    def state(workers: WorkerPlacement, disturb: Any = None) -> tuple[dict[str, np.ndarray], list[str], float]:
        said: list[str] = []
        trainer = PPOAgentTrainer(config, workers=workers)
        trainer.warn = said.append
        try:
            thread = threading.Thread(target=disturb or (lambda: None))
            began = time.monotonic()
            thread.start()
            trainer.train()
            thread.join()
            return lasting(trainer.state()), said, time.monotonic() - began
        finally:
            trainer.close()

    expected, _, _ = state(WorkerPlacement())
    rng = np.random.default_rng(0)
    with three_nodes() as nodes:
        place = WorkerPlacement(4, nodes.address)
        found, _, seconds = state(place)
        yield {"killed": "nothing", "differs": differences(expected, found)}

        def kill_worker() -> None:
            time.sleep(rng.uniform(0.0, seconds))
            workers = [
                p for p in psutil.Process().children(recursive=True) if "ray::WorkerProcess" in p.name() + _title(p)
            ]
            if workers:
                workers[rng.integers(len(workers))].kill()
                killed.append("worker")

        def kill_node() -> None:
            time.sleep(rng.uniform(0.0, seconds))
            nodes.remove_node(nodes.list_all_nodes()[1 + rng.integers(3)], allow_graceful=False)
            killed.append("node")

        for what, disturb, count in (
            ("worker", kill_worker, arguments.workers_killed),
            ("node", kill_node, arguments.nodes_killed),
        ):
            killed: list[str] = []
            while len(killed) < count:  # the moment may be one at which no worker lives
                before = len(killed)
                found, said, _ = state(place, disturb)
                noticed = sum("was lost" in line for line in said)
                hit = what if len(killed) > before else "nothing, there was no worker yet"
                yield {"killed": hit, "noticed": noticed, "differs": differences(expected, found)}
                if what == "node":
                    nodes.add_node(num_cpus=2, object_store_memory=STORE)


def _title(process: Any) -> str:
    import psutil

    try:
        return " ".join(process.cmdline())
    except psutil.Error:  # it ended meanwhile
        return ""


def gone(arguments: Arguments) -> Iterator[dict[str, Any]]:
    """A run whose cluster is killed, then resumed in one process."""
    with tempfile.TemporaryDirectory() as temporary, three_nodes() as nodes:
        work = Path(temporary)
        expected = outcome(train(work / "whole", "--epochs", "40"))
        options = f"--epochs 40 --runs-folder {work} --name cut --workers 4 --cluster {nodes.address}"
        command = [sys.executable, "PPOAgentTrainer.py", "bipedal-walker", *SMALL.split(), *options.split()]
        process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        while not (work / "cut" / "checkpoints" / "00000003").exists() and process.poll() is None:
            time.sleep(0.02)
        for server in nodes.head_node.all_processes["gcs_server"]:
            os.kill(server.process.pid, signal.SIGKILL)
        _, errors = process.communicate(timeout=PATIENCE)
        errors = errors.replace(temporary, "FOLDER").replace(nodes.address, "HOST:PORT")
        lines = [line for line in errors.splitlines() if line.strip()]
        resume(work / "cut")
        differs = differences(expected, outcome(work / "cut"))
        yield {"exit code": process.returncode, "lines": lines, "differs": differs}


def studies(arguments: Arguments) -> Iterator[dict[str, Any]]:
    """Twelve runs, one after the other, and on two workers of which one is killed three times."""
    import psutil

    small = (
        "bipedal-walker --backend gymnasium --num-envs 8 --steps-per-epoch 1600 --max-episode-steps 90 --epochs 8 "
        "--minibatch-size 160 --evaluation-episodes 2 --checkpoint-every 1"
    )

    def runs(folder: Path) -> list[StudyRun]:
        return [
            StudyRun(
                f"{units} units, seed {seed}",
                (*small.split(), "--hidden-sizes", units, "--seed", str(seed)),
                str(folder / f"{units}-seed{seed}"),
            )
            for seed in range(6)
            for units in ("8", "16")
        ]

    with tempfile.TemporaryDirectory() as temporary:
        alone, spread = runs(Path(temporary) / "alone"), runs(Path(temporary) / "spread")
        train_all(alone, 0, None)
        rng, killed, done = np.random.default_rng(0), [], threading.Event()

        def kill() -> None:
            while len(killed) < 3 and not done.wait(rng.uniform(8.0, 16.0)):
                children = psutil.Process().children(recursive=True)
                training = [p for p in children if "ray::train_run" in p.name() + _title(p)]
                if training:
                    victim = training[rng.integers(len(training))]
                    victim.kill()
                    killed.append(victim.pid)

        thread = threading.Thread(target=kill)
        thread.start()
        with contextlib.closing(Cluster(None, 2)) as local:
            train_all(spread, 2, local.address)
        done.set()
        thread.join()
        for one, other in zip(alone, spread):
            differs = differences(outcome(Path(one.folder)), outcome(Path(other.folder)))
            yield {"run": one.label, "killed in all": len(killed), "differs": differs}


def walker(arguments: Arguments) -> Iterator[dict[str, Any]]:
    """Seconds of whole commands that train the walker on Gymnasium, with and without two workers, by turns."""
    for _ in range(3):
        seconds, training = {}, {}
        for workers in (0, 2):
            with tempfile.TemporaryDirectory() as temporary:
                options = f"--shards 2 --epochs 20 --evaluation-episodes 0 --record figure --runs-folder {temporary}"
                began = time.perf_counter()
                command = ["PPOAgentTrainer.py", "bipedal-walker", "--backend", "gymnasium", *options.split()]
                finish([sys.executable, *command, "--name", "walker", "--workers", str(workers)], Path(temporary))
                seconds[workers] = time.perf_counter() - began
                columns = read_results(Path(temporary) / "walker")
                training[workers] = float(columns["seconds"].sum())
                spent = {name: round(float(columns[name].sum()), 1) for name in columns if name.startswith("seconds")}
            yield {"workers": workers, "whole command": round(seconds[workers], 1)} | spent
        whole, trained = seconds[0] / seconds[2], training[0] / training[2]
        yield {"speed of two workers, training": round(trained, 3), "whole command": round(whole, 3)}


def start(arguments: Arguments) -> Iterator[dict[str, Any]]:
    """Seconds to the first line of a run, and what is left after its end, after Ctrl-C, and after two of them."""
    import psutil

    for what, interrupts in (("end", 0), ("Ctrl-C", 1), ("Ctrl-C twice", 2)):
        with tempfile.TemporaryDirectory() as temporary:
            began = time.time()
            command = [sys.executable, "-u", "PPOAgentTrainer.py", "bipedal-walker", *SMALL.split(), "--runs-folder",
                       temporary, "--workers", "2", *(["--epochs", "10000"] if interrupts else [])]  # fmt: skip
            process = subprocess.Popen(
                command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True
            )
            assert process.stdout is not None
            first = next(line for line in process.stdout if line.startswith("bipedal-walker"))
            seconds = time.time() - began
            for _ in range(interrupts):
                time.sleep(6.0 if _ == 0 else 0.1)
                os.killpg(process.pid, signal.SIGINT)  # as a terminal does
            process.communicate(timeout=PATIENCE)
            time.sleep(1.0)
            left = [p for p in psutil.process_iter() if p.create_time() > began - 1 and _is_rays(p)]
            yield {
                "after": what, "first line": first.strip().replace(temporary, "FOLDER"), "seconds": round(seconds, 1),
                "exit code": process.returncode, "left": [_title(p) for p in left],
            }  # fmt: skip


def _is_rays(process: Any) -> bool:
    title = _title(process)
    return any(name in title for name in ("ray::", "raylet", "gcs_server", "ray/_private", "ray/dashboard"))


class Sleeping(gymnasium.Env):
    """An environment that takes 10 ms a step, without the processor."""

    observation_space = gymnasium.spaces.Box(-1.0, 1.0, (24,))
    action_space = gymnasium.spaces.Box(-1.0, 1.0, (4,))

    def reset(self, seed: int | None = None, options: dict | None = None) -> tuple[np.ndarray, dict]:
        super().reset(seed=seed)
        return self.np_random.uniform(-1, 1, 24).astype(np.float32), {}

    def step(self, action: np.ndarray) -> tuple[np.ndarray, float, bool, bool, dict]:
        time.sleep(0.01)
        return self.np_random.uniform(-1, 1, 24).astype(np.float32), 1.0, False, False, {}


class Counting(Team):
    """Counts the bytes of arrays that go to the workers, a policy once for each, and come back."""

    sent = received = 0

    def perform(self, tasks: list[Task], snapshot: Any, policy: Policy | None = None) -> list[Any]:
        if policy is not None:
            self.sent += len(self.workers) * len(cloudpickle.dumps(policy))
        self.sent += _bytes(argument for task in tasks for argument in task.arguments)
        values = super().perform(tasks, snapshot, policy)
        for value in values:
            if isinstance(value, Columns):
                self.received += _bytes([*value.stepped.values(), value.failed])
        return values


def _bytes(arrays: Iterable[Any]) -> int:
    return sum(array.nbytes for array in arrays if isinstance(array, np.ndarray))


def scaling(arguments: Arguments) -> Iterator[dict[str, Any]]:
    """Seconds and bytes of an epoch, by the number of workers; each steps one environment as long."""
    rng = np.random.default_rng(0)

    def dense(rows: int, columns: int, activation: str) -> Dense:
        return Dense(
            rng.standard_normal((rows, columns)).astype(np.float32) / 8, np.zeros(columns, np.float32), activation
        )

    hidden = dense(24, 64, "tanh"), dense(64, 64, "tanh")
    heads = dense(64, 4, "linear"), Constant(np.ones(4, np.float32))
    policy = NormalPolicy(Network(UNCHANGED, hidden, heads))
    environment = find_environment("", 100, maker=Sleeping)
    one_worker = 0.0
    for number in arguments.workers:
        config = TrainingConfig(
            num_envs=number, steps_per_epoch=number * arguments.steps, shards=number, backend="gymnasium"
        )
        cluster, teams = Cluster(None, number), []

        def make_team(recipe: Any, cluster: Cluster = cluster, number: int = number, teams: list = teams) -> Team:
            teams.append(Counting(recipe, cluster, number))
            return teams[-1]

        experience = Collector(config, environment, action_map(environment.action_space), 0, make_team=make_team)
        [team], epochs, rows = teams, 0, []
        while len(team.ready) < number or len(rows) < 4:
            before, began = (team.sent, team.received), time.perf_counter()
            complete = len(team.ready) == number
            experience.scores.begin_epoch()
            experience.collect(policy, epochs, Timing())
            epochs += 1
            if complete:
                sent, received = team.sent - before[0], team.received - before[1]
                rows.append((time.perf_counter() - began, sent, received))
        experience.close()
        cluster.close()
        seconds = median(row[0] for row in rows[1:])  # the first moved shards to workers that joined late
        rate = number * arguments.steps / seconds
        one_worker = one_worker or rate / number
        yield {
            "workers": number, "seconds": round(seconds, 3), "steps/s": round(rate, 1),
            "share of N × one worker": round(rate / (number * one_worker), 3),
            "bytes sent": int(median(row[1] for row in rows[1:])), "bytes received": rows[-1][2],
        }  # fmt: skip


def scaling_page(rows: list[dict[str, Any]]) -> str:
    """The scaling part as a table."""
    lines = [
        "| workers | seconds an epoch | steps a second | share of N × one worker | bytes sent an epoch | received |",
        "|---:|---:|---:|---:|---:|---:|",
    ]
    for row in rows:
        lines.append(
            f"| {row['workers']} | {row['seconds']:.2f} | {row['steps/s']:,.0f} "
            f"| {row['share of N × one worker']:.1%} "
            f"| {row['bytes sent']:,} | {row['bytes received']:,} |"
        )
    return "\n".join(lines) + "\n"


def draw(rows: list[dict[str, Any]]) -> None:
    """The scaling part as a figure: the share of N times one worker's speed that N workers reach."""

    def share() -> Figure:
        figure, [axis] = stacked_panels(1, 2.8)
        workers = [row["workers"] for row in rows]
        shares = [100 * row["share of N × one worker"] for row in rows]
        axis.semilogx(workers, shares, "o-", color=colour_of(0))
        for row, percent in zip(rows, shares):
            axis.annotate(
                f"{row['steps/s'] / rows[0]['steps/s']:.3g}×", (row["workers"], percent), xytext=(0, 6),
                textcoords="offset points", color=colour_of(0), fontsize="small", ha="center",
            )  # fmt: skip
        axis.axhline(90, color=GREY, linestyle=":")
        axis.annotate(
            "aim: 90%", (workers[0], 90), xytext=(0, -4), textcoords="offset points", color=GREY, fontsize="small",
            va="top",
        )  # fmt: skip
        axis.set_ylim(0, 115)
        style_axis(axis, "% of N × the speed\nof one worker")
        axis.set_xlabel("N workers")
        axis.set_xticks(workers, [str(number) for number in workers])
        axis.minorticks_off()
        last = rows[-1]
        times = last["steps/s"] / rows[0]["steps/s"]
        title = f"{last['workers']} workers step {times:.0f} times as fast as one"
        note = "each with one environment that takes 10 ms a step, all on two cores; numbers: times one worker's speed"
        entitle(figure, title, note)
        return figure

    save_light_and_dark(share, RESULTS / "cluster_scaling.png")


PARTS = {
    "same": same, "lost": lost, "gone": gone, "studies": studies, "start": start, "walker": walker, "scaling": scaling,
}  # fmt: skip


def main() -> None:
    with one_line_errors():
        arguments = parse_settings(Arguments)
        if unknown := set(arguments.only) - set(PARTS):
            raise UserError(f"--only names {', '.join(sorted(unknown))}: expected some of {', '.join(PARTS)}")
        path = RESULTS / "cluster.json"
        results = json.loads(path.read_text("utf-8")) if path.exists() else {}
        if arguments.redraw:
            draw(results["scaling"]["rows"])
            return
        wrong = False
        for name in arguments.only or PARTS:
            rows = []
            for row in PARTS[name](arguments):
                rows.append(row)
                print(name, row, flush=True)
                wrong |= bool(row.get("differs")) or bool(row.get("left"))
            if name == "scaling":
                draw(rows)
                (RESULTS / "cluster_scaling.md").write_text(scaling_page(rows), "utf-8")
            results[name] = {"machine": machine() | {"commit": record.commit()}, "rows": rows}
            path.write_text(json.dumps(results, indent=1) + "\n", "utf-8")
        if wrong:
            raise SystemExit(1)


if __name__ == "__main__":
    main()
