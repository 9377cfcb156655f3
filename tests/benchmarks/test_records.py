"""LEADERBOARD.md is what benchmarks/records.py makes of the recorded results."""

import json
import os
import sys
from math import nan
from pathlib import Path

import pytest

from common.envs.environment import find_environment
from common.errors import UserError
from common.runs.command_line import parse
from programs.preset_files import find_preset

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "benchmarks"))

import leaderboard  # noqa: E402
import record_tables  # noqa: E402
import records  # noqa: E402
import speed  # noqa: E402


@pytest.fixture(autouse=True)
def committed(monkeypatch):
    monkeypatch.setattr(records.record, "commit", lambda: "0123456789")


@pytest.fixture
def results(tmp_path, monkeypatch):
    """The folder of records whose seeds are not trained."""
    monkeypatch.setattr(records, "FOLDER", tmp_path)
    monkeypatch.setattr(records, "stepping_alone", lambda: 1.0)
    monkeypatch.setattr(records, "measure", lambda _, seed, runs, core, go_on: {"seed": seed, "core": core})
    return tmp_path


# The last seeds of records that were ended before all their seeds were trained, with other settings: see the log.
ENDED = {(record_tables.ROUGH_GROUND.metric, 157)}


def test_the_page_and_the_history_are_made_of_the_recorded_results():
    found = leaderboard.recorded()
    assert records.PAGE.read_text(encoding="utf-8") == leaderboard.page(found)
    assert leaderboard.HISTORY.read_text(encoding="utf-8") == leaderboard.history(found)
    assert len(found) > len(leaderboard.standing(found)) == len(record_tables.RECORDS)


def test_every_record_counts_all_of_its_seeds_and_none_that_was_tuned_on():
    """Its seeds begin with a multiple of ten, or go on where those of another record of this metric end."""
    last_ones = {(one["metric"], one["seeds"][-1]["seed"]) for one in leaderboard.recorded()} | ENDED
    next_ones = {(metric, seed + 1) for metric, seed in last_ones}
    for one in leaderboard.recorded():
        task = record_tables.TASKS[one["metric"]]
        seeds = [row["seed"] for row in one["seeds"]]
        first = seeds[0]
        assert 100 <= first < 300 and (first % 10 == 0 or (one["metric"], first) in next_ones)
        assert seeds == list(range(first, first + task.seeds))
        allowed = [list(task.limits)]
        if one["machine"]["date"] < "2026-11-29":  # some were played at the environment's own limit alone
            allowed.append(list(task.limits[:1]))
        for row in one["seeds"]:
            assert len(row["returns"]) == task.episodes and list(row["scores"]) in allowed
            assert row["scores"][task.limits[0]] == pytest.approx(sum(row["returns"]) / task.episodes, abs=0.06)


@pytest.mark.parametrize("name", list(record_tables.RECORDS))
def test_a_record_trains_a_preset_on_the_environment_of_its_task(name):
    record = record_tables.RECORDS[name]
    program, *arguments = record.command.replace("-m ", "").split()
    _, config, _ = parse(arguments, program, find_preset(arguments[0])[1].presets, arguments[0], lambda _: "")
    assert record.task.metric.startswith(f"{config.env}: ")
    assert bool(record.knowledge) == config.symmetry
    assert record.task.held == config.action_repeat[0]
    environment = find_environment(config.env, config.max_episode_steps, config.env_kwargs)
    assert environment.max_episode_steps == int(record.task.limits[0])


def seed_of(number, steps, seconds, scores, **more):
    return {"seed": number, "steps": steps, "seconds": seconds, "scores": scores, **more}


def record_of(metric, seeds, knowledge=""):
    return {
        "metric": metric, "knowledge": knowledge, "command": "train.py", "commit": "0123456789",
        "machine": {"date": "2026-01-02T03:04:05", "cpu": "Some processor", "cores": 2}, "stepping_alone": 30_000.4,
        "seeds": seeds,
    }  # fmt: skip


