"""training.ipynb: as it is stored, and executed as a whole; and what its cells call."""

import ast
import base64
import errno
import io
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import zipfile
from pathlib import Path
from types import SimpleNamespace

import gymnasium
import nbformat
import numpy as np
import pytest
from IPython.display import DisplayHandle
from PIL import Image

from common.errors import StoppedError, UserError
from common.figures import five_panels as figure
from common.figures.five_panels import five_panels
from common.results import TIMING_COLUMNS
from common.runs import recorder, run_folder, session, side_by_side
from experiments import notebook as program
from ppo import presets
from ppo.config import PPOConfig
from programs import methods, notebook, shipped
from programs.notebook import display, films, lessons

ROOT = Path(__file__).resolve().parents[2]

pytestmark = pytest.mark.usefixtures("eager")
STORED = nbformat.read(ROOT / "training.ipynb", as_version=4)


# -- the file --


def outputs(executed, kind):
    """What cells show in one format."""
    bundles = (output.get("data", {}) for cell in executed.cells for output in cell.get("outputs", []))
    return [bundle[kind] for bundle in bundles if kind in bundle]


def check(executed):
    """A notebook that was executed from top to bottom shows what it should."""
    cells = [cell for cell in executed.cells if cell.cell_type == "code"]
    assert [cell.execution_count for cell in cells] == list(range(1, len(cells) + 1))
    for cell in cells:
        assert not [o for o in cell.outputs if o.output_type == "error" or o.get("name") == "stderr"], cell.source
        assert cell.outputs or "=" in cell.source, cell.source
    text = "\n".join(outputs(executed, "text/plain"))
    stopped = re.search(r"stopped after epoch (\d+) of \d+, which is saved", text)[1]
    assert f"continuing after epoch {stopped}\nepoch " in text
    assert text.count("VBox(children=(FloatLogSlider(") == 1
    # A run, what the change did, a run in two parts, their rewards, advantages, the clipped loss, TD3.
    assert len(outputs(executed, "image/png")) == 8
    scores, companions = outputs(executed, "text/markdown")
    for table in (scores, companions):
        assert "| untrained | deterministic | " in table
        assert len(table.splitlines()) == 2 + 2 * 2
    said = "".join(output.text for cell in cells for output in cell.outputs if "text" in output)
    for name in ("common/funcs.generalized_advantages", "ppo/losses.clipped_surrogate"):
        assert f"your function equals {name} on " in said
    recorded, *shown = outputs(executed, "text/html")
    assert 'src="data:image/webp;base64,' in recorded
    gifs = [html for html in shown if not html.startswith("<details>")]
    assert len(gifs) == 2 and len(shown) == 2 + 5
    for gif in gifs:
        shown = base64.b64decode(re.fullmatch(r'<img .* src="data:image/gif;base64,([^"]+)">', gif)[1])
        assert len(shown) < 250_000
        with Image.open(io.BytesIO(shown)) as opened:
            assert opened.n_frames > 20 and opened.size[0] == 2 * films.WIDTH + side_by_side.GAP
        assert "untrained: " in gif and ", trained: " in gif


def test_it_is_stored_with_the_outputs_of_a_real_run():
    nbformat.validate(STORED)
    check(STORED)
    chosen = "".join(output.text for cell in STORED.cells for output in cell.get("outputs", []) if "text" in output)
    assert "bipedal-walker-fast: BipedalWalker-v3, " in chosen and "quick: " not in chosen
    content = (ROOT / "training.ipynb").read_text(encoding="utf-8")
    assert not re.search(r"/tmp/|/home/|/root", re.sub(r"[\w+/=]{200,}", "", content))


def plain_python(source):
    """Without `%pip`, which only a notebook understands."""
    return re.sub(r"^( *)%pip .*$", r"\1pass", source, flags=re.MULTILINE)


