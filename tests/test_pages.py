"""Pages: every link and file they name is there, every command they print is understood."""

import dataclasses
import importlib
import importlib.util
import json
import re
import shlex
import sys
import tomllib
from itertools import takewhile
from pathlib import Path
from statistics import median

import pytest

from common.runs import run_folder, session
from common.runs.command_line import parse
from companions import presets as companions
from companions.OffPolicyAgentTrainer import OffPolicyAgentTrainer
from experiments import differences, page_blocks
from ppo import presets
from PPOAgentTrainer import PPOAgentTrainer
from programs import methods, preset_files, study

ROOT = Path(__file__).resolve().parent.parent
LOG = tuple(sorted(path.relative_to(ROOT).as_posix() for path in (ROOT / "experiments" / "log").glob("*.md")))
PAGES = (
    *(
        "README.md",
        "README.ja.md",
        "CONTRIBUTING.md",
        "CHANGELOG.md",
        *LOG,
        "LEADERBOARD.md",
        "companions/README.md",
    ),
    *sorted(path.relative_to(ROOT).as_posix() for path in (ROOT / "docs").rglob("*.md")),
)
NOT_TYPED = (
    *LOG,
    "LEADERBOARD.md",
    "docs/own-environment.md",
    "docs/own-network.md",
    "docs/tuning.md",
    "docs/cluster.md",
    "docs/cluster-security.md",
)
"""Pages whose commands are not read here: of old versions, for any seed, tested elsewhere, or about a cluster."""
A_RUN = ROOT / "tests" / "data" / "run"  # stands for the runs that commands name


def text_of(page):
    return (ROOT / page).read_text(encoding="utf-8")


def blocks(page):
    """What stands between fences."""
    return re.findall(r"^```\w*\n(.*?)^```", text_of(page), re.MULTILINE | re.DOTALL)


def commands():
    """(page, arguments) of every `python …` in a code block or between backticks, each where it first stands."""
    found = []
    for page in PAGES:
        if page in NOT_TYPED:
            continue
        prose = re.sub(r"^```.*?^```", "", text_of(page), flags=re.MULTILINE | re.DOTALL)
        lines = [line for block in blocks(page) for line in block.splitlines()]
        lines += [span.replace("\n", " ") for span in re.findall(r"`([^`]+)`", prose)]
        for line in lines:
            for part in line.split("&&"):
                words = shlex.split(part, comments=True) if part.strip().startswith("python ") else []
                if words and words[1:] not in [known for _, known in found]:
                    found.append((page, words[1:]))
    return found


COMMANDS = commands()


@pytest.mark.parametrize("page", (*PAGES, "SECURITY.md"))
def test_links_lead_somewhere(page):
    links = re.findall(r"\]\(([^)\s]+)\)", text_of(page)) + re.findall(r'(?:src|srcset)="([^"]+)"', text_of(page))
    for link in links:
        if not re.match(r"https?://", link):
            assert ((ROOT / page).parent / link.split("#")[0]).exists(), link


def test_every_entry_of_the_log_has_a_row_in_its_table():
    """A row's date leads to its entry; the site's strict build checks the anchors, which GitHub forms alike."""
    months = [name for name in LOG if not name.endswith("README.md")]
    rows = re.findall(
        r"^\| .+? \| .+? \| \[(\S+)\]\((\S+)\) \| .+ \|$", text_of("experiments/log/README.md"), re.MULTILINE
    )
    entries = set()
    for month in months:
        for date, found in re.findall(r"^## (\d{4}-\d\d-\d\d) (.+)$", text_of(month), re.MULTILINE):
            anchor = re.sub(r"[^\w -]", "", f"{date} {found}".lower()).replace(" ", "-")
            entries.add((date, f"{Path(month).name}#{anchor}"))
    assert months and set(rows) == entries


@pytest.mark.parametrize("page", [page for page in PAGES if page not in NOT_TYPED])
def test_files_that_are_named_are_there(page):
    printed = re.findall(r'^```python title="(\S+)"', text_of(page), re.MULTILINE)
    for name in set(re.findall(r"`([\w./-]+\.(?:py|md|txt|toml))`", text_of(page))) - set(printed):
        assert (ROOT / name).exists() or ((ROOT / page).parent / name).exists(), name


