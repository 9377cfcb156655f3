"""The settings of a run that trains in the background, as sliders of a notebook."""

from typing import Any

import ipywidgets

from ppo import sliders as positions
from ppo.live_settings import LiveHyperparameters


def sliders(live: LiveHyperparameters) -> Any:
    """Sliders as an `ipywidgets.VBox`; one that is released changes its setting from the next update on."""
    return ipywidgets.VBox([_control(live, name, slider) for name, slider in positions.sliders(live).items()])


def _control(live: LiveHyperparameters, name: str, slider: positions.Slider) -> Any:
    kind = ipywidgets.FloatLogSlider if slider.is_log else ipywidgets.FloatSlider
    shown = {"description": name, "style": {"description_width": "10em"}, "readout_format": ".3g"}
    control = kind(live[name], min=slider.low, max=slider.high, step=slider.step, continuous_update=False, **shown)
    control.observe(lambda event: live.__setitem__(name, slider.value(slider.position(event["new"]))), "value")
    return control
