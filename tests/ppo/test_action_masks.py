"""Action masks: choices that are forbidden have probability 0 everywhere, and whoever heeds them learns."""

import re
import sys
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf
import tiny_envs
from gymnasium.spaces import Box, Discrete, MultiBinary, MultiDiscrete
from same_state import assert_same_state, resumed_and_whole
from scipy.special import log_softmax
from tiny_envs import Doors

from Agent import Agent
from common.config import TrainingConfig
from common.envs.action_masks import action_mask, first_allowed
from common.envs.environment import environment_of, find_environment
from common.envs.spaces import choices
from common.errors import UserError
from common.nets import distributions
from common.rollout import evaluation, policy_file
from common.rollout.probe import find_restore_method
from common.user_code import WrongReturnError
from ppo.config import PPOConfig
from PPOAgentTrainer import PPOAgentTrainer
from programs import policy_files

SPACES = {"Discrete": Discrete(4, start=3), "MultiDiscrete": MultiDiscrete([3, 2, 4]), "MultiBinary": MultiBinary(3)}
CONFIG = PPOConfig(
    env="tests/Doors-v0", action_masks=True, num_envs=4, epochs=6, steps_per_epoch=512, minibatch_size=128, passes=6,
    hidden_sizes=(16,), learning_rate=1e-2, gamma=0.9, environment_restarts=0, best_metric="mean_episode_reward",
    adopt_best=False,
)  # fmt: skip


# -- what an environment says --


class Says(Doors):
    def __init__(self, space):
        super().__init__()
        self.action_space = space


@pytest.mark.parametrize(
    ("space", "given", "found"),
    [
        (Discrete(3), np.array([1, 0, 1], np.int8), "101"),
        (Discrete(3), [True, False, False], "100"),
        (MultiDiscrete([2, 3]), (np.array([1, 0]), np.array([0, 1, 1])), "10011"),  # as Gymnasium's `sample` takes it
        (MultiDiscrete([2, 2]), np.array([[1, 0], [0, 1]]), "1001"),
        (MultiBinary(2), np.array([1, 0, 1, 1], bool), "1011"),
    ],
)
def test_a_mask_is_one_number_for_each_choice(space, given, found):
    mask = action_mask(Says(space), {"action_mask": given})
    assert mask.dtype == bool and "".join(map(str, mask.astype(int))) == found


@pytest.mark.parametrize("given", [[1, 0], [1, 0, 2], [np.nan, 1, 1], 3, ["a", "b", "c"], [[1], [0, 1]] * 2])
def test_anything_else_is_refused_in_a_line(given):
    with pytest.raises(WrongReturnError, match="expected 3 numbers of 0 or 1"):
        action_mask(Says(Discrete(3)), {"action_mask": given})


def test_only_the_end_of_an_episode_may_allow_nothing():
    env, given = Says(MultiDiscrete([2, 2])), {"action_mask": np.array([1, 0, 0, 0])}
    with pytest.raises(WrongReturnError, match="allows nothing in action dimension 2 of 2"):
        action_mask(env, given)
    assert action_mask(env, given, is_over=True).all()
    env.action_masks = lambda: 1 / 0  # nothing is left to choose from
    assert action_mask(env, {}, is_over=True).all()


def test_the_check_before_training_takes_the_first_action_that_is_allowed():
    assert first_allowed(np.array([0, 1, 1, 0, 1]), MultiDiscrete([3, 2])).tolist() == [1, 1]
    find_environment("tests/Doors-v0", action_masks=True).check()  # a closed door would raise


def test_an_environment_whose_observations_carry_the_mask():
    for env_id in ("tests/Doors-v0", "tests/DoorsByMethod-v0"):
        env = find_environment(env_id, action_masks=True).make()
        observation, _ = env.reset(seed=0)
        assert observation.tolist() == [1, 0, 0, 0, 0, 0, 0, 0, 1, 0, 1, *[0] * 34]
        assert env.observation_space.contains(observation) and env.step(5)[0][:2].tolist() == [0, 1]


# -- the policy --


def agent(kind: str, **changes) -> Agent:
    space = SPACES[kind]
    config = CONFIG.replace(hidden_sizes=(8,), initial_gains=(2**0.5, 2.0), **changes)
    one = Agent(Box(-9, 9, (5 + sum(choices(space)),)), space, config, seed=1)
    one.observe(observed(one, 64))
    return one