def test_it_defines_the_two_functions_at_the_heart_alone_and_they_are_the_projects():
    found = {}
    for cell in STORED.cells:
        if cell.cell_type == "code":
            tree = ast.parse(plain_python(cell.source))
            kinds = ast.ClassDef | ast.FunctionDef | ast.Lambda
            for node in (n for n in ast.walk(tree) if isinstance(n, kinds)):
                exec(compile(ast.Module([node], []), cell.id, "exec"), {"np": np}, found)
                assert node.end_lineno - node.lineno <= 12
    assert found.keys() == {"generalized_advantages", "clipped_surrogate"}
    assert lessons.check_advantages(found["generalized_advantages"]).startswith("your function equals ")
    assert lessons.check_surrogate(found["clipped_surrogate"]).startswith("your function equals ")


def test_the_first_film_waits_for_no_tensorflow():
    code = (
        "import sys; from IPython.display import DisplayHandle; DisplayHandle.display = DisplayHandle.update = "
        "lambda *a, **k: None; from programs import notebook; notebook.watch_agent('cartpole'); "
        "assert not {'tensorflow', 'keras', 'scipy'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True)


def test_the_agents_and_presets_it_offers_are_there():
    code = "\n".join(cell.source for cell in STORED.cells)
    forms = re.findall(r'^(?:agent|preset) = "(.*?)"  # @param (\[.*\])', code, re.MULTILINE)
    (agent, agents), (preset, offered) = [(chosen, ast.literal_eval(names)) for chosen, names in forms]
    assert agent == agents[0] == "best-hardcore"
    assert {*agents, "breakout"} == {*shipped.names()}
    assert set(offered) <= notebook.PRESETS.keys()
    assert preset == offered[0] == presets.DEFAULT == "bipedal-walker-fast"


def cell(title, **fields):
    """The source of a cell with form fields filled in."""
    [source] = [cell.source for cell in STORED.cells if cell.source.startswith(f"# @title {title}")]
    source = plain_python(source)
    for name, value in fields.items():
        source, count = re.subn(rf"^{name} = .*$", f"{name} = {value!r}", source, flags=re.MULTILINE)
        assert count == 1
    return source


@pytest.fixture
def get_the_code(tmp_path, monkeypatch):
    """Executes the first cell in a folder where nothing lies; its variables."""
    monkeypatch.setattr(sys, "path", list(sys.path))
    (tmp_path / "empty").mkdir()
    monkeypatch.chdir(tmp_path / "empty")

    def run(**fields):
        variables = {}
        exec(cell("Get the code", **fields).replace("/content/drive", str(tmp_path)), variables)
        return variables

    return run


@pytest.fixture
def colab(monkeypatch):
    """A stand-in; where Drive was mounted."""
    mounted = []
    module = SimpleNamespace(drive=SimpleNamespace(mount=mounted.append))
    monkeypatch.setitem(sys.modules, "google.colab", module)
    return mounted


def test_the_code_may_lie_on_drive(get_the_code, colab, tmp_path):
    (tmp_path / "MyDrive").mkdir()
    (tmp_path / "MyDrive" / "walker").symlink_to(ROOT)
    assert get_the_code(drive_folder="walker")["on_colab"]
    assert Path.cwd() == ROOT and colab == [str(tmp_path)]
    with pytest.raises(SystemExit, match=r"walkers has no PPOAgentTrainer\.py"):
        get_the_code(drive_folder="walkers")


def test_drive_is_colabs(get_the_code):
    with pytest.raises(SystemExit, match="drive_folder is for Colab"):
        get_the_code(drive_folder="walker")
    with pytest.raises(UserError, match="is on Colab's Drive"):
        exec(cell("Choose", runs_folder="/content/drive/MyDrive/runs"), {"os": os, "Path": Path, "on_colab": False})


def test_the_code_is_cloned_where_it_does_not_lie(get_the_code, tmp_path):
    published = tmp_path / "published"
    for folder in ("common", "ppo", "companions", "programs"):
        shutil.copytree(ROOT / folder, published / folder, ignore=shutil.ignore_patterns("__pycache__"))
    (published / "PPOAgentTrainer.py").touch()
    who = ["-c", "user.name=a", "-c", "user.email=a@example.org"]
    for command in (["init", "-q"], ["add", "."], ["commit", "-q", "-m", "all"]):
        subprocess.run(["git", *who, *command], cwd=published, check=True)
    get_the_code(REPOSITORY=f"file://{published}")
    assert Path.cwd() == tmp_path / "empty" / "published"
    os.chdir(tmp_path)
    with pytest.raises(SystemExit, match="missing cannot be cloned"):
        get_the_code(REPOSITORY=f"file://{tmp_path}/nowhere/missing")
    with pytest.raises(SystemExit, match="the code is not here"):
        get_the_code(REPOSITORY="")


@pytest.fixture
def archive(tmp_path):
    """Writes a ZIP file of the parts of the project that the first cell needs."""

    def write(path, top="walker-main/"):
        with zipfile.ZipFile(path, "w") as packed:
            packed.writestr(f"__MACOSX/{top}._PPOAgentTrainer.py", "")
            packed.writestr(f"{top}PPOAgentTrainer.py", "")
            packed.writestr(f"{top}programs/methods.py", "")

    return write


@pytest.mark.parametrize("top", ["walker-main/", ""])
def test_a_zip_file_of_the_project_may_lie_beside_the_notebook(top, get_the_code, colab, archive, tmp_path, capsys):
    here = tmp_path / "empty"
    archive(here / "main (1).zip", top)
    with zipfile.ZipFile(here / "another.zip", "w") as other:
        other.writestr("data.csv", "")
    assert get_the_code(REPOSITORY="https://example.org/not/asked")["on_colab"]
    assert Path.cwd() == here / "main (1)" / top.rstrip("/")
    assert sys.path[0] == str(Path.cwd()) and capsys.readouterr().out == "unpacked main (1).zip\n"
    (Path.cwd() / "PPOAgentTrainer.py").write_text("changed")
    os.chdir(here)
    get_the_code()  # what was changed in the unpacked folder stays
    assert (Path.cwd() / "PPOAgentTrainer.py").read_text() == "changed" and capsys.readouterr().out == ""
    assert sorted(path.name for path in here.iterdir()) == ["another.zip", "main (1)", "main (1).zip"]


def test_a_zip_file_that_is_not_whole_is_named(get_the_code, archive, tmp_path, capsys):
    path = tmp_path / "empty" / "main.zip"
    archive(path)
    path.write_bytes(path.read_bytes()[:-40])
    with pytest.raises(SystemExit, match="the code is not here"):
        get_the_code()
    assert capsys.readouterr().out.startswith("main.zip is not whole: ")


@pytest.mark.skipif(not (ROOT / ".git").exists(), reason="this is no git repository")
def test_a_light_zip_file_leaves_out_what_the_notebook_does_not_need(tmp_path):
    page = (ROOT / "docs" / "quick-start.md").read_text(encoding="utf-8")
    [command] = re.findall(r"^git .* archive -o light\.zip HEAD$", page, re.MULTILINE)
    archive = tmp_path / "light.zip"
    subprocess.run(command.replace("light.zip", str(archive)).split(), cwd=ROOT, check=True)
    assert archive.stat().st_size < 8_000_000
    names = zipfile.ZipFile(archive).namelist()
    assert {"training.ipynb", "docs/films/rough-ground.webp"} <= set(names)
    assert not [
        name for name in names if name.startswith(("agents/breakout", "benchmarks", "experiments/results", "tests"))
    ]


@pytest.mark.parametrize("folder", ["runs", "/content/drive/MyDrive/runs"])
def test_on_colab_runs_that_go_with_the_machine_are_said_to(folder, colab, capsys):
    fields = {"preset": "pendulum", "runs_folder": folder, "backend": "gymnasium"}
    variables = {"os": os, "Path": Path, "on_colab": True}
    exec(cell("Choose", **fields), variables)
    assert variables["config"].backend == "gymnasium"
    assert ("go with this machine" in capsys.readouterr().out) == (folder == "runs")
    assert colab == ([] if folder == "runs" else ["/content/drive"])


@pytest.mark.parametrize("preset", ["bipedal-walker-2021", "cartpole", "pendulum"])
def test_left_alone_the_form_takes_the_presets_own(preset):
    variables = {"os": os, "Path": Path, "on_colab": False}
    exec(cell("Choose", preset=preset), variables)
    assert variables["config"] == notebook.PRESETS[preset]


@pytest.mark.notebook
@pytest.mark.timeout(900)
def test_it_runs_from_top_to_bottom(tmp_path, processes_without_xla):
    check(program.execute(tmp_path / "project", quick=True, seconds_a_cell=600))
    assert (tmp_path / "project" / "runs" / "pendulum-seed0" / run_folder.EVALUATION).exists()


# -- what its cells call --


def learned(folder):
    """The table without its timing columns; NaN equals NaN."""
    table = run_folder.read_results(folder)
    return {name: list(map(str, column)) for name, column in table.items() if name not in TIMING_COLUMNS}


@pytest.fixture
def settings(tiny):
    return tiny.replace(epochs=4)


def test_a_preset_or_an_environment_is_chosen():
    preset, config = notebook.choose("pendulum", epochs=3, seed=7)
    assert (preset, config.epochs, config.seed) == ("pendulum", 3, 7)
    assert notebook.choose("pendulum")[1].epochs == 60
    assert notebook.choose("cartpole", "Pendulum-v1") == ("default", PPOConfig(env="Pendulum-v1"))
    preset, config = notebook.choose("pendulum", "MountainCarContinuous-v0")
    assert (preset, config.env) == ("default", "MountainCarContinuous-v0")
    assert notebook.choose("cartpole", "CartPole")[1].env == "CartPole-v1"  # as the run's settings name it
    with pytest.raises(UserError, match="unknown preset 'walker'"):
        notebook.choose("walker")
    with pytest.raises(UserError, match="gama"):
        notebook.choose("pendulum", gama=0.9)
    with pytest.raises(UserError, match="Pendulum-v7"):
        notebook.choose("pendulum", "Pendulum-v7")


def test_stopped_and_called_again_it_is_the_run_that_was_not(settings, tmp_path, monkeypatch, shown):
    whole = notebook.train("pendulum", settings, tmp_path, "whole")
    drawn = []
    monkeypatch.setattr(
        figure, "five_panels", lambda runs: drawn.append(len(runs["pendulum-seed0"]["epoch"])) or five_panels(runs)
    )
    stopped = notebook.train("pendulum", settings, tmp_path, stop_after=2)
    assert drawn == [2, 2]  # when it was due, and again for what the stop leaves behind
    assert learned(stopped)["epoch"] == ["1.0", "2.0"]
    line = "stopped after epoch 2 of 4, which is saved: run this cell again to continue"
    assert shown[-1]["text/plain"].endswith(line)
    assert " left" not in shown[-1]["text/plain"]
    (stopped / "config.json").write_text("{")
    assert notebook.train("pendulum", settings, tmp_path, stop_after=2) == stopped
    assert "warning: " in shown[-1]["text/plain"] and "continuing after epoch 2" in shown[-1]["text/plain"]
    assert learned(stopped) == learned(whole)
    shown.clear()
    assert notebook.train("pendulum", settings, tmp_path) == stopped  # nothing is left to do
    ended = [f"{stopped} is finished: nothing is left to train", "a figure", "All five panels: click to see them"]
    assert [bundle["text/plain"] for bundle in shown] == ended


def test_the_figure_is_redrawn_in_its_place(settings, tmp_path, monkeypatch, shown):
    monkeypatch.setattr(recorder, "FIGURE_SHARE", 0)
    monkeypatch.setattr(recorder, "max", lambda *_: 0.0, raising=False)  # no pause between two figures
    put = []
    monkeypatch.setattr(display, "put", lambda bundle: put.append(bundle) or DisplayHandle())
    notebook.train("pendulum", settings, tmp_path)
    assert len(put) == 3  # the text, the rewards and the five panels
    assert len([bundle for bundle in shown if "image/png" in bundle]) >= 3
    assert len([bundle for bundle in shown if "epoch 3/4  █" in bundle["text/plain"]]) >= 1


def test_the_stop_button_ends_the_run_with_one_line(settings, tmp_path, monkeypatch, shown):
    def pressed(self, result):
        row(self, result)
        if result.epoch == 1:
            os.kill(os.getpid(), signal.SIGINT)

    row = display.Screen.row
    monkeypatch.setattr(display.Screen, "row", pressed)
    with pytest.raises(StoppedError) as stop:
        notebook.train("pendulum", settings, tmp_path)
    [line] = stop.value._render_traceback_()
    assert re.fullmatch(r"stopped after epoch [12] of 4, which is saved: run this cell again to continue", line)


def test_other_settings_get_a_folder_of_their_own(settings, tmp_path, shown):
    first = notebook.train("pendulum", settings, tmp_path)
    other = notebook.train("pendulum", settings.replace(gamma=0.5), tmp_path)
    more = notebook.train("pendulum", settings.replace(epochs=5), tmp_path)
    assert (first.name, other.name, more) == ("pendulum-seed0", "pendulum-seed0-2", first)
    assert len(learned(first)["epoch"]) == 5
    assert notebook.place(tmp_path, first.name, settings.replace(epochs=5, backend="auto"))[0] == first
    stored = json.loads((first / run_folder.CONFIG).read_text())
    stored["config"]["shards"] = 2  # as a run on Gymnasium finds them
    (first / run_folder.CONFIG).write_text(json.dumps(stored))
    assert notebook.place(tmp_path, first.name, settings.replace(epochs=5, backend="auto"))[0] == first
    assert notebook.place(tmp_path, first.name, settings.replace(epochs=5))[0] != first
    (tmp_path / "pendulum-seed0-3").mkdir()  # cut off before it wrote its settings
    free = tmp_path / "pendulum-seed0-4"
    assert notebook.place(tmp_path, first.name, settings.replace(gamma=0.6)) == (free, None)
    assert notebook.place(tmp_path, first.name, settings) == (free, None)  # its five epochs are not these four


def test_a_run_of_another_version_is_named(settings, tmp_path, shown, capsys):
    folder = notebook.train("pendulum", settings.replace(epochs=1), tmp_path)
    written = (folder / run_folder.CONFIG).read_text()
    shutil.rmtree(folder / run_folder.CHECKPOINTS)  # whose copy another version's run would have as well
    for other in (written.replace('"gamma"', '"gama"'), written.replace('"unchanged"', '"newer"')):
        (folder / run_folder.CONFIG).write_text(other)
        assert notebook.place(tmp_path, folder.name, settings)[0].name == "pendulum-seed0-2"
        assert str(folder) in capsys.readouterr().out


def test_more_epochs_than_a_run_was_meant_for_are_told(settings, tmp_path, shown, capsys):
    notebook.train("pendulum", settings.replace(epochs=1), tmp_path)
    assert capsys.readouterr().out == ""
    notebook.train("pendulum", settings, tmp_path)
    assert "was started with 1 epochs: its schedules stretch to the new total of 4" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("raised", "error", "line"),
    [
        (KeyboardInterrupt(), StoppedError, "stopped at once"),
        (OSError(errno.ENOSPC, "No space left on device"), UserError, "No space left on device: make room first"),
    ],
)
def test_the_stop_button_between_epochs_and_a_full_disk_are_one_line(
    settings, tmp_path, monkeypatch, shown, raised, error, line
):
    def fails(*_, **__):
        raise raised

    monkeypatch.setitem(methods.METHODS, "ppo", methods.METHODS["ppo"]._replace(trainer=fails))
    with pytest.raises(error, match=line):
        notebook.train("pendulum", settings, tmp_path)