def test_the_picture_of_the_house_names_every_file():
    """Each room has a heading and a table, whose first column names its files."""
    shown = {}
    for section in text_of("docs/house.md").split("### `")[1:]:
        room, rows = section.split("/`\n", 1)
        names = re.findall(r"^\| (`.*?`) \|", rows.split("\n## ")[0], re.MULTILINE)
        shown[room] = {name for cell in names for name in re.findall(r"`(\w+)`", cell)}
    for room in ("ppo", "companions", "common", "programs", *HALLS):
        files = {path.stem for path in (ROOT / room).glob("*.py")} - {"__init__", "__main__"}
        assert files - shown[room] == set(), room
        assert shown[room] - {path.stem for path in (ROOT / room).glob("*.py")} == set(), room


def test_differences_from_published_presets_are_those_of_the_presets():
    tables = [differences.table(*pair) for pair in differences.PAIRS]
    pages = "\n".join(map(text_of, PAGES))
    assert all(table in pages for table in tables)
    assert len(tables[0].splitlines()) == 2 + 29  # as the page says


@pytest.mark.parametrize("page", [page for page in PAGES if page_blocks.BLOCK.search(text_of(page))])
def test_settings_and_code_on_a_page_are_those_of_the_project(page):
    assert text_of(page) == page_blocks.written(text_of(page)), "experiments/page_blocks.py writes them"


def test_every_setting_of_every_method_is_on_the_page_of_settings():
    names = {name for method in methods.METHODS.values() for name in vars(next(iter(method.presets.values())))}
    assert {name for name in names if f"| `--{name.replace('_', '-')}` |" not in text_of("docs/settings.md")} == set()


@pytest.mark.parametrize("page", [page for page in PAGES if page.startswith(("docs/sources/", "docs/coming-from"))])
def test_settings_that_stand_beside_another_programs_names_are_there(page):
    rows = [line.split("|") for line in text_of(page).splitlines() if line.startswith("|")]
    used = {name for row in rows for name in re.findall(r"`(\w+)=", row[2])}
    settings = {name for method in methods.METHODS.values() for name in vars(next(iter(method.presets.values())))}
    assert used - {"make_env"} <= settings


@pytest.mark.parametrize("page", [page for page in PAGES if re.match(r"docs/.*\.(ja|zh)\.md", page)])
def test_a_translation_has_the_commands_and_numbers_of_its_page(page):
    def said(text):
        lines = re.findall(r"^(python .*?)\s*(?:#.*)?$", text, re.MULTILINE)
        return {*lines, *re.findall(r"\d[\d,]*\d\d(?!\d)|\d+\.\d+", text)}

    assert said(text_of(page)) <= said(text_of(re.sub(r"\.(ja|zh)\.md", ".md", page)))


def test_a_block_of_source_names_something_that_is_there():
    assert page_blocks.code_of("companions/losses.py", "polyak") == (
        "def polyak(target: tf.Tensor, source: tf.Tensor, tau: float) -> tf.Tensor:\n"
        "    return target + tau * (source - target)"
    )
    assert page_blocks.code_of("companions/DDPGAgent.py", "DDPGAgent.number_of_critics").startswith("@property\ndef ")
    with pytest.raises(LookupError, match=r"companions/losses\.py defines no polyac"):
        page_blocks.code_of("companions/losses.py", "polyac")


def test_a_setting_that_another_class_has_too_is_shown_where_its_default_differs():
    tables = page_blocks.tables("companions.config.SACConfig without companions.config.OffPolicyConfig")
    assert "`--policy-delay`" in tables and "`--target-entropy`" in tables  # 1 there, 2 here; and one of its own
    assert "`--gamma`" not in tables