def observed(one: Agent, rows: int) -> np.ndarray:
    """Observations of five numbers, and masks that allow something: [rows, 5 + Σ choices]."""
    rng = np.random.default_rng(rows)
    masks = rng.integers(2, size=(rows, one.mask_size))
    masks[:, np.cumsum((0, *one.choices[:-1]))] = 1
    return np.append(rng.normal(3, 2, (rows, 5)), masks, axis=1).astype(np.float32)


@pytest.mark.parametrize("shared_torso", [False, True])
@pytest.mark.parametrize("kind", SPACES)
def test_what_is_forbidden_has_probability_0(kind, shared_torso):
    one = agent(kind, shared_torso=shared_torso)
    raw, cuts = observed(one, 50), np.cumsum(one.choices)[:-1]
    masks = np.split(raw[:, 5:] > 0, cuts, axis=1)
    policy, others = one.policy(one.normalize(raw)), one.policy(one.normalize(raw[::-1].copy()))
    probabilities = policy.probs_parameter().numpy()  # [50, A, most]
    for i, mask in enumerate(masks):
        assert (probabilities[:, i, : mask.shape[1]][~mask] == 0).all()
    free = raw.copy()
    free[:, 5:] = 1
    logits = np.split(np.where(raw[:, 5:] > 0, one.acting_policy().logits(free), -np.inf), cuts, axis=1)
    with np.errstate(invalid="ignore"):
        logs = [log_softmax(part.astype(float), axis=1) for part in logits]
        expected = sum(-np.nansum(np.exp(part) * part, axis=1) for part in logs)
    np.testing.assert_allclose(distributions.entropy(policy), expected, atol=1e-5)
    actions = one.acting_policy().act(raw, np.random.default_rng(0).standard_normal((50, one.mask_size)))
    chosen = sum(part[np.arange(50), actions[:, i].astype(int)] for i, part in enumerate(logs))
    np.testing.assert_allclose(distributions.log_prob(policy, actions), chosen, atol=1e-5)
    with tf.GradientTape() as tape:
        again = one.policy(one.normalize(raw))
        loss = tf.reduce_sum(distributions.entropy(again) + distributions.kl_divergence(policy, again))
    gradients = tape.gradient(loss, one.actor.trainable_variables)
    assert np.isfinite(distributions.kl_divergence(policy, others)[0]) and all(np.isfinite(g).all() for g in gradients)
    np.testing.assert_array_equal(one.values(raw), one.values(free))  # the networks do not see the mask


@pytest.mark.parametrize("kind", SPACES)
def test_nothing_forbidden_is_drawn_or_chosen_by_the_agent_its_file_and_its_exports(kind, tmp_path):
    one = agent(kind)
    raw = observed(one, 500)
    policy_file.write(tmp_path / "policy.npz", one.acting_policy())
    read = policy_file.read(tmp_path / "policy.npz")
    noise = np.random.default_rng(1).standard_normal((500, one.action_map.noise_size))
    np.testing.assert_array_equal(read.act(raw, noise), one.acting_policy().act(raw, noise))
    starts = np.cumsum((0, *one.choices[:-1]))
    for actions in (read.act(raw), read.act(raw, noise)):
        assert (np.take_along_axis(raw[:, 5:], (starts + actions).astype(int), axis=1) == 1).all()
    policy_files.export(one, tmp_path / "export", onnx=True)
    for name, load in policy_files.READ.items():
        act = load(tmp_path / "export" / name)
        np.testing.assert_array_equal(act(raw), one.action_map(one.acting_policy().act(raw)))


# -- training --


def score(trainer: PPOAgentTrainer, deterministic: bool) -> float:
    played = evaluation.evaluate(
        trainer.agent.acting_policy(), trainer.agent.action_map, trainer.environment, 20, deterministic
    )
    return played.returns.mean()


def test_two_of_forty_doors_are_open():
    """A closed door raises here, and a failure ends the run: none is ever chosen."""
    trainer = PPOAgentTrainer(CONFIG.replace(env="tests/DoorsByMethod-v0"))
    assert find_restore_method(trainer.environment, "gymnasium", trainer.agent.action_map) == "episodes"
    trainer.train()
    assert trainer.results[0].entropy < np.log(2) + 1e-3  # of two choices
    assert score(trainer, True) == 5 and score(trainer, False) > 4
    trainer.close()