def test_a_row_has_medians_ranges_and_failures():
    seeds = [
        seed_of(
            100 + i, 1000 * (i + 1), 10.0 * (i + 1), {"1600": s, "2000": s + 1}, walks_at_seconds=walks, sampled=-s
        )
        for i, (s, walks) in enumerate(((300.0, 5.0), (299.9, None), (310.0, 7.0)))
    ]
    one = record_of(record_tables.WALKER.metric, seeds, "mirror symmetry")
    assert leaderboard.line(leaderboard.cells(one).values()) == (
        "| BipedalWalker until solved, mirror symmetry: `train.py` | 2 of 3, 300 | 300.0 (299.9 to 310.0) | "
        "−300.0 (−310.0 to −299.9) | 2,000 (1,000 to 3,000) | 20 (10 to 30) | 2026-01-02, 0123456 |"
    )
    row = leaderboard.past(one)
    assert (row["seeds"], row["score, 2,000 steps"]) == ("100 to 102", "301.0 (300.9 to 311.0)")
    assert (row["seconds to a score of 200"], row["EnvPool alone, steps/s"]) == ("6 (5 to 7)", "30,000")
    for one_seed, alone in zip(seeds, (29_000, 34_000, 31_000)):
        one_seed["stepping_alone"] = alone
    assert leaderboard.past(one)["EnvPool alone, steps/s"] == "31,000 (29,000 to 34,000)"


def test_the_newest_record_of_a_command_stands_and_the_history_keeps_the_others():
    wanted = record_tables.RECORDS["cartpole-steps"]
    old, new = (
        record_of(wanted.task.metric, [seed_of(100, steps, 9.0, {"500": 475.0}, sampled=1.0)], wanted.knowledge)
        | {"command": wanted.command}
        for steps in (640, 320)
    )
    assert leaderboard.standing([new, old]) == {"cartpole-steps": new}
    assert "| 320 |" in leaderboard.page([new, old]) and "| 640 |" not in leaderboard.page([new, old])
    assert len(leaderboard.history([new, old]).splitlines()) == 3


def test_a_commit_with_changes_is_shown_as_such_and_not_measured(tmp_path, monkeypatch):
    assert leaderboard.commit_of({"commit": "0123456789-dirty"}) == "0123456 and changes"
    monkeypatch.setattr(records.record, "commit", lambda: "0123456789-dirty")
    monkeypatch.setattr(records, "FOLDER", tmp_path)
    with pytest.raises(UserError, match="files differ from commit 0123456: expected none besides results"):
        records.take(records.Arguments("cartpole-steps"))
    assert not list(tmp_path.iterdir())


def test_a_milestone_is_the_first_epoch_that_scores_enough_and_its_time_counts_what_was_before():
    rows = [
        {"metric": metric, "steps": 10.0 * (i + 1), "seconds": 2.0} for i, metric in enumerate((nan, 200.0, 250.0))
    ]
    assert records.milestone(record_tables.WALKER, rows, 9.0) == {"walks_at_steps": 20, "walks_at_seconds": 7.0}
    assert records.milestone(record_tables.WALKER, rows[:1], 9.0) == {"walks_at_steps": None, "walks_at_seconds": None}
    assert records.milestone(record_tables.CARTPOLE, rows, 9.0) == {}


@pytest.mark.parametrize("limits", [("500",), ("500", "1000")])
def test_a_seed_is_trained_then_scored_over_the_task_s_episodes_at_its_limits(tmp_path, monkeypatch, limits):
    commands, cores = [], []

    def run(command, core):
        commands.append(command)
        cores.append(core)
        (tmp_path / "seed3").mkdir(exist_ok=True)
        (tmp_path / "seed3" / "results.csv").write_text(
            "steps,metric,seconds,validation_steps\n64,,1.0,0\n128,500.0,1.0,900\n", "utf-8"
        )
        scores = {
            kind: {"mean": mean, "returns": [mean]} for kind, mean in (("deterministic", 499.96), ("sampled", 9))
        }
        by_limit = {"step_limits": dict.fromkeys(limits, scores)} if len(limits) > 1 else {}
        (tmp_path / "seed3" / "evaluation.json").write_text(json.dumps(scores | by_limit), "utf-8")

    monkeypatch.setattr(records, "_run", run)
    task = record_tables.Task("a metric", "", 475.0, limits, episodes=7)
    one = records.measure(record_tables.Record("train.py fast", task), 3, tmp_path, core=1)
    assert cores == [1, 1] and one["busy_cores_before"] is None  # beside it, another seed is trained
    assert (one["seed"], one["steps"], one["sampled"], one["returns"]) == (3, 128, 9, [499.96])
    assert one["validation_steps"] == 900
    assert one["scores"] == dict.fromkeys(limits, 499.96) and "walks_at_steps" not in one
    assert commands[0].startswith("train.py fast --seed 3 ") and f"--runs-folder {tmp_path}" in commands[0]
    assert f"--episodes 7 --no-video --max-episode-steps {' '.join(limits)}" in commands[1]