HALLS = (
    "programs/notebook", "programs/tuning", "common/envs", "common/rollout", "common/rollout/workers",
    "common/learning", "common/runs", "common/figures",
)  # fmt: skip
RECORDED = [  # page, file, which of its tables
    ("docs/faults.md", "benchmarks/results/faults.md", 0),
    ("docs/results.md", "experiments/results/walker/summary.md", 0),
    ("docs/results.md", "experiments/results/walker/summary.md", 1),
    ("docs/results.md", "experiments/results/entropy/summary.md", 0),
    ("docs/results.md", "experiments/results/entropy/summary.md", 2),
    ("docs/results.md", "experiments/results/cartpole/summary.md", 0),
    ("docs/results.md", "experiments/results/cartpole-minimal/summary.md", 0),
    ("docs/results.md", "experiments/results/defaults/summary.md", 0),
    ("docs/own-environment.md", "experiments/results/taxi/summary.md", 0),
    ("docs/speed.md", "benchmarks/results/atari_speed.md", 0),
    ("docs/cluster-measured.md", "benchmarks/results/cluster_scaling.md", 0),
    ("docs/results.md", "experiments/results/pendulum/summary.md", 0),
    ("docs/results.md", "experiments/results/pendulum-sac/summary.md", 0),
    ("docs/results.md", "experiments/results/pendulum-ablation/summary.md", 0),
    ("docs/speed.md", "benchmarks/results/off_policy_speed.md", 0),
    ("docs/results.md", "experiments/results/bipedal-walker-td3/summary.md", 1),
    ("docs/results.md", "experiments/results/lunar-lander-td3/summary.md", 1),
    ("docs/results.md", "experiments/results/lunar-lander-tqc/summary.md", 1),
]


@pytest.mark.parametrize(("page", "recorded", "number"), RECORDED)
def test_tables_are_what_the_scripts_wrote(page, recorded, number):
    table = (ROOT / recorded).read_text(encoding="utf-8").split("\n\n")[number].strip()
    assert table.startswith("|") and table.count("\n") >= 2
    assert table in text_of(page)


def test_recorded_runs_have_the_settings_that_their_study_asks_for():
    """A preset that changes after its runs were recorded leaves scores behind that nothing in the project has."""
    checked = 0
    for name, what in study.STUDIES.items():
        for arm, arguments in what.arms.items():
            words = shlex.split(arguments)
            method = methods.METHODS["ppo"] if words[0].startswith("-") else preset_files.find_preset(words[0])[1]
            parsed = parse(words, "study", method.presets, method.default_preset, method.preset_for)
            for seed in what.all_seeds:
                folder, asked = study.folder_of(name, arm, seed), parsed[1].replace(seed=seed)
                if (folder / run_folder.CONFIG).exists():
                    recorded = json.loads((folder / run_folder.CONFIG).read_text(encoding="utf-8"))["config"]
                    assert not differing(recorded, asked), folder
                    checked += 1
    assert checked > 50


def differing(recorded, asked):
    """Settings that a recorded run, whose names are those of its time, has with another value.

    The backend `auto` stood for is the machine's; how to validate says nothing where validation does not choose.
    """
    free = {"backend"} if asked.backend == "auto" else set()
    free |= {"shards"} if asked.shards is None else set()
    if asked.best_metric != "validation":
        free |= {"validate_every", "validation_episodes"}
    if not recorded.get("stop_target_gradient", True):
        recorded = recorded | {"value_target": "one_step_gradient"}
    if recorded.get("target_update") == "soft":
        recorded = recorded | {"hard_update_every": 0}
    if isinstance(recorded.get("target_smoothing"), bool):
        recorded = recorded | {"target_smoothing": 0.2 * recorded["target_smoothing"]}
    if recorded["reward_design"] == "ends_told_apart":
        recorded = recorded | {"reward_design": "outcome_bonus"}
    if recorded.get("std") == "softplus_head":
        recorded = recorded | {"initial_std": None}
    once_numbers = ("action_repeat", "validate_from")
    lists = {name: [recorded[name]] for name in once_numbers if isinstance(recorded.get(name), int | float)}
    recorded = recorded | lists
    now = json.loads(json.dumps(dataclasses.asdict(asked)))
    free |= {"action_cost"}  # a number then, with action_cost_score
    return {name for name in now.keys() & recorded.keys() - free if now[name] != recorded[name]}


