"""Policies that act, with arrays alone: without TensorFlow or Keras.

Updates do not use them: values and log-probabilities come from TensorFlow, in one batch, after collecting. A network
that sees images, or is not a `Network`, is the exception: it acts in TensorFlow, and `ActorCriticPolicy` keeps its
values. Policies whose heads are a `Network` can be pickled, so that worker processes can act too.
"""

from collections.abc import Callable
from typing import Any, Protocol

import numpy as np

from common.nets.network import MAX_LOG_STD, MAX_STD, MIN_LOG_STD, MIN_STD, Network

_MINUS_ONE, _ONE = (np.array(number, np.float32) for number in (-1.0, 1.0))  # converted once, not at every call
Heads = Callable[..., list[np.ndarray]]  # raw observations [n, *shape], perhaps memory → outputs [n, out] or [out]


class Policy(Protocol):
    """Chooses actions for raw observations. Worker processes can use it if its attribute `is_plain` is True.

    One with an attribute `memory_size` above 0 remembers; `InEpisodes` keeps what it remembers of episodes,
    and gives `act` a third argument, the memory [n, Z], which `act` replaces by the next one.
    """

    def act(self, observations: np.ndarray, noise: np.ndarray | None = None) -> np.ndarray:
        """Actions [n, A] for raw observations [n, *shape].

        Standard normal numbers `noise` [n, X] sample them; None takes the deterministic ones.
        """


class SamplingPolicy(Policy, Protocol):
    """A policy that can describe how it samples actions."""

    @property
    def noise(self) -> str:
        """How sampled actions are drawn, in words."""


class InEpisodes:
    """A policy that plays n episodes at once, with what it remembers of each; most policies remember nothing.

    Args:
        memory: [n, Z], which is written to; a number n for n episodes that begin.
    """

    def __init__(self, policy: Policy, memory: np.ndarray | int) -> None:
        if not isinstance(memory, np.ndarray):
            memory = np.zeros((memory, getattr(policy, "memory_size", 0)), np.float32)
        self._policy, self.memory = policy, memory

    def act(self, observations: np.ndarray, noise: np.ndarray | None = None, rows: Any = slice(None)) -> np.ndarray:
        """`Policy.act` in the episodes `rows`, k of the n: actions [k, A] for raw observations [k, *shape]."""
        if not self.memory.size:
            return self._policy.act(observations, noise)
        memory = self.memory[rows]  # [k, Z], a copy where rows are not a slice
        act: Any = self._policy.act  # that of a policy which remembers
        actions = act(observations, noise, memory)
        self.memory[rows] = memory
        return actions

    def forget(self, rows: Any) -> None:
        """The episodes `rows` are over: others begin in their place."""
        self.memory[rows] = 0.0


class _HeadsPolicy:
    """A policy whose outputs come from heads; a `Network` of heads can be sent to worker processes."""

    def __init__(self, heads: Heads) -> None:
        self.heads = heads
        self.is_plain = isinstance(heads, Network)
        self.memory_size = heads.memory_size if isinstance(heads, Network) else 0