def test_seeds_are_measured_side_by_side_each_on_a_core_of_its_own(results, monkeypatch):
    monkeypatch.setattr(os, "cpu_count", lambda: 2)
    records.take(records.Arguments("best-walker", seeds=(102, 100, 101), at_once=2))
    [path] = results.iterdir()
    taken = json.loads(path.read_text(encoding="utf-8"))
    assert taken["at_once"] == 2
    assert taken["seeds"] == [{"seed": 100, "core": 1}, {"seed": 101, "core": 0}, {"seed": 102, "core": 0}]
    records.take(records.Arguments("best-walker", seeds=(100, 103), at_once=2, go_on=True))
    taken = json.loads(path.read_text(encoding="utf-8"))
    assert [one["seed"] for one in taken["seeds"]] == [100, 101, 102, 103]
    with pytest.raises(UserError, match="were measured 2 at once: use --at-once 2"):  # the row would say otherwise
        records.take(records.Arguments("best-walker", seeds=(104,), go_on=True))
    assert json.loads(path.read_text(encoding="utf-8")) == taken


@pytest.mark.parametrize("at_once", [1, 3])
def test_a_seed_alone_and_more_seeds_than_cores_have_all_cores(results, monkeypatch, at_once):
    monkeypatch.setattr(os, "cpu_count", lambda: 2)
    records.take(records.Arguments("best-walker", at_once=at_once))
    [path] = results.iterdir()
    taken = json.loads(path.read_text(encoding="utf-8"))
    assert [one["seed"] for one in taken["seeds"]] == list(range(100, 110))  # as many as its table asks for
    assert (taken["at_once"], [one["core"] for one in taken["seeds"]]) == (at_once, [None] * 10)
    alone = [{"stepping_alone": 1} if at_once == 1 else {}] * 10  # measured before each seed, while nothing else runs
    assert [{key: one[key] for key in one if key == "stepping_alone"} for one in taken["seeds"]] == alone
    monkeypatch.setattr(records.record, "commit", lambda: "another")
    with pytest.raises(UserError, match=r"were measured at commit .*: check it out first"):
        records.take(records.Arguments("best-walker", seeds=(110,), at_once=at_once, go_on=True))


def test_seeds_can_be_bound_to_one_core_beside_other_programs(results, monkeypatch):
    def take(**options):
        records.take(records.Arguments("best-walker", **options))

    monkeypatch.setattr(os, "cpu_count", lambda: 2)
    with pytest.raises(UserError, match="--core 1 measures one seed after another: use it with --at-once 1"):
        take(seeds=(100, 101), core=1, at_once=2)
    with pytest.raises(UserError, match="there is no core 2: expected a number from 0 to 1"):
        take(seeds=(100, 101), core=2)
    assert not list(results.iterdir())
    take(seeds=(100, 101), core=1)
    [path] = results.iterdir()
    taken = json.loads(path.read_text(encoding="utf-8"))
    assert taken["core"] == 1 and [one["core"] for one in taken["seeds"]] == [1, 1]
    with pytest.raises(UserError, match="were measured with core 1: use the same --core"):
        take(seeds=(102,), go_on=True)