def test_the_version_is_the_same_wherever_it_stands():
    project = tomllib.loads(text_of("pyproject.toml"))["project"]
    newest = re.search(r"^## (\d+\.\d+\.\d+) [-–] (\d{4}-\d\d-\d\d)$", text_of("CHANGELOG.md"), re.MULTILINE)
    citation = dict(re.findall(r'^([\w-]+): "?([^"\n]+)"?$', text_of("CITATION.cff"), re.MULTILINE))
    assert newest is not None and newest[1] == project["version"] == citation["version"]
    assert newest[2] == citation["date-released"]
    assert project["license"]["text"] == citation["license"] == "MIT" and "MIT License" in text_of("LICENSE")


@pytest.mark.parametrize(("page", "most"), [("docs/quick-start.md", 700), ("docs/cluster.md", 1000)])
def test_a_page_that_is_read_first_stays_short(page, most):
    assert len(text_of(page).split()) <= most


def test_links_and_commands_are_found():
    assert "](docs/methods/index.md)" in text_of("README.md")
    assert len(COMMANDS) > 20
    assert {words[0] for _, words in COMMANDS} >= {"PPOAgentTrainer.py", "-m"}
    named = {words[2] for _, words in COMMANDS if words[:2] == ["-m", "programs"] and len(words) > 2}
    assert named >= {"train", "resume", "evaluate", "watch", "plot", "export", "study"}


class Understood(Exception):
    """The program has read its arguments, and would begin."""


def stop_after(parse):
    def parse_and_stop(*arguments, **options):
        parse(*arguments, **options)
        raise Understood

    return parse_and_stop


def load(words, monkeypatch):
    """The module a command runs, and the arguments it gets."""
    if words[:2] == ["-m", "programs"] and len(words) > 2:
        return importlib.import_module(f"programs.{words[2]}"), words[3:]
    if words[0] == "-m":
        return importlib.import_module(words[1]), words[2:]
    path = ROOT / words[0]
    assert path.exists(), words[0]
    monkeypatch.syspath_prepend(str(path.parent))
    if path.parent == ROOT:
        return importlib.import_module(path.stem), words[1:]
    specification = importlib.util.spec_from_file_location(f"page_{path.stem}", path)
    module = importlib.util.module_from_spec(specification)
    monkeypatch.setitem(sys.modules, specification.name, module)  # dataclasses look themselves up there
    specification.loader.exec_module(module)
    return module, words[1:]


def ours(words):
    return words[0] != "-m" or words[1] == "programs" or (ROOT / (words[1].replace(".", "/") + ".py")).exists()


@pytest.mark.parametrize("page, words", COMMANDS, ids=[" ".join(words) for _, words in COMMANDS])
def test_a_command_is_understood(page, words, monkeypatch, capsys):
    if not ours(words):  # python -m venv, python -m pytest
        assert importlib.util.find_spec(words[1]) is not None
        return
    module, arguments = load(words, monkeypatch)
    arguments = [str(A_RUN) if word.startswith("runs/") else word for word in arguments]
    monkeypatch.setattr(sys, "argv", [words[0], *arguments])
    for read in ("parse", "parse_settings"):
        for place in (module, session):  # where every trainer hands its arguments to
            if hasattr(place, read):
                monkeypatch.setattr(place, read, stop_after(getattr(place, read)))
    if not arguments and words[0] == "-m":  # the program's name in a sentence
        assert callable(module.main)
        return
    try:
        module.main()
    except Understood:
        return
    except SystemExit as end:
        assert end.code in (0, None) and {"--help", "--help-all"} & set(arguments), capsys.readouterr().err
        return
    raise AssertionError(f"{page}: {words} was not stopped where its arguments are read")


def test_a_flag_that_is_not_there_is_found_out(monkeypatch, capsys):
    with pytest.raises(AssertionError, match="--gama"):
        test_a_command_is_understood("README.md", ["PPOAgentTrainer.py", "--gama", "1"], monkeypatch, capsys)


ENVIRONMENTS = {  # problems of the table of scores → environments of rl-zoo3's
    "BipedalWalker (solved: 300)": "BipedalWalker-v3",
    "BipedalWalkerHardcore (solved: 300)": "BipedalWalkerHardcore-v3",
    "LunarLanderContinuous (solved: 200)": "LunarLanderContinuous-v2",
    "Pendulum": "Pendulum-v1",
    "CartPole (up to 500 steps)": "CartPole-v1",
    "Breakout, five lives": "BreakoutNoFrameskip-v4",
}


