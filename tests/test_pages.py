"""Pages: every link and file they name is there, every command they print is understood."""

import dataclasses
import importlib
import importlib.util
import json
import re
import shlex
import sys
import tomllib
from pathlib import Path

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
    "docs/action-masks.md",
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
    ("docs/action-masks.md", "experiments/results/taxi/summary.md", 0),
    ("docs/speed.md", "benchmarks/results/atari_speed.md", 0),
    ("docs/cluster-measured.md", "benchmarks/results/cluster_scaling.md", 0),
    ("docs/speed.md", "benchmarks/results/off_policy_speed.md", 0),
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


def cells(line):
    return [cell.strip() for cell in line.strip().strip("|").split("|")]


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


def test_readme_is_short_and_names_the_seed_of_its_film():
    text = text_of("README.md")
    assert len(text.split()) <= 600
    [seed] = re.findall(r"after training with `--seed (\d+)`", " ".join(text.split()))
    assert json.loads(text_of("agents/fast-walker/agent.json"))["seed"] == int(seed) >= 20


def test_every_preset_and_every_study_is_on_its_page():
    presets_of = {name for method in methods.METHODS.values() for name in method.presets}
    assert {name for name in presets_of if f"`{name}`" not in text_of("docs/presets.md")} == set()
    assert {name for name in study.STUDIES if not re.search(rf"[` ]{name}`", text_of("docs/studies.md"))} == set()
