"""Figures of a policy's actions and its critic's values over observations of one or two dimensions."""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import ListedColormap
from matplotlib.figure import Figure

from common.errors import UserError
from common.figures.style import COLOURS, style_axis


class PolicyGrid(NamedTuple):
    """The points at which a policy is drawn: one axis or two, and the observation at each point.

    Attributes:
        axes: label and [points] values of each; the first goes to the right, the second up.
        observation: values of each axis [K] → raw observations [K, S].
        action: label of the action.
    """

    axes: tuple[tuple[str, np.ndarray], ...]
    observation: Callable[..., np.ndarray]
    action: str = "Action"


PENDULUM = PolicyGrid(
    (
        ("Angle from upright (rad)", np.linspace(-np.pi, np.pi, 181)),
        ("Angular velocity (rad/s)", np.linspace(-8, 8, 161)),
    ),
    lambda angle, velocity: np.stack([np.cos(angle), np.sin(angle), velocity], axis=1),
    "Torque (N·m)",
)


def grid_for(env_id: str, agent: Any) -> PolicyGrid:
    """The grid of Pendulum, or three standard deviations around the mean observation of one or two numbers.

    Raises:
        UserError: observations have more than two numbers.
    """
    size = agent.observation_size
    if env_id.startswith("Pendulum-") and size == 3:
        return PENDULUM
    if size > 2:
        raise UserError(
            f"{env_id} has observations of {size} numbers: a policy is drawn over one or two, or Pendulum's; use "
            "another --kind"
        )
    centre, spread = np.zeros(size), np.ones(size)  # [S], [S]
    normalizer = agent.normalizer()
    if normalizer.shift is not None:
        centre, spread = normalizer.shift, 1 / normalizer.scale
    axes = tuple(
        (f"Observation, number {i}", np.linspace(centre[i] - 3 * spread[i], centre[i] + 3 * spread[i], 161))
        for i in range(size)
    )
    return PolicyGrid(axes, lambda *values: np.stack(values, axis=1))


def policy_view(agent: Any, grid: PolicyGrid) -> Figure:
    """The first number of the deterministic action, and its value: two heat maps, or over one dimension two lines."""
    points = np.meshgrid(*(values for _, values in grid.axes))  # each [second, first], or [first]
    observations = grid.observation(*(axis.ravel() for axis in points)).astype(np.float32)  # [K, S]
    actions, values = actions_and_values(agent, observations)  # [K, A], [K]
    shape = points[0].shape
    several = f", number 0 of {actions.shape[1]}" if actions.shape[1] > 1 else ""
    scaled = getattr(agent.config, "reward_scaling", "none") != "none"  # a setting of PPO's alone
    value = "Value (discounted scaled reward)" if scaled else "Value (discounted reward)"
    pictures = (grid.action + several, actions[:, 0]), (value, values)
    figure = Figure(figsize=(9, 3.9), layout="constrained")
    for i, (axis, (label, picture)) in enumerate(zip(figure.subplots(1, 2), pictures)):
        axis.set_xlabel(grid.axes[0][0])
        if len(shape) == 1:
            axis.plot(grid.axes[0][1], picture, color=COLOURS[i])
            style_axis(axis, label)
        else:
            colours = _action_colours(agent) if i == 0 else {"cmap": "viridis"}
            _heat_map(figure, axis, grid, picture.reshape(shape), label, colours)
    return figure


def actions_and_values(agent: Any, observations: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Raw observations [K, S] → environment actions of the deterministic policy [K, A], their values [K]."""
    chosen = agent.acting_policy().act(observations)  # [K, A], the policy's numbers
    actions = np.asarray(agent.action_map(chosen), np.float64).reshape(len(chosen), -1)  # [K, A]
    return actions, agent.values(observations)


def _action_colours(agent: Any) -> dict[str, Any]:
    """A colour for each choice; for continuous actions two colours that meet in the middle of the bounds."""
    if agent.choices is not None:
        first = float(agent.action_map(np.zeros((1, agent.action_size), np.float32)).ravel()[0])
        count = agent.choices[0]
        colours = [COLOURS[i % len(COLOURS)] for i in range(count)]
        return {"cmap": ListedColormap(colours), "vmin": first - 0.5, "vmax": first + count - 0.5}
    low, high = float(agent.action_map.low[0]), float(agent.action_map.high[0])
    return {"cmap": "PuOr"} | ({"vmin": low, "vmax": high} if np.isfinite([low, high]).all() else {})


def _heat_map(
    figure: Figure, axis: Axes, grid: PolicyGrid, picture: np.ndarray, label: str, colours: dict[str, Any]
) -> None:
    """Draw a picture [second, first] over the grid's two axes."""
    (right, first), (up, second) = grid.axes
    mesh = axis.pcolormesh(first, second, picture, shading="nearest", rasterized=True, **colours)
    bar = figure.colorbar(mesh, ax=axis, label=label)
    if isinstance(colours["cmap"], ListedColormap):
        bar.set_ticks(np.arange(colours["vmin"] + 0.5, colours["vmax"]).tolist())
    axis.set_ylabel(up)
    if "(rad)" in right:
        axis.set_xticks([-np.pi, -np.pi / 2, 0, np.pi / 2, np.pi], ["−π", "−π/2", "0", "π/2", "π"])