def test_512_steps_are_enough_with_the_mask_and_not_without():
    for action_masks in (True, False):
        trainer = PPOAgentTrainer(CONFIG.replace(env="tests/LooseDoors-v0", action_masks=action_masks, epochs=1))
        trainer.train()
        assert score(trainer, True) == 5 if action_masks else score(trainer, True) <= 2
        trainer.close()


def test_the_bins_of_the_page_are_filled():
    page = (Path(__file__).resolve().parents[2] / "docs" / "action-masks.md").read_text(encoding="utf-8")
    [code] = re.findall(r'^```python title="bins.py"\n(.*?)^```', page, re.MULTILINE | re.DOTALL)
    page_module: dict = {}
    exec(compile(code, "bins.py", "exec"), page_module)  # the project's own page
    trainer = PPOAgentTrainer(CONFIG.replace(epochs=2), make_env=page_module["Bins"])
    trainer.train()
    assert score(trainer, True) > 9
    trainer.close()


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"backend": "processes", "shards": 2},
        {"objective": "clip+kl"},
        {"networks": "tiny_envs:make_networks"},
    ],
    ids=str,
)
def test_a_resumed_run_is_the_same_to_the_byte(changes, eager):
    small = CONFIG.replace(steps_per_epoch=64, minibatch_size=32, passes=2, epochs=3, **changes)
    resumed, whole, _ = resumed_and_whole(lambda: PPOAgentTrainer(small), 1, 3)
    assert_same_state(resumed.state(), whole.state())


# -- mistakes --


@pytest.mark.parametrize(
    ("how", "line"),
    [
        ("closed", "<Doors<tests/LooseDoors-v0>> allows nothing: expected a 1 or more"),
        ("short", "expected 40 numbers of 0 or 1"),
        ("nothing", "<Doors<tests/LooseDoors-v0>> has no info['action_mask'] and no method action_masks()"),
    ],
)
def test_a_wrong_mask_is_a_line_that_names_the_environment(how, line, eager):
    trainer = PPOAgentTrainer(CONFIG.replace(env="tests/LooseDoors-v0", env_kwargs={"how": how}))
    with pytest.raises(UserError) as error:
        trainer.train()
    trainer.close()
    assert line in str(error.value) and "tests/LooseDoors-v0" in str(error.value) and "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("changes", "line"),
    [
        ({"env": "CartPole-v1"}, "CartPole-v1.* no method action_masks"),
        ({"env": "Pendulum-v1"}, "Pendulum-v1 has Box actions: leave it out"),
        ({"env": "tests/Dot-v0"}, "tests/Dot-v0 shows images alone: leave it out"),
        ({"symmetry": True}, "does not go with symmetry"),
        ({"action_repeat": (1, 2)}, "does not go with action_repeat"),
    ],
)
def test_where_there_can_be_no_mask(changes, line):
    with pytest.raises(UserError, match=line):
        config = CONFIG.replace(**changes)
        environment_of(config).check()


@pytest.mark.parametrize("mask", [None, "yes", [1, 1, 0.5], np.zeros(3)])
def test_what_is_no_mask_does_not_matter_where_none_is_asked_for(mask):
    class Other(tiny_envs.Plain):
        action_space = Discrete(3)

        def reset(self, **options):
            return np.zeros(2, np.float32), {"action_mask": mask}

    assert find_environment("", maker=Other).check() == ()
    with pytest.raises(UserError, match=r"action mask|no info"):
        find_environment("", maker=Other, action_masks=True).check()


def test_a_method_that_ends_the_program_is_a_line():
    class Leaving(tiny_envs.Plain):
        action_space = Discrete(3)

        def action_masks(self):
            sys.exit()

    with pytest.raises(UserError, match=r"SystemExit.*, in action_masks"):
        find_environment("", maker=Leaving).check()


def test_who_has_a_mask_and_does_not_use_it_is_told(eager, capsys):
    PPOAgentTrainer(CONFIG.replace(env="tests/LooseDoors-v0", action_masks=False)).close()
    assert "it says which actions are allowed; with --action-masks no others are taken" in capsys.readouterr().out


def test_methods_of_continuous_actions_have_no_such_setting():
    assert TrainingConfig.action_masks is False and "action_masks" not in vars(TrainingConfig())
