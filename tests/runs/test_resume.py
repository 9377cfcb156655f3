"""A run that was cut off and resumed is the run that was not."""

from pathlib import Path

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
    reward_design="ends_told_apart",
    backend="gymnasium",
    num_envs=2,
    epochs=EPOCHS,
    steps_per_epoch=128,
    minibatch_size=32,
    passes=2,
    hidden_sizes=(8,),
    restart_environments_every=4,
)
WAYS = {  # how environments are brought back; see `common.rollout.repeatable`
    "a new environment an episode": "rebuilt",
    "one environment": "rebuilt",
    "seeded episodes": "episodes",
    "processes": "episodes",
    "as many resets": "resets",
    "all actions": "history",
    "quirks": "rebuilt",
    "quirk and all actions": "history",
}
CASES = {
    "a new environment an episode": BASE,
    "one environment": BASE.replace(num_envs=1),
    "seeded episodes": BASE.replace(env="Pendulum-v1"),
    "processes": BASE.replace(env="Pendulum-v1", backend="processes"),
    "as many resets": BASE.replace(backend="envpool", num_envs=4),
    "all actions": BASE.replace(env="LunarLanderContinuous-v3", backend="envpool", num_envs=16, steps_per_epoch=320),
    "quirk and all actions": BASE.replace(
        env="LunarLanderContinuous-v3", backend="envpool", num_envs=4, restart_each_epoch=True
    ),
    "quirks": BASE.replace(restart_each_epoch=True, normalize_advantages="running_std", std="softplus_head"),
}


def rows(trainer: PPOAgentTrainer) -> list[dict[str, object]]:
    return [{k: v for k, v in vars(row).items() if k not in TIMING_COLUMNS} for row in trainer.results]


def same(a: dict[str, np.ndarray], b: dict[str, np.ndarray], but: tuple[str, ...] = ()) -> bool:
    keys = [key for key in a if key not in but]
    return a.keys() == b.keys() and all(np.array_equal(a[key], b[key], equal_nan=True) for key in keys)


def copied(trainer: PPOAgentTrainer) -> State:
    """Its state, as a checkpoint on disk would hold it."""
    return {name: np.array(array) for name, array in trainer.state().items()}


def trained_with_states(config: PPOConfig) -> tuple[PPOAgentTrainer, dict[int, State]]:
    """A whole run, and its states after every epoch."""
    whole, states = PPOAgentTrainer(config), {}
    whole.train(on_epoch=lambda row: states.update({row.epoch: copied(whole)}))
    return whole, states


@pytest.mark.parametrize("case", CASES)
def test_resumed_run_equals_uninterrupted_one(case: str) -> None:
    config = CASES[case]
    if config.backend == "envpool":
        pytest.importorskip("envpool")
    whole, states = trained_with_states(config)
    assert whole.experience.way == WAYS[case]
    # With a history, parts of the environments are built again after epochs 1 to 4 by turns, and again from 5 on.
    for after in (1, 4, 6):
        resumed = PPOAgentTrainer(config)
        resumed.load_state(states[after])
        assert resumed.epoch == after
        resumed.train(EPOCHS - after)
        assert repr(rows(resumed)) == repr(rows(whole))
        assert same(
            resumed.state(), whole.state(), but=("trainer/seconds", *(f"results/{name}" for name in TIMING_COLUMNS))
        )
        resumed.close()
    whole.close()


@pytest.mark.parametrize("case", ["a new environment an episode", "as many resets"])
def test_a_checkpoint_holds_the_actions_of_running_episodes_alone(case: str) -> None:
    if case == "as many resets":
        pytest.importorskip("envpool")
    config = CASES[case]
    trainer = PPOAgentTrainer(config)
    trainer.train(3)
    state = part_of(trainer.state(), "experience/collector")
    assert (state["steps"] <= config.max_episode_steps).all()
    assert state["actions"].shape == (state["steps"].sum(), 4)
    running = ~state["ended"]
    np.testing.assert_array_equal(state["steps"][running], state["episode_steps"][running])
    assert (state["episodes"] >= 3 * config.steps_per_epoch // config.num_envs // 41 - 1).all()
    trainer.close()


def test_cut_off_twice(tmp_path) -> None:
    config = CASES["seeded episodes"]
    whole, states = trained_with_states(config)
    twice = PPOAgentTrainer(config)
    first = PPOAgentTrainer(config)
    first.load_state(states[2])
    again = {}
    first.train(EPOCHS - 2, lambda row: again.update({row.epoch: first.state()}))
    checkpoint.save(tmp_path, 4, again[4], keep=1)
    twice.load_state(checkpoint.load_newest(tmp_path, pytest.fail)[1])
    twice.train(EPOCHS - 4)
    assert repr(rows(twice)) == repr(rows(whole))
    for trainer in (whole, first, twice):
        trainer.close()


def test_environments_that_do_not_repeat_are_noticed() -> None:
    trainer = PPOAgentTrainer(CASES["seeded episodes"])
    trainer.train(2)
    state = copied(trainer)
    state["experience/collector/observations/0"] = state["experience/collector/observations/0"] + 1
    with pytest.raises(UserError, match="did not repeat") as refusal:
        trainer.load_state(state)
    assert "\n" not in str(refusal.value)
    trainer.close()


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
        make, config = PPOAgentTrainer, PPOConfig(**small, steps_per_epoch=64, minibatch_size=32)
    else:
        make = OffPolicyAgentTrainer
        config = OffPolicyConfig(**small, steps_per_epoch=64, batch_size=8, warmup_steps=32, train_every=8)
    trainer, other = make(config), make(config)
    trainer.train(2)
    state = copied(trainer)
    strange = {name: np.full((3, 3, 3), 2, array.dtype) for name, array in state.items()}
    texts = {name: np.full(array.shape, "x") for name, array in state.items()}
    forged = {name: array for name, array in FORGED.items() if name in state}
    harmless = {"experience/episodes/recent", "experience/episodes/recent_shaped"}  # a window that fills again
    for wrong in (strange, texts, forged):
        for name in wrong.keys() - harmless:
            with pytest.raises(UserError, match="does not fit") as refusal:
                session.take_up(other, tmp_path, 2, state | {name: wrong[name]})
                pytest.fail(f"{name} was taken")
            assert "\n" not in str(refusal.value)
    other.close()
    other = make(config)
    session.take_up(other, tmp_path, 2, state)
    other.train(1)
    trainer.close()
    other.close()