def cells(line):
    return [cell.strip().strip("*").replace("−", "-") for cell in line.strip().strip("|").split("|")]


def table_after(page, heading):
    """The lines of the first table below a heading, without its own two."""
    lines = text_of(page).split(f"\n{heading}\n")[1].splitlines()
    first = next(i for i, line in enumerate(lines) if line.startswith("|"))
    return list(takewhile(lambda line: line.startswith("|"), lines[first:]))[2:]


ALL_SCORES = "docs/results.md", "## All problems, beside rl-zoo3"


def scores(page_and_heading=ALL_SCORES):
    """(problem, method) → the row's other cells: score, steps, minutes, seeds, rl-zoo3's score and steps."""
    shown, problem = {}, ""
    for line in table_after(*page_and_heading):
        name, method, *others = cells(line)
        problem = problem if name == "the same" else name
        shown[problem, method] = others
    return shown


def recorded_by_rl_zoo():
    rows = text_of("benchmarks/results/rl_zoo3.md").split("\n\n")[0].splitlines()[2:]
    return {
        (method, env): (round(float(mean), 1), millions(steps)) for method, env, mean, _, steps, _ in map(cells, rows)
    }


def test_rl_zoos_scores_are_as_recorded():
    known, shown = recorded_by_rl_zoo(), scores()
    assert len(shown) == 19
    for (problem, method), (*_, score, steps) in shown.items():
        of = method.split(",")[0].lower(), ENVIRONMENTS[problem]
        assert (float(score), float(steps)) == known[of], (problem, method)


def millions(steps):
    """'500k' → 0.5"""
    return float(steps[:-1]) * {"k": 0.001, "M": 1.0}[steps[-1]]


@pytest.mark.parametrize(("page", "heading", "theirs_in"), [(*ALL_SCORES, 7), ("README.md", "## How good it is", 6)])
def test_the_higher_score_of_each_row_is_marked(page, heading, theirs_in):
    for row in table_after(page, heading):
        ours, theirs = (row.split("|")[column].strip() for column in (3, theirs_in))
        if ours == "–":
            assert "*" not in row
        else:
            score, other = (float(text.strip("*").replace("−", "-")) for text in (ours, theirs))
            assert (ours.startswith("**"), theirs.startswith("**")) == (score > other, other > score), row


IN_README = {  # methods of README's table that have another name in that of all scores
    ("BipedalWalker (solved: 300)", "PPO"): "PPO, fast",
    ("Pendulum", "TD3"): "TD3, few seconds",
    ("CartPole (up to 500 steps)", "PPO"): "PPO, few steps",
}


def test_readmes_scores_are_those_of_the_table_of_all_scores():
    shown, all_scores, known = scores(("README.md", "## How good it is")), scores(), recorded_by_rl_zoo()
    assert len(shown) == 11
    for (problem, method), (score, steps, seeds, theirs, best) in shown.items():
        full = all_scores[problem, IN_README.get((problem, method), method)]
        assert [score, steps, seeds, theirs] == [full[0], full[1], full[3], full[4]]
        means = {name: mean for (name, of), (mean, _) in known.items() if of == ENVIRONMENTS[problem]}
        assert best in [f"{mean:.1f} ({name.upper()})" for name, mean in means.items() if mean == max(means.values())]


@pytest.mark.parametrize(
    ("problem", "method", "study"),
    [
        ("BipedalWalker (solved: 300)", "PPO, Gymnasium", "walker"),
        ("BipedalWalker (solved: 300)", "PPO, EnvPool", "walker"),
        ("BipedalWalker (solved: 300)", "TD3", "bipedal-walker-td3"),
        ("LunarLanderContinuous (solved: 200)", "TD3", "lunar-lander-td3"),
        ("LunarLanderContinuous (solved: 200)", "TQC", "lunar-lander-tqc"),
        ("Pendulum", "TD3", "pendulum"),
    ],
)
def test_our_own_scores_are_as_recorded(problem, method, study):
    score, _, _, seeds, *_ = scores()[problem, method]
    summary = text_of(f"experiments/results/{study}/summary.md").split("\n\n")[0]
    assert f"| {seeds} | {score} |" in summary.replace("−", "-")


