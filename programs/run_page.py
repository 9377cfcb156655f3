"""The page of the dashboard, made with NiceGUI."""

import socket
from pathlib import Path
from typing import Any

import numpy as np
import uvicorn
from fastapi import FastAPI
from nicegui import app, ui
from starlette.middleware.trustedhost import TrustedHostMiddleware

from common.errors import UserError
from common.runs import finished, run_folder
from ppo.live_settings import FILE, written_at
from ppo.sliders import Slider, sliders
from programs import run_state
from programs.run_state import RunState

READ = (run_folder.CONFIG, run_folder.RESULTS, FILE, finished.FILE, run_folder.VIDEO)
CURVES = {
    "avg_reward_orig": "Reward per episode",
    "avg_steps": "Steps per episode",
    "score": "Score: mean reward of the last episodes",
    "approximate_kl": "KL divergence of an update (nats)",
}


def serve(folder: Path, listener: socket.socket) -> None:
    """Serve the page of a run to who connects to `listener`, until the process is asked to stop."""
    server = FastAPI()
    server.add_middleware(TrustedHostMiddleware, allowed_hosts=["127.0.0.1", "localhost"])  # no other site's name
    ui.run_with(server, root=lambda: Page(folder), title=folder.resolve().name, show_welcome_message=False)
    uvicorn.Server(uvicorn.Config(server, log_level="warning", timeout_graceful_shutdown=1)).run(sockets=[listener])
    raise KeyboardInterrupt  # which asyncio drops if the server has ended before it is delivered


class Page:
    """What one browser shows of the run in a folder, where it looks every second."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._written: dict[str, Any] = {}  # file → when the one that is shown was written
        self._controls: dict[str, ui.slider] = {}
        halves = "w-full grid-cols-1 md:grid-cols-2 gap-6"
        with ui.column().classes("w-full max-w-6xl mx-auto p-4 gap-4"):
            ui.label(folder.resolve().name).classes("text-2xl")
            self._status = ui.label()
            with ui.grid().classes(halves):
                self._charts = {column: ui.echart({}).classes("w-full h-56") for column in CURVES}
            with ui.grid().classes(halves):
                with ui.column().classes("gap-1") as self._settings:
                    self._heading = ui.label().classes("text-lg")
                with ui.column():
                    self._changes = ui.label().classes("whitespace-pre-line max-h-64 overflow-auto")
                    self._film = ui.video("").classes("w-full max-w-md")
        ui.timer(1.0, self._look)

    def _look(self) -> None:
        """Show what is new in the folder."""
        written = {name: written_at(self._folder / name) for name in READ}
        if written == self._written:
            return
        try:
            state = run_state.read_state(self._folder)
        except (UserError, OSError) as error:
            self._status.text = str(error)
            return
        for column, chart in self._charts.items():
            chart.visible = column in state.table or not state.table  # not every method has a KL divergence
            chart.options.update(_options(column, state))
            chart.update()
        self._status.text = state.status
        self._changes.text = "\n".join(line for _, line in state.changes) or "No setting was changed so far."
        self._show_values(state, written[FILE] != self._written.get(FILE))  # else one being moved would jump back
        self._film.visible = (film := written[run_folder.VIDEO]) is not None
        if film is not None and film != self._written.get(run_folder.VIDEO):
            address = app.add_media_file(local_file=self._folder / run_folder.VIDEO)
            self._film.set_source(f"{address}?{film[0]}")  # else the browser shows an older one that it has kept
        self._written = written

    def _show_values(self, state: RunState, are_new: bool) -> None:
        live = state.live
        self._heading.text = f"Settings {'that may' if live else 'of this method never'} change while the run trains"
        if live is None:
            return
        for name, slider in sliders(live).items():
            if is_first := name not in self._controls:
                with self._settings:
                    self._controls[name] = self._control(name, slider)
            self._controls[name].enabled = not state.is_over
            if is_first or are_new:
                self._controls[name].value = slider.position(live[name])

    def _control(self, name: str, slider: Slider) -> ui.slider:
        with ui.row().classes("w-full items-baseline"):
            ui.label(name)
            ends = f"{slider.value(slider.low):g} to {slider.value(slider.high):g}"
            ui.label(ends + ", logarithmic" * slider.is_log).classes("text-xs text-gray-600 grow")
            number = ui.label()
        control = ui.slider(min=slider.low, max=slider.high, step=slider.step).classes(f"slider-{name}")
        number.bind_text_from(control, "value", lambda position: f"{slider.value(position or 0):g}")
        return control.on("change", lambda: self._change(name, slider.value(control.value)))  # when it is released

    def _change(self, name: str, value: float) -> None:
        try:
            run_state.change(self._folder, name, value)
        except (UserError, OSError) as error:
            ui.notify(str(error), type="negative", multi_line=True)
            self._written = {}  # so that the slider goes back with the next look


def _options(column: str, state: RunState) -> dict[str, Any]:
    """A curve over epochs, with a dashed line at each change, as ECharts describes charts."""
    curve = zip(state.table.get("epoch", ()), state.table.get(column, ()))
    dashes = {"symbol": "none", "label": {"show": False}, "lineStyle": {"type": "dashed", "color": "#666"}}
    line: dict[str, Any] = {"type": "line", "symbol": "circle", "symbolSize": 3}
    line["data"] = [[int(epoch), float(y) if np.isfinite(y) else None] for epoch, y in curve]
    line["markLine"] = dashes | {"data": [{"xAxis": epoch - 0.5} for epoch, _ in state.changes if np.isfinite(epoch)]}
    return {
        "title": {"text": CURVES[column], "textStyle": {"fontSize": 14}},
        "tooltip": {"trigger": "axis"},
        "grid": {"left": 60, "right": 20, "top": 40, "bottom": 40},
        "xAxis": {"type": "value", "name": "Epoch", "nameLocation": "middle", "nameGap": 24, "min": "dataMin"},
        "yAxis": {"type": "value", "scale": True},
        "series": [line],
    }
