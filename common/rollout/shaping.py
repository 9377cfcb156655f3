"""The rewards that an agent learns from: a design's, less costs that may grow with the score."""

import math

import numpy as np

from common.config import TrainingConfig, costs_by_score
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
        self._fall = _Cost("fall_cost", config.fall_cost)
        self._action = _Cost("action_cost", config.action_cost)
        if any(self._action.costs) and not isinstance(action_map(environment.action_space), BoxMap):
            raise UserError(
                f"action_cost is a cost of an action's size, and the actions of {environment.id} are choices: give "
                "--action-cost 0"
            )
        self._designs = {
            cost: reward_design(
                config.reward_design, config.reward_factor, environment.most_actions, design, cost,
                environment.action_repeat,
            )
            for cost in self._fall.costs
        }  # fmt: skip

    def follow(self, score: float) -> None:
        """Use the costs from this score on; those of a higher score that was reached stay."""
        self._fall.follow(score)
        self._action.follow(score)

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
        shaped = self._designs[self._fall.now](rewards, terminated, truncated, episode_steps)  # [...]
        if self._action.now:
            sizes = np.abs(np.clip(actions, -1.0, 1.0)).sum(axis=-1)  # [...]
            shaped = shaped - self._action.now * sizes
        return shaped

    def state(self) -> State:
        """What changes while it follows a score."""
        return self._fall.state() | self._action.state()

    def load_state(self, state: State) -> None:
        """Restore what `state` returned.

        Raises:
            ValueError: there is no such cost.
        """
        self._fall.load_state(state)
        self._action.load_state(state)


class _Cost:
    """A cost that may change with the training score; 0 before its first score."""

    def __init__(self, name: str, written: tuple[str, ...]) -> None:
        pairs = costs_by_score(name, written)
        if pairs[0][0] > -math.inf:
            pairs = ((-math.inf, 0.0), *pairs)
        self._name = name
        self._scores, self.costs = zip(*pairs)
        self._passed = 0

    @property
    def now(self) -> float:
        return self.costs[self._passed]

    def follow(self, score: float) -> None:
        reached = sum(score >= least for least in self._scores[1:])
        self._passed = max(self._passed, reached)

    def state(self) -> State:
        return {self._name: np.array(self._passed)} if len(self.costs) > 1 else {}

    def load_state(self, state: State) -> None:
        self._passed = int(state.get(self._name, 0))
        if not 0 <= self._passed < len(self.costs):
            raise ValueError(f"{self._name} {self._passed + 1} of {len(self.costs)}")
