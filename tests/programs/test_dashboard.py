"""python -m programs dashboard RUN: in a real browser while a run trains, and what it reads and writes."""

import json
import math
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import imageio.v2 as imageio
import numpy as np
import pytest
from run_program import call

from common.errors import UserError
from common.runs import finished, run_folder
from ppo.config import PPOConfig
from ppo.live_settings import FILE, LiveHyperparameters
from ppo.sliders import sliders
from programs import dashboard, run_state

ROOT = Path(__file__).resolve().parents[2]
SECONDS = 60  # for anything that is waited for
TRAIN = (
    "cartpole --backend gymnasium --num-envs 2 --epochs 100000 --steps-per-epoch 128 --minibatch-size 64 --passes 2 "
    "--hidden-sizes 8 --clip-range 0.2 --evaluation-episodes 0 --record --name run --runs-folder"
)


@pytest.fixture
def run(tmp_path):
    """A run of four epochs, with a learning rate of 0.001 and a clip range of 0.2."""
    return shutil.copytree(ROOT / "tests" / "data" / "run", tmp_path / "run")


# -- what is read and written --


def test_a_change_is_written_by_the_runs_own_rules_and_listed(run):
    run_state.change(run, "clip_range", 0.05)
    state = run_state.read_state(run)
    assert (
        state.changes == [(math.inf, "From the next update on: clip_range 0.2 → 0.05")]
        and state.live["clip_range"] == 0.05
    )
    before = (run / FILE).read_bytes()
    for name, value in (("clip_range", 1.5), ("passes", 2.5), ("value_coefficient", 0.1)):
        with pytest.raises(UserError, match=name):
            run_state.change(run, name, value)
    assert (run / FILE).read_bytes() == before
    (run / FILE).write_text('{"values": {"clip_range": 7}}')
    assert "clip_range is 7" in run_state.read_state(run).status
    with pytest.raises(UserError, match="clip_range is 7"):
        run_state.change(run, "passes", 4)
    assert json.loads((run / FILE).read_text()) == {"values": {"clip_range": 7}}


def test_changes_have_the_epoch_whose_update_used_them_first(run):
    results = run / run_folder.RESULTS
    header, *rows = results.read_text().splitlines()
    column = header.split(",").index("hp_passes")
    for i, passes in enumerate((2, 4, 4, 3)):
        cells = rows[i].split(",")
        rows[i] = ",".join([*cells[:column], str(passes), *cells[column + 1 :]])
    results.write_text("\n".join([header, *rows]) + "\n")
    run_state.change(run, "passes", 3)
    assert run_state.read_state(run).changes == [
        (4, "From epoch 4 on: passes 4 → 3"),
        (2, "From epoch 2 on: passes 2 → 4"),
    ]


def test_a_value_that_an_older_version_did_not_note_is_that_of_the_settings(run):
    table = np.genfromtxt(run / run_folder.RESULTS, delimiter=",", names=True)
    table["hp_passes"] = np.nan
    np.savetxt(run / run_folder.RESULTS, table, delimiter=",", header=",".join(table.dtype.names), comments="")
    assert run_state.read_state(run).live["passes"] == run_state.read_settings(run).passes


@pytest.mark.parametrize("text", [None, "{"])
def test_a_file_that_is_refused_or_removed_leaves_the_values_as_they_were_last(run, text):
    table = (run / run_folder.RESULTS).read_text().splitlines()
    column = table[0].split(",").index("hp_clip_range")
    last = table[-1].split(",")
    last[column] = "0.1"
    (run / run_folder.RESULTS).write_text("\n".join([*table[:-1], ",".join(last)]) + "\n")
    (run / FILE).unlink(missing_ok=True)
    if text:
        (run / FILE).write_text(text)
    state = run_state.read_state(run)
    assert state.live["clip_range"] == 0.1 and [epoch for epoch, _ in state.changes] == [4]
    if text is None:
        run_state.change(run, "passes", 3)
        assert json.loads((run / FILE).read_text())["values"]["clip_range"] == 0.1


def test_a_run_says_whether_it_is_finished(run):
    assert run_state.read_state(run).status.startswith("Not finished: 4 of 4 epochs")  # its weights are not chosen yet
    finished.note(run, finished.ADOPT, 4)
    assert run_state.read_state(run).status.startswith("Finished: 4 of 4 epochs, ")
    (run / run_folder.RESULTS).write_text((run / run_folder.RESULTS).read_text().splitlines()[0] + "\n")
    assert "has no epochs yet" in run_state.read_state(run).status


@pytest.mark.parametrize("rate", [3e-4, 1.25678e-3])
def test_every_position_of_a_slider_is_a_value_that_is_allowed(rate):
    live = LiveHyperparameters(PPOConfig(learning_rate=rate))
    shown = sliders(live)
    assert list(shown) == ["learning_rate", "passes", "clip_range", "entropy_coefficient"]  # those with an effect
    for name, slider in shown.items():
        for position in (slider.low, slider.low + 7 * slider.step, slider.high):
            live[name] = slider.value(position)
            assert slider.position(live[name]) == pytest.approx(position, abs=slider.step / 2)
    rate = shown["learning_rate"]
    assert rate.value((rate.low + rate.high) / 2) == pytest.approx(rate.highest / 100, rel=0.01)