class NormalPolicy(_HeadsPolicy):
    """Acts as a Normal policy with two heads: means [n, A], and standard deviations [n, A] or [A]."""

    noise = "drawn from the policy's Normal distribution"

    def mean_and_std(self, observations: np.ndarray, *memory: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Observations [n, S] → mean [n, A], standard deviation [n, A] in [MIN_STD, MAX_STD], or [A]."""
        mean, std = self.heads(observations, *memory)
        return mean, std if std.ndim == 1 else np.clip(std, MIN_STD, MAX_STD)

    def act(self, observations: np.ndarray, noise: np.ndarray | None = None, *memory: np.ndarray) -> np.ndarray:
        """Actions [n, A] for observations [n, S]: mean + std·noise [n, A], or the mean without noise."""
        mean, std = self.mean_and_std(observations, *memory)
        return mean if noise is None else mean + std * noise


class CategoricalPolicy(_HeadsPolicy):
    """Acts as a Categorical policy with one head, logits [n, Σ choices]: `choices` values for each of A dimensions."""

    noise = "drawn from the policy's Categorical distribution"

    def __init__(self, heads: Heads, choices: tuple[int, ...]) -> None:
        super().__init__(heads)
        self.choices = tuple(choices)
        self._cuts = np.cumsum(choices)[:-1]

    def logits(self, observations: np.ndarray, *memory: np.ndarray) -> np.ndarray:
        """Observations [n, S] → logits [n, Σ choices]."""
        [logits] = self.heads(observations, *memory)
        return logits

    def act(self, observations: np.ndarray, noise: np.ndarray | None = None, *memory: np.ndarray) -> np.ndarray:
        """Actions [n, A] for observations [n, S]: whole numbers from 0, as float32; without noise the likeliest.

        −log(−log Φ(noise)) [n, Σ choices] is Gumbel noise. The choice with the largest logit plus Gumbel noise is a
        sample from the softmax (Gumbel 1954).
        """
        scores = self.logits(observations, *memory)  # [n, Σ choices]
        if noise is not None:
            from scipy.special import log_ndtr  # here, because it would double the imports of a worker process

            scores = scores - np.log(-log_ndtr(noise.astype(np.float64)))  # [n, Σ choices]
        parts = np.split(scores, self._cuts, axis=1)
        return np.stack([part.argmax(axis=1) for part in parts], axis=1).astype(np.float32)  # [n, A]


class ActorCriticPolicy:
    """Acts by a network that also returns values, and keeps all that it returned; so none is asked for twice.

    Args:
        network: observations [n, *shape] → the actor's heads, [n, …] each, and then the values [n, 1].
        output_size: all these numbers of an observation, X + 1.
        make_policy: makes a policy of the heads.

    Attributes:
        outputs: [n, X+1] of the last observations acted upon.
    """

    is_plain = False
    outputs: np.ndarray

    def __init__(self, network: Heads, output_size: int, make_policy: Callable[[Heads], Policy]) -> None:
        self.output_size, self._network = output_size, network
        self._policy = make_policy(self._heads)

    def act(self, observations: np.ndarray, noise: np.ndarray | None = None) -> np.ndarray:
        """See `Policy.act`."""
        return self._policy.act(observations, noise)

    def _heads(self, observations: np.ndarray) -> list[np.ndarray]:
        *heads, values = self._network(observations)
        self.outputs = np.concatenate([*heads, values], axis=1)  # [n, X+1]
        return heads


class DeterministicPolicy(_HeadsPolicy):
    """Acts as an actor whose only head is an action in [−1, 1], with or without noise.

    Args:
        std: standard deviation of the noise, in units of half the action range.
    """

    def __init__(self, heads: Heads, std: float) -> None:
        super().__init__(heads)
        self.std = std

    @property
    def noise(self) -> str:
        """How sampled actions are drawn, in words."""
        return f"independent Gaussian noise with a standard deviation of {self.std:g} of half the action range"

    def act(self, observations: np.ndarray, noise: np.ndarray | None = None) -> np.ndarray:
        """Actions [n, A] in [−1, 1] for observations [n, S]: μ + std·noise [n, A], clipped, or μ without noise."""
        [actions] = self.heads(observations)  # [n, A]
        if noise is None:
            return actions
        actions += self.std * noise
        return np.minimum(np.maximum(actions, _MINUS_ONE), _ONE)


class SquashedPolicy(_HeadsPolicy):
    """Acts as tanh of a Normal (arXiv:1801.01290), whose μ and log σ are the only head of an actor, side by side."""

    noise = "drawn from the policy's Normal distribution, before tanh"

    def act(self, observations: np.ndarray, noise: np.ndarray | None = None) -> np.ndarray:
        """Actions [n, A] in [−1, 1] for observations [n, S]: tanh(μ + σ·noise [n, A]), or tanh(μ) without noise."""
        [both] = self.heads(observations)  # [n, 2A]
        mean, log_std = np.split(both, 2, axis=1)  # [n, A], [n, A]
        if noise is not None:
            mean = mean + np.exp(np.clip(log_std, MIN_LOG_STD, MAX_LOG_STD)) * noise  # [n, A]
        return np.tanh(mean)


class WarmUp:
    """Acts by a policy, or at random while `random` is set; `random_actions`: number of actions n → actions [n, A]."""

    def __init__(self, policy: Policy, random_actions: Callable[[int], np.ndarray]) -> None:
        self._policy, self._random_actions = policy, random_actions
        self.random = False

    def act(self, observations: np.ndarray, noise: np.ndarray | None = None) -> np.ndarray:
        """Actions [n, A] for observations [n, S]."""
        if self.random:
            return self._random_actions(len(observations))  # [n, A]
        return self._policy.act(observations, noise)  # [n, A]

    def plain(self, rows: int, num_envs: int) -> tuple[Policy, np.ndarray | None]:
        """The policy, and if they are random the actions [K, N, A] of the next K rows of N environments, else None."""
        if not (self.random and rows):  # the last row's actions may be chosen already
            return self._policy, None
        return self._policy, self._random_actions(rows * num_envs).reshape(rows, num_envs, -1)
