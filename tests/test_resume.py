"""A run that was cut off and resumed is the run that was not."""

import numpy as np
import pytest

from common import checkpoint
from common.config import PPOConfig
from common.errors import UserError
from common.results import TIMING_COLUMNS
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
    restart_environments_every=3,
)
CASES = {
    "gymnasium": BASE,
    "one environment": BASE.replace(num_envs=1),
    "envpool": BASE.replace(backend="envpool", num_envs=4),
    "quirks": BASE.replace(restart_each_epoch=True, normalize_advantages="running_std", std="softplus_head"),
}


def rows(trainer: PPOAgentTrainer) -> list[dict[str, object]]:
    return [{k: v for k, v in vars(row).items() if k not in TIMING_COLUMNS} for row in trainer.results]


def same(a: dict[str, np.ndarray], b: dict[str, np.ndarray], but: tuple[str, ...] = ()) -> bool:
    keys = [key for key in a if key not in but]
    return a.keys() == b.keys() and all(np.array_equal(a[key], b[key], equal_nan=True) for key in keys)


def cut_off(config: PPOConfig, after: int) -> checkpoint.State:
    """The state of a run stopped after so many epochs, as a checkpoint on disk would hold it."""
    trainer = PPOAgentTrainer(config)

    class Stop(Exception):
        pass

    def stop(result):
        if result.epoch == after:
            raise Stop

    with pytest.raises(Stop):
        trainer.train(on_epoch=stop)
    state = {name: np.array(array) for name, array in trainer.state().items()}
    trainer.close()
    return state


@pytest.mark.parametrize("case", CASES)
def test_resumed_run_equals_uninterrupted_one(case: str) -> None:
    if case == "envpool":
        pytest.importorskip("envpool")
    whole = PPOAgentTrainer(CASES[case])
    whole.train()
    # 2: before the first restart of the environments, 3: at it, 5: after it with history to repeat.
    for after in (2, 3, 4, 5):
        resumed = PPOAgentTrainer(CASES[case])
        resumed.load_state(cut_off(CASES[case], after))
        assert resumed.epoch == after
        resumed.train(EPOCHS - after)
        assert repr(rows(resumed)) == repr(rows(whole))
        assert same(
            resumed.state(), whole.state(), but=("trainer/seconds", *(f"results/{name}" for name in TIMING_COLUMNS))
        )


def test_cut_off_twice(tmp_path) -> None:
    whole = PPOAgentTrainer(BASE)
    whole.train()
    twice = PPOAgentTrainer(BASE)
    first = PPOAgentTrainer(BASE)
    first.load_state(cut_off(BASE, 2))
    states = {}
    first.train(EPOCHS - 2, lambda row: states.update({row.epoch: first.state()}))
    checkpoint.save(tmp_path, 4, states[4], keep=1)
    twice.load_state(checkpoint.load_newest(tmp_path, pytest.fail)[1])
    twice.train(EPOCHS - 4)
    assert repr(rows(twice)) == repr(rows(whole))


def test_environments_that_do_not_repeat_are_noticed() -> None:
    state = cut_off(BASE, 2)
    state["experience/collector/observations/0"] = state["experience/collector/observations/0"] + 1
    with pytest.raises(UserError, match="did not repeat"):
        PPOAgentTrainer(BASE).load_state(state)