def files_of_an_epoch(trainer):
    """Our files whose functions run between an observation and a weight."""
    trainer.prepare()
    files = set()
    sys.setprofile(lambda frame, event, _: files.add(frame.f_code.co_filename) if event == "call" else None)
    try:
        trainer.run_epoch(trainer.config.epochs)
    finally:
        sys.setprofile(None)
        trainer.close()
    ours = [Path(file).relative_to(ROOT).as_posix() for file in files if Path(file).is_relative_to(ROOT)]
    return {file for file in ours if not file.startswith(("tests/", "."))}  # the virtual environment may lie here


@pytest.mark.parametrize(("method", "most_files", "most_lines"), [("PPO", 22, 4450), ("TD3", 22, 4000)])
def test_the_path_from_an_observation_to_a_weight_is_counted(eager, method, most_files, most_lines):
    small = dict(env="Pendulum-v1", backend="gymnasium", steps_per_epoch=32, minibatch_size=32, num_envs=2)
    if method == "PPO":
        trainer = PPOAgentTrainer(presets.PRESETS["default"].replace(**small, passes=1))
    else:
        del small["minibatch_size"]
        trainer = OffPolicyAgentTrainer(companions.PRESETS["td3"].replace(**small, warmup_steps=20, batch_size=8))
    files = files_of_an_epoch(trainer)
    section = text_of("docs/house.md").split("## From an observation to a weight")[1].split("\n## ")[0]
    core = re.findall(r"^\| `([\w/]+\.py)` \| (?!both|PPO|TD3)", section, re.MULTILINE)
    others = re.findall(rf"^\| `([\w/]+\.py)` \| (?:both|{method}) \|", section, re.MULTILINE)
    assert len(core) == 9
    assert files == {*others, *(core if method == "PPO" else ())} - {"common/nets/keras_models.py"}
    sources = [text_of(file) for file in files]
    assert len(files) <= most_files and sum(len(source.splitlines()) for source in sources) <= most_lines


def seeds_of(record):
    """What the newest measurement of a record found, seed by seed."""
    files = (ROOT / "benchmarks" / "results" / "records").glob(f"*-{record}*.json")
    named = (file for file in files if re.fullmatch(rf"[\d-]+-{record}(-\d+)?", file.stem))
    read = (json.loads(file.read_text(encoding="utf-8")) for file in named)
    return max(read, key=lambda found: found["machine"]["date"])["seeds"]


@pytest.mark.parametrize(
    ("problem", "method", "record", "held"),
    [
        ("Pendulum", "TD3, few seconds", "pendulum-seconds", 1),
        ("CartPole (up to 500 steps)", "PPO, few steps", "cartpole-steps", 1),
        ("BipedalWalker (solved: 300)", "TQC", "best-walker", 1),
        ("BipedalWalker (solved: 300)", "PPO, continued", "continued-walker", 1),
        ("BipedalWalker (solved: 300)", "PPO, long", "best-ppo", 1),
        ("BipedalWalkerHardcore (solved: 300)", "TD3", "rough-ground", companions.HARDCORE_TD3.action_repeat[0]),
    ],
)
def test_records_are_as_recorded(problem, method, record, held):
    shown, millions_of_steps, minutes, number, *_ = scores()[problem, method]
    seeds = seeds_of(record)
    score = median(next(iter(one["scores"].values())) for one in seeds)
    assert (float(shown), int(number)) == (pytest.approx(score, abs=0.051), len(seeds))
    assert float(millions_of_steps) == pytest.approx(median(one["steps"] for one in seeds) * held / 1e6, rel=0.05)
    assert float(minutes) == pytest.approx(median(one["seconds"] for one in seeds) / 60, abs=0.051)