def test_the_notebooks_sliders_change_the_same_values():
    pytest.importorskip("ipywidgets")
    from programs.notebook.sliders import sliders as in_notebook

    live = LiveHyperparameters(PPOConfig(learning_rate=3e-4))
    shown = {control.description: control for control in in_notebook(live).children}
    assert shown["learning_rate"].value == pytest.approx(3e-4)
    shown["learning_rate"].value, shown["passes"].value = 1.23456e-5, 7
    assert live.poll().changes == ["learning_rate 0.0003 → 1.23e-05", "passes 10 → 7"]
    live.is_over, shown["passes"].value = True, 3
    assert shown["passes"].disabled and shown["passes"].description == "the run is over" and live["passes"] == 7


def test_what_is_missing_or_taken_is_one_line(run, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "nicegui", None)
    monkeypatch.delitem(sys.modules, "programs.run_page", raising=False)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert call(monkeypatch, dashboard, run) == call(monkeypatch, dashboard, run, "--port", port) == 2
    missing, in_use = capsys.readouterr().err.splitlines()
    assert "NiceGUI is not installed: run 'pip install -r requirements/dashboard.txt'" in missing
    assert f"port {port} is taken or needs more rights: choose another" in in_use


# -- in a browser --


@pytest.fixture(scope="module")
def browser():
    pytest.importorskip("nicegui", reason="NiceGUI is an extra")
    playwright = pytest.importorskip("playwright.sync_api")
    names = ("chromium", "chromium-browser", "google-chrome", "chrome")
    path = next(filter(None, map(shutil.which, names)), None)
    if path is None:
        pytest.skip("there is no Chromium: apt-get install chromium")
    with playwright.sync_playwright() as driver:
        yield driver.chromium.launch(executable_path=path)


@pytest.fixture
def start():
    """Starts `python …` in a process that ends with the test."""
    begun = []

    def start(*words: object) -> subprocess.Popen:
        variables = os.environ | {"CUDA_VISIBLE_DEVICES": "-1"}
        pipe = subprocess.PIPE
        command = [sys.executable, *map(str, words)]
        begun.append(subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True, cwd=ROOT, env=variables))
        return begun[-1]

    yield start
    for process in begun:
        process.kill()
        process.communicate()


def opened(browser, start, run):
    """The dashboard's process and its page."""
    process = start("-m", "programs", "dashboard", run)
    address = process.stdout.readline().split("http://")[1].split()[0]
    page = browser.new_page()
    page.goto(f"http://{address}")
    return process, page


def until(found):
    """What a function returns, once that is something."""
    end = time.monotonic() + SECONDS
    while time.monotonic() < end:
        value = found()
        if value:
            return value
        time.sleep(0.1)
    raise AssertionError(f"nothing was found in {SECONDS} s")


def values_of(run):
    return json.loads((run / FILE).read_text())["values"]


def used(run):
    """The clip range of every epoch."""
    return list(run_folder.read_results(run)["hp_clip_range"])


def test_a_slider_that_is_moved_changes_the_run_from_the_next_update_on(browser, start, tmp_path):
    run, training = tmp_path / "run", start("PPOAgentTrainer.py", *TRAIN.split(), tmp_path)
    results = run / run_folder.RESULTS
    until(lambda: training.poll() is not None or (results.exists() and results.read_text().count("\n") > 3))
    process, page = opened(browser, start, run)
    page.get_by_text("Not finished: ").wait_for()
    assert page.locator("canvas").count() == 4  # the curves

    slider = page.locator(".slider-clip_range")
    slider.scroll_into_view_if_needed()
    box = slider.bounding_box()
    middle = box["y"] + box["height"] / 2
    page.mouse.move(box["x"] + 0.2 * box["width"], middle)
    page.mouse.down()
    page.mouse.move(box["x"] + 0.5 * box["width"], middle, steps=5)
    time.sleep(0.5)
    assert values_of(run)["clip_range"] == 0.2  # it is not released yet
    before = len(used(run))
    page.mouse.up()

    until(lambda: used(run)[-1] != 0.2)
    value, first = values_of(run)["clip_range"], used(run).index(used(run)[-1])
    assert value == pytest.approx(0.5, abs=0.01)
    assert first >= before and used(run)[:first] == [0.2] * first and set(used(run)[first:]) == {value}
    page.get_by_text(f"From epoch {first + 1} on: clip_range 0.2 → {value:g}").wait_for()

    process.send_signal(signal.SIGINT)
    assert process.wait(SECONDS) == 130 and process.stderr.read().strip() == "stopped"


def test_a_slider_that_cannot_be_written_goes_back_and_says_why(browser, start, run):
    _, page = opened(browser, start, run)
    (run / FILE).write_text("{")
    page.get_by_text("cannot be read (JSONDecodeError)").wait_for()
    page.locator(".slider-passes [tabindex]").first.focus()
    page.keyboard.press("ArrowRight")
    page.locator(".q-notification", has_text="cannot be read").wait_for()
    page.locator(".slider-passes[aria-valuenow='2']").wait_for()
    assert (run / FILE).read_text() == "{"


def test_a_finished_run_shows_its_curves_and_its_film_and_keeps_its_settings(browser, start, run):
    finished.note(run, finished.ADOPT, 4)
    imageio.mimwrite(run / run_folder.VIDEO, np.zeros((30, 64, 64, 3), np.uint8), fps=30)
    _, page = opened(browser, start, run)
    page.get_by_text("Finished: 4 of 4 epochs").wait_for()
    assert page.locator("canvas").count() == 4
    page.wait_for_function("document.querySelector('video').duration == 1")  # the film's seconds
    page.locator(".slider-passes.disabled").wait_for()
    assert not (run / FILE).exists()  # looking at a run writes nothing