def test_a_run_that_was_not_trained_to_its_end_is_not_looked_at(tmp_path):
    for look in (notebook.compare, notebook.score, notebook.watch):
        with pytest.raises(UserError, match="not trained to its end"):
            look(None)


def test_a_new_run_in_the_background_stops_the_one_before(settings, tmp_path, shown):
    first = notebook.start("pendulum", settings.replace(epochs=100_000), tmp_path)
    first.wait(epoch=1)
    second = notebook.start("pendulum", settings.replace(epochs=1), tmp_path)
    assert second.folder.name == "pendulum-seed0-2"
    with pytest.raises(StoppedError, match="this cell begins a new run"):
        first.wait()
    assert len(learned(second.wait())["epoch"]) == 1


def test_a_run_in_the_background_does_not_outlive_its_program(settings, tmp_path, shown):
    before = set(threading.enumerate())
    run = notebook.start("pendulum", settings.replace(epochs=100_000), tmp_path)
    run.wait(epoch=1)
    assert {thread.daemon for thread in set(threading.enumerate()) - before} == {True}
    run.stop()


def test_hyperparameters_change_while_it_runs(settings, tmp_path, monkeypatch, shown):
    run = notebook.start("pendulum", settings.replace(epochs=15), tmp_path)
    opened, display_open = [], display.Screen.open
    monkeypatch.setattr(display.Screen, "open", lambda screen: opened.append(screen) or display_open(screen))
    run.wait(epoch=2)
    with pytest.raises(UserError, match="clip_range is 7"):
        run.live["clip_range"] = 7
    live = run.live
    live["clip_range"] = 0.05
    folder = run.wait()
    assert len(opened) == 1
    notebook.show_changes(folder, "clip_range")
    values = run_folder.read_results(folder)["hp_clip_range"]
    assert values[0] == 0.2 and values[-1] == 0.05 and len(values) == 15
    assert "image/png" in shown[-1]
    with pytest.raises(UserError, match="is over"):
        run.live["clip_range"] = 0.1
    with pytest.raises(UserError, match="is over"):
        live["clip_range"] = 0.1


