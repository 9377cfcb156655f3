"""Transitions over several steps (Sutton & Barto 2018, section 7.1), made of single ones as these come."""

from collections import deque
from collections.abc import Mapping, Sequence

import numpy as np

from common.records import Transitions


class NStepReturns:
    """Joins the steps of each environment into transitions over n of them, or fewer where an episode ends before.

    A transition over m steps has the reward Σ γⁱ·r_{t+i} for i < m, the observation after the m-th, and in place of
    `terminated` 1 − γ^(m − 1)·(1 − terminated): so the target of one step, r + γ·(1 − terminated)·Q', bootstraps with
    γ^m. Steps that lack followers wait, from one epoch to the next, too.

    `steps` is n, and `sizes` are S, numbers of an observation, and A, of an action.
    """

    def __init__(self, steps: int, gamma: float, num_envs: int, sizes: tuple[int, int]) -> None:
        self._steps, self._gamma, self._sizes = steps, gamma, sizes
        self._waiting: list[deque[Transitions]] = [deque() for _ in range(num_envs)]  # single steps, [...] each

    def __call__(self, rows: Transitions, valid: np.ndarray, ended: np.ndarray, first: np.ndarray) -> Transitions:
        """The transitions, any number, that are complete now that the environments took these steps.

        Args:
            rows: single steps, [K, N, ...].
            valid: [K, N] bool; other steps are left out.
            ended: [K, N] bool; after these steps an episode was over, by termination or truncation.
            first: [K, N] bool; these steps began an episode. One before it that did not end was cut off, since its
                environment failed or was built again: it is bootstrapped.
        """
        done: list[Transitions] = []
        for t, n in np.argwhere(valid):
            waiting = self._waiting[n]
            while first[t, n] and waiting:
                done.append(self._joined(waiting))
            waiting.append(Transitions(*(column[t, n] for column in rows)))
            while waiting and (ended[t, n] or len(waiting) == self._steps):
                done.append(self._joined(waiting))
        return self._stacked(done)

    def _joined(self, waiting: deque[Transitions]) -> Transitions:
        """One transition over the m steps that wait; the first of them waits no more."""
        discounts, last = self._gamma ** np.arange(len(waiting)), waiting[-1]  # [m]
        reward = np.asarray(discounts @ [step.rewards for step in waiting])
        bootstrapped = discounts[-1] * (1.0 - last.terminated)
        first = waiting.popleft()
        return Transitions(first.observations, first.actions, reward, 1.0 - bootstrapped, last.next_observations)

    def _stacked(self, transitions: Sequence[Transitions]) -> Transitions:
        """Single transitions side by side, [K, ...]; K may be 0."""
        size, action_size = self._sizes
        shapes = Transitions((size,), (action_size,), (), (), (size,))  # type: ignore[arg-type]
        kinds = Transitions(np.float32, np.float32, np.float64, np.float64, np.float32)  # type: ignore[arg-type]
        columns = zip(*transitions) if transitions else [[]] * len(shapes)
        return Transitions(
            *(np.array(column, kind).reshape(-1, *shape) for column, kind, shape in zip(columns, kinds, shapes))
        )

    # -- state --

    def state(self) -> dict[str, np.ndarray]:
        """The steps that wait, environment by environment, and how many each has, [N]."""
        waiting = self._stacked([step for steps in self._waiting for step in steps])
        return {"counts": np.array([len(steps) for steps in self._waiting], np.int64), **waiting._asdict()}

    def load_state(self, state: Mapping[str, np.ndarray]) -> None:
        """Restore what `state` returned; raises ValueError if it is of other numbers of environments or steps."""
        counts = [int(count) for count in state["counts"]]
        columns = Transitions(*(state[name] for name in Transitions._fields))
        if not all(0 <= count < self._steps for count in counts) or sum(counts) != len(columns.rewards):
            raise ValueError(f"{counts} steps cannot wait for transitions over {self._steps}")
        steps = iter([Transitions(*row) for row in zip(*columns)])
        self._waiting = [deque(next(steps) for _ in range(count)) for count in counts]