@pytest.mark.skipif(not hasattr(os, "sched_getaffinity"), reason="only Linux binds a process to a core")
def test_a_command_runs_on_its_core_alone(tmp_path):
    program = tmp_path / "cores.py"
    program.write_text("import os, sys\nsys.exit(os.sched_getaffinity(0) != {0})", "utf-8")
    records._run(str(program), 0)  # noqa: SLF001
    with pytest.raises(UserError, match=r"cores\.py ended with exit code 3"):
        program.write_text("import sys\nsys.exit(3)", "utf-8")
        records._run(str(program), None)  # noqa: SLF001


def test_a_second_record_of_a_day_keeps_the_first_and_a_record_goes_on_with_its_newest_file(tmp_path, monkeypatch):
    monkeypatch.setattr(records, "FOLDER", tmp_path)
    for i, (date, go_on, name) in enumerate((
        ("02", False, "2026-01-02-pole"), ("02", True, "2026-01-02-pole"), ("02", False, "2026-01-02-pole-2"),
        ("03", True, "2026-01-02-pole-2"), ("03", False, "2026-01-03-pole"), ("04", True, "2026-01-03-pole"),
    )):  # fmt: skip
        monkeypatch.setattr(records, "machine", lambda: {"date": f"2026-01-{date}T03:04:05"})  # noqa: B023
        path = records.path_of("pole", go_on)
        assert path.name == f"{name}.json"
        if not path.exists():
            path.write_text(json.dumps({"machine": {"date": f"2026-01-{date}T03:04:0{i}"}}), "utf-8")
        (tmp_path / "2026-01-09-pole-plain.json").touch()  # another record


def test_a_first_seed_that_was_cut_off_can_be_gone_on_with(results, monkeypatch):
    went_on = []

    def cut(_, seed, runs, core, go_on):
        went_on.append(go_on)
        raise UserError("cut off")

    monkeypatch.setattr(records, "measure", cut)
    for go_on in (False, True):
        with pytest.raises(UserError, match="cut off"):
            records.take(records.Arguments("best-walker", seeds=(100,), go_on=go_on))
    assert went_on == [False, True] and len(list(results.iterdir())) == 1


def test_a_seed_that_was_cut_off_is_resumed_and_its_earlier_seconds_count(tmp_path, monkeypatch):
    run, commands = tmp_path / "seed3", []
    (run / "checkpoints" / "00000002").mkdir(parents=True)
    (run / "results.csv").write_text("steps,metric,seconds,validation_steps\n64,,100.0,0\n128,,50.0,0\n", "utf-8")
    scores = {kind: {"mean": 1.0, "returns": [1.0]} for kind in ("deterministic", "sampled")}
    (run / "evaluation.json").write_text(json.dumps(scores), "utf-8")
    monkeypatch.setattr(records, "_run", lambda command, core: commands.append(command))
    task = record_tables.Task("a metric", "", 475.0, ("500",))
    with pytest.raises(UserError, match="is there from an earlier record: use --go-on, or remove it"):
        records.measure(record_tables.Record("train.py fast", task), 3, tmp_path)
    assert commands == []
    one = records.measure(record_tables.Record("train.py fast", task), 3, tmp_path, go_on=True)
    assert commands[0].startswith(f"-m programs resume {run} ") and 150.0 <= one["seconds"] < 155.0


@pytest.mark.parametrize(
    ("flags", "widest"),
    [
        ("fpu sse2", ""),
        ("fpu avx avx2", " with AVX2"),
        ("avx2 avx512f avx512dq", " with AVX-512"),
        ("avx2 avx512f avx512_bf16", " with AVX-512 BF16"),
        ("avx2 avx512f avx512_bf16 amx_bf16 amx_tile", " with AMX"),
    ],
)
def test_processors_of_one_name_are_told_apart_by_their_widest_products(flags, widest):
    core = f"processor\t: 0\nmodel name\t: AMD EPYC\nflags\t\t: {flags}\n\n"
    assert speed.processor(core + core.replace(": 0", ": 1")) == f"AMD EPYC{widest}"
    assert speed.processor("") == ""
