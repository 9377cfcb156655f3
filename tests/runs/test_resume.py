"""A run that was cut off and resumed is the run that was not."""

import functools
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest

from common.errors import UserError
from common.results import TIMING_COLUMNS
from common.runs import checkpoint, session
from common.state import State, part_of
from companions.config import OffPolicyConfig
from companions.OffPolicyAgentTrainer import OffPolicyAgentTrainer
from ppo.config import PPOConfig
from PPOAgentTrainer import PPOAgentTrainer

EPOCHS = 7
BASE = PPOConfig(
    env="BipedalWalker-v3",
    max_episode_steps=40,  # ends of both kinds within an epoch
    reward_design="outcome_bonus",
    backend="gymnasium",
    num_envs=2,
    epochs=EPOCHS,
    steps_per_epoch=128,
    minibatch_size=64,
    passes=1,
    hidden_sizes=(8,),
)
WAYS = {  # how environments are brought back; see `common.rollout.repeatable`
    "a new environment an episode": "rebuilt",
    "one environment": "rebuilt",
    "seeded episodes": "episodes",
    "processes": "episodes",
    "as many resets": "resets",
    "all actions": "history",
    "quirks": "rebuilt",
    "rounded products": "rebuilt",
    "quirk and all actions": "history",
    "a memory": "rebuilt",
}
CASES = {
    "a new environment an episode": BASE,
    "one environment": BASE.replace(num_envs=1),
    "seeded episodes": BASE.replace(
        env="Pendulum-v1",
        best_metric="validation",
        validate_every=3,
        validate_from=(0.0,),
        validation_episodes=2,
    ),  # its standard deviation decays from epoch 4 on; the best score, which a checkpoint holds, decides
    "processes": BASE.replace(env="Pendulum-v1", backend="processes"),
    "as many resets": BASE.replace(backend="envpool", num_envs=4),
    "all actions": BASE.replace(env="LunarLanderContinuous-v3", backend="envpool", num_envs=16, steps_per_epoch=320),
    "quirk and all actions": BASE.replace(
        env="LunarLanderContinuous-v3", backend="envpool", num_envs=4, quirks=("restart_at_epoch_end",)
    ),
    "quirks": BASE.replace(quirks=("restart_at_epoch_end",), normalize_advantages="running_std", initial_std=None),
    "rounded products": BASE.replace(precision="bfloat16", hidden_sizes=(32, 32)),
    "a memory": BASE.replace(memory="lstm", memory_size=8, sequence_length=12, reused_trajectories=1),
}
XLA = pytest.mark.xla
TIMES = tuple(f"results/{name}" for name in TIMING_COLUMNS)


def rows(trainer: PPOAgentTrainer) -> list[dict[str, object]]:
    return [{k: v for k, v in vars(row).items() if k not in TIMING_COLUMNS} for row in trainer.results]


def same(a: dict[str, np.ndarray], b: dict[str, np.ndarray], but: tuple[str, ...] = ()) -> bool:
    keys = [key for key in a if key not in but]
    return a.keys() == b.keys() and all(np.array_equal(a[key], b[key], equal_nan=True) for key in keys)


def copied(trainer: PPOAgentTrainer) -> State:
    """Its state, as a checkpoint on disk would hold it."""
    return {name: np.array(array) for name, array in trainer.state().items()}


class Whole(NamedTuple):
    """A run that was not cut off."""

    way: str
    rows: list[dict[str, object]]
    state: State
    states: dict[int, State]  # after every epoch


@functools.cache
def whole(case: str) -> Whole:
    """Trained once for all tests of a case."""
    if CASES[case].backend == "envpool":
        pytest.importorskip("envpool")
    trainer, states = PPOAgentTrainer(CASES[case]), {}
    trainer.train(on_epoch=lambda row: states.update({row.epoch: copied(trainer)}))
    trainer.close()
    return Whole(trainer.collector.envs.record.way, rows(trainer), copied(trainer), states)


