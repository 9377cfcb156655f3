"""Shows one episode in a window, drawn by the environment itself (Gymnasium's render mode "human")."""

import os
import sys

from common.envs.environment import Environment
from common.envs.spaces import ActionMap
from common.errors import UserError
from common.results import score_text
from common.rollout.playing import one_episode
from common.rollout.policies import Policy
from common.user_code import closed, explain

MODE = "human"
UNSEEN = ("dummy", "offscreen")  # drivers of SDL that draw in memory


def has_screen() -> bool:
    """Whether a window would be seen: SDL finds a display, and nobody is logged in from elsewhere."""
    if sys.platform in ("win32", "darwin"):
        if os.environ.get("SSH_CONNECTION"):
            return False
    elif not (os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")):
        return False
    import pygame

    try:
        pygame.display.init()  # stays open for the window: a virtual screen may end with its only connection
        return pygame.display.get_driver() not in UNSEEN  # SDL takes one of these if the display does not answer
    except pygame.error:
        return False


def show(policy: Policy, action_map: ActionMap, environment: Environment, seed: int) -> str:
    """Play a deterministic episode at the environment's own speed in a window, and return a line with the score.

    Raises:
        UserError: there is no screen, the environment draws no windows, or it failed.
    """
    if MODE not in environment.render_modes:
        raise UserError(f"{environment.id} draws no windows (render mode {MODE}): write a film with --film")
    if not has_screen():
        raise UserError("there is no screen here for a window: write a film with --film")
    try:
        with closed(environment.make(render_mode=MODE)) as env:
            for now in one_episode(policy, action_map, environment, env, seed):
                end = now
    except UserError:
        raise
    except Exception as error:  # somebody else's code: whatever it raises is a fault of the environment or the screen
        raise UserError(f"no window for {environment.id} ({explain(error)}): write a film with --film") from error
    return f"an episode of {score_text(end.score)} in {end.steps:,} steps"