@pytest.mark.parametrize(
    ("problem", "agent", "digits", "sentence"),
    [
        ("BipedalWalkerHardcore (solved: 300)", "hardcore", 1, "Its score is {}, so"),
        ("LunarLanderContinuous (solved: 200)", "lander", 1, ""),
        ("Breakout, five lives", "breakout", 0,
         "100 games it scores {} without noise in its actions, and {} with sampled actions."),
    ],
)  # fmt: skip
def test_an_agents_score_is_that_of_its_files(problem, agent, digits, sentence):
    scored = json.loads(text_of(f"agents/{agent}/evaluation.json"))
    steps_of_run = json.loads(text_of(f"agents/{agent}/agent.json"))["run_steps"]
    means = [f"{scored[kind]['mean']:.1f}" for kind in ("deterministic", "sampled")]
    shown, steps, *_ = scores()[problem, "PPO"]
    assert (shown, float(steps)) == (means[0], round(steps_of_run / 1e6, digits))
    assert sentence.format(*means) in " ".join(text_of("docs/results.md").split())


def test_the_fast_walker_is_as_recorded():
    seeds = seeds_of("fast-walker")
    times, means = [one["seconds"] for one in seeds], [one["scores"]["1600"] for one in seeds]
    seconds, steps = median(times), median(one["steps"] for one in seeds)
    shown, shown_steps, minutes, number, *_ = scores()["BipedalWalker (solved: 300)", "PPO, fast"]
    assert (float(shown), int(number)) == (pytest.approx(median(means), abs=0.051), len(seeds))
    assert (shown_steps, minutes) == (f"{steps / 1e6:.1f}", f"{seconds / 60:.1f}")
    solved = sum(mean >= 300 for mean in means)
    in_readme = (
        f"[{seconds:.0f} seconds in the median](LEADERBOARD.md) of {len(seeds)} seeds "
        f"({min(times):.0f} to {max(times):.0f} s), and {solved} of the {len(seeds)} agents score at least 300."
    )
    in_scores = (
        f"In 100 fresh episodes the {len(seeds)} agents average {min(means):.1f} to {max(means):.1f}, and {solved} of "
        f"them at least 300. Its {seconds:.0f} seconds"
    )
    assert in_readme in " ".join(text_of("README.md").split())
    assert in_scores in " ".join(text_of("docs/results.md").split())
    row = (
        text_of("LEADERBOARD.md").split("episodes ≥ 300), without mirror symmetry")[1].splitlines()[4]
    )  # the newest record
    for cell in (f"| {seconds:.0f} ({min(times):.0f} to {max(times):.0f}) |", f", {solved} of {len(seeds)} |"):
        assert cell in row


def test_readme_says_what_its_film_shows():
    text = " ".join(text_of("README.md").split())
    [name] = re.findall(r"!\[[^]]*\]\(docs/gallery/([\w-]+)\.gif\)", text)
    card = json.loads(text_of(f"agents/{name}/agent.json"))
    trained = card["stages"]["trained"]
    assert f"The film shows the agent `{name}`, which comes with the project." in text
    assert f"After {trained['steps']:,} steps of training it scores {trained['mean']:.1f}." in text


def test_readme_counts_the_faults_as_recorded():
    """Kills are those of the training process."""
    tries = {}
    for line in text_of("benchmarks/results/faults.md").split("\n\n")[0].splitlines()[2:]:
        name, tried, survived, lost = cells(line)
        tries[name] = int(tried.replace(",", ""))
        assert (survived, lost) == (tried, "0")
    kills = sum(number for name, number in tries.items() if re.match(r"kill -9 (in|while|with)", name))
    power, disks, damaged = (
        tries[name] for name in ("power cut at a file operation", "disk full while training", "damaged checkpoints")
    )
    sentence = (
        f"{kills} kills, {power:,} simulated power cuts, {disks} full disks and {damaged:,} damaged checkpoints lost "
        "no run"
    )
    assert sentence in " ".join(text_of("README.md").split())


def test_every_preset_and_every_study_is_on_its_page():
    presets_of = {name for method in methods.METHODS.values() for name in method.presets}
    assert {name for name in presets_of if f"`{name}`" not in text_of("docs/presets.md")} == set()
    assert {name for name in study.STUDIES if f"| `{name}` |" not in text_of("docs/studies.md")} == set()