def test_stopping_a_run_in_the_background_saves_it(settings, tmp_path, monkeypatch, shown):
    run = notebook.start("pendulum", settings.replace(epochs=100_000), tmp_path)
    run.wait(epoch=1)
    refresh = display.Screen.refresh

    def interrupted(self):
        monkeypatch.setattr(display.Screen, "refresh", refresh)
        raise KeyboardInterrupt

    monkeypatch.setattr(display.Screen, "refresh", interrupted)
    with pytest.raises(StoppedError, match="this cell begins a new run"):
        run.wait()
    assert learned(run.folder)["epoch"]
    assert (run.folder / session.CHECKPOINTS).exists()


def test_a_mistake_in_the_background_is_told(settings, tmp_path, shown):
    run = notebook.start("pendulum", settings.replace(env="Pendulum-v0"), tmp_path)
    with pytest.raises(UserError, match="Pendulum-v0"):
        run.wait()
    with pytest.raises(UserError, match="Pendulum-v0"):
        run.live["clip_range"] = 0.1


def test_scores_and_films_of_a_run(settings, tmp_path, shown):
    run = notebook.train("pendulum", settings.replace(epochs=1), tmp_path)
    notebook.score(run, run, episodes=2)
    table = shown[-1]["text/markdown"].splitlines()
    assert [line.split(" | ")[0] for line in table[2:]] == ["| untrained"] * 2 + ["| pendulum-seed0"] * 2
    assert (run / run_folder.EVALUATION).exists()
    notebook.watch(run)
    assert shown[-1]["text/html"].startswith("<img ")
    score = r"score −\d+ in 20 steps"
    assert re.fullmatch(f"untrained: {score}, trained: {score}", shown[-1]["text/plain"])


def test_what_draws_no_pictures_is_not_filmed(settings, tmp_path, monkeypatch, shown, capsys):
    run = notebook.train("pendulum", settings.replace(epochs=1), tmp_path)
    monkeypatch.setattr(gymnasium.envs.classic_control.PendulumEnv, "metadata", {"render_modes": []})
    notebook.watch(run)
    assert capsys.readouterr().out.startswith("not filmed: Pendulum-v1 draws no pictures")


def test_an_agent_of_the_project_is_shown_with_its_median_episodes(shown):
    notebook.watch_agent("cartpole")
    assert shown[0] == {"text/plain": "playing ..."}
    assert re.fullmatch(
        r"untrained: score (\d+) in \1 steps, trained: score 1024 in 1,024 steps", shown[-1]["text/plain"]
    )
    with pytest.raises(UserError, match="did you mean walker"):
        notebook.watch_agent("walkr")