@pytest.mark.parametrize("case", [pytest.param(c, marks=XLA) if c == "rounded products" else c for c in CASES])
def test_resumed_run_equals_uninterrupted_one(case: str, request) -> None:
    if case not in ("rounded products", "a memory"):  # which have to be compiled
        request.getfixturevalue("eager")
    expected = whole(case)
    assert expected.way == WAYS[case]
    # The first state is loaded into a new trainer, and each that follows into a trainer that went elsewhere.
    resumed = PPOAgentTrainer(CASES[case])
    # With a history, parts of the environments are built again after epochs 1 to 4 by turns, and again from 5 on.
    for after in (1, 6, 4) if expected.way == "history" else (6, 4):
        resumed.load_state(expected.states[after])
        assert resumed.epoch == after
        resumed.train(EPOCHS - after)
        assert repr(rows(resumed)) == repr(expected.rows)
        assert same(resumed.state(), expected.state, but=("trainer/seconds", *TIMES))
    resumed.close()


@pytest.mark.parametrize("case", ["a new environment an episode", "as many resets"])
def test_a_checkpoint_holds_the_actions_of_running_episodes_alone(case: str, eager) -> None:
    config, state = CASES[case], part_of(whole(case).states[3], "experience/collector")
    assert (state["steps"] <= config.max_episode_steps).all()
    assert state["actions"].shape == (state["steps"].sum(), 4)
    running = ~state["ended"]
    np.testing.assert_array_equal(state["steps"][running], state["episode_steps"][running])
    assert (state["episodes"] >= 3 * config.steps_per_epoch // config.num_envs // 41 - 1).all()


def test_cut_off_twice(tmp_path, eager) -> None:
    expected, again = whole("seeded episodes"), {}
    first = PPOAgentTrainer(CASES["seeded episodes"])
    first.load_state(expected.states[2])
    first.train(EPOCHS - 2, lambda row: again.update({row.epoch: copied(first)}))
    checkpoint.save(tmp_path, 4, again[4], keep=1)
    first.load_state(checkpoint.load_newest(tmp_path, pytest.fail)[1])
    first.train(EPOCHS - 4)
    assert repr(rows(first)) == repr(expected.rows)
    other = {name: array.copy() for name, array in again[4].items()}
    other["experience/collector/observations/0"] += 1
    with pytest.raises(UserError, match="did not repeat") as refusal:
        first.load_state(other)
    assert "\n" not in str(refusal.value)
    first.close()


@pytest.mark.parametrize("content", [b"", b"{", b"[" * 100_000, bytes(range(128, 256))])
def test_a_copy_of_the_settings_that_cannot_be_read_counts_as_none(content: bytes) -> None:
    assert checkpoint.settings_of({checkpoint.SETTINGS: np.frombuffer(content, np.uint8)}) is None


FORGED = {  # name of an array → a value that it cannot have
    "hyperparameters/passes": np.float64(1e300),
    "results/seconds": np.full(2, np.nan),
    "experience/collector/episodes": np.full(2, 2**62),  # which would be counted up to
    "experience/collector/steps": np.full(2, 3),
    "trainer/untrained": np.int64(2**62),
    "replay/position": np.int64(-1),
}


@pytest.mark.parametrize("method", ["PPO", "TD3"])
def test_arrays_that_do_not_fit_are_refused_in_one_line(method: str, tmp_path: Path) -> None:
    small = dict(env="Pendulum-v1", max_episode_steps=20, backend="gymnasium", num_envs=2, hidden_sizes=(8,), epochs=9)
    if method == "PPO":
        make, config = PPOAgentTrainer, PPOConfig(**small, steps_per_epoch=64, minibatch_size=32, memory="gru")
    else:
        make = OffPolicyAgentTrainer
        config = OffPolicyConfig(**small, steps_per_epoch=64, batch_size=8, warmup_steps=32, train_every=8)
    trainer, other = make(config), make(config)
    trainer.train(2)
    state = copied(trainer)
    strange = {name: np.full((3, 3, 3), 2, array.dtype) for name, array in state.items()}
    texts = {name: np.full(array.shape, "x") for name, array in state.items()}
    forged = {name: array for name, array in FORGED.items() if name in state}
    for wrong in (strange, texts, forged):
        for name in wrong:
            with pytest.raises(UserError, match="does not fit") as refusal:
                session.restore_checkpoint(other, tmp_path, 2, state | {name: wrong[name]})
                pytest.fail(f"{name} was taken")
            assert "\n" not in str(refusal.value)
    other.close()
    other = make(config)
    session.restore_checkpoint(other, tmp_path, 2, state)
    other.train(1)
    trainer.close()
    other.close()
