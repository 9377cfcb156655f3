"""The settings of a run that trains in the background, as sliders of a notebook."""

from typing import Any

import ipywidgets

from common.errors import UserError
from ppo import sliders as positions
from ppo.live_settings import LiveHyperparameters


def sliders(live: LiveHyperparameters) -> Any:
    """Sliders as an `ipywidgets.VBox`; one that is released changes its setting from the next update on.

    Once the run is over, a slider that is moved says so and rests.
    """
    return ipywidgets.VBox([_control(live, name, slider) for name, slider in positions.sliders(live).items()])


def _control(live: LiveHyperparameters, name: str, slider: positions.Slider) -> Any:
    kind = ipywidgets.FloatLogSlider if slider.is_log else ipywidgets.FloatSlider
    shown = {"description": name, "style": {"description_width": "10em"}, "readout_format": ".3g"}
    control = kind(live[name], min=slider.low, max=slider.high, step=slider.step, continuous_update=False, **shown)

    def change(event: dict[str, Any]) -> None:
        try:
            live[name] = slider.value(slider.position(event["new"]))
        except UserError:  # every position is allowed, so the run is over
            control.disabled, control.description = True, "the run is over"

    control.observe(change, "value")
    return control
