"""The rewards that an agent learns from: a design's, less costs that may grow with the score."""

import numpy as np

from common.config import TrainingConfig
from common.env_wrappers import RewardDesign, reward_design
from common.envs.environment import Environment
from common.envs.spaces import BoxMap, action_map
from common.errors import UserError
from common.records import Trajectory
from common.state import State


class Shaping:
    """Shapes the rewards of trajectories as the config says.

    Args:
        design: what is rewarded, where the config leaves that to a function.

    Raises:
        UserError: the config has a cost of actions, and the environment's are choices.
    """

    def __init__(self, config: TrainingConfig, environment: Environment, design: RewardDesign | None = None) -> None:
        if config.action_cost and not isinstance(action_map(environment.action_space), BoxMap):
            raise UserError(
                f"action_cost is a cost of an action's size, and the actions of {environment.id} are choices: give "
                "--action-cost 0"
            )
        self._config = config
        self._designs = [
            reward_design(
                config.reward_design, config.reward_factor, environment.most_actions, design, fall_cost,
                environment.action_repeat,
            )
            for fall_cost in config.fall_costs
        ]  # fmt: skip
        self._costs_passed = 0  # of fall_costs
        self._actions_cost = config.action_cost_score is None

    def follow(self, score: float) -> None:
        """Take up the costs that hold from this score on; those that hold already stay."""
        reached = sum(score >= least for least in self._config.fall_cost_scores)
        self._costs_passed = max(self._costs_passed, reached)
        least = self._config.action_cost_score
        self._actions_cost |= least is not None and score >= least

    def __call__(self, trajectory: Trajectory, rows: slice = slice(None)) -> np.ndarray:
        """Shaped rewards [K, N] of K rows of a trajectory, with the present costs; 0 where not valid."""
        shaped = self.shape(
            trajectory.rewards[rows],
            trajectory.terminated[rows],
            trajectory.truncated[rows],
            np.maximum(trajectory.episode_steps[rows], 1),  # 0 where a row only begins an episode: no design sees it
            trajectory.actions[rows],
        )  # [K, N]
        return np.where(trajectory.valid[rows], shaped, 0.0)  # [K, N]

    def shape(
        self,
        rewards: np.ndarray,
        terminated: np.ndarray,
        truncated: np.ndarray,
        episode_steps: np.ndarray,
        actions: np.ndarray,
    ) -> np.ndarray:
        """Shaped rewards [...] with the present costs.

        Args:
            rewards, terminated, truncated: [...] of each step.
            episode_steps: [...], the episode's length so far.
            actions: [..., A] of the policy, before they are mapped to the environment's.
        """
        shaped = self._designs[self._costs_passed](rewards, terminated, truncated, episode_steps)  # [...]
        if self._config.action_cost and self._actions_cost:
            sizes = np.abs(np.clip(actions, -1.0, 1.0)).sum(axis=-1)  # [...]
            shaped = shaped - self._config.action_cost * sizes
        return shaped

    def state(self) -> State:
        """What changes while it follows a score."""
        falls = {"costs_passed": np.array(self._costs_passed)} if len(self._designs) > 1 else {}
        later = self._config.action_cost_score is not None
        return falls | ({"actions_cost": np.array(self._actions_cost)} if later else {})

    def load_state(self, state: State) -> None:
        """Restore what `state` returned.

        Raises:
            ValueError: there is no such cost.
        """
        self._costs_passed = int(state.get("costs_passed", 0))
        if not 0 <= self._costs_passed < len(self._designs):
            raise ValueError(f"fall cost {self._costs_passed + 1} of {len(self._designs)}")
        self._actions_cost = bool(state.get("actions_cost", self._config.action_cost_score is None))
