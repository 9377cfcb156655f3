"""Evaluation: apart from training, whole episodes, seeds of their own."""

import contextlib
import json

import numpy as np
import pytest
from gymnasium.spaces import Box
from tiny_envs import Lengths, Unsound

from common.envs.environment import find_environment
from common.envs.spaces import action_map
from common.errors import UserError
from common.records import Timing
from common.rollout import evaluation, playing, validation
from common.rollout.evaluation import Evaluation, evaluate, evaluate_both, evaluation_line, remarks_on
from common.runs import after_training
from companions.OffPolicyAgentTrainer import OffPolicyAgentTrainer
from companions.presets import PENDULUM_TD3_FAST
from ppo.presets import PENDULUM
from PPOAgentTrainer import PPOAgentTrainer
from programs.methods import new_agent


@pytest.fixture
def agent(tiny):
    trainer = PPOAgentTrainer(tiny.replace(env="tests/Lengths-v0", max_episode_steps=None))
    yield trainer.agent
    trainer.close()


@pytest.fixture
def pendulum(tiny):
    trainer = PPOAgentTrainer(tiny)
    yield trainer.agent
    trainer.close()


def play(agent, episodes, deterministic=True, env="tests/Lengths-v0", limit=None, **options):
    return evaluate(
        agent.acting_policy(), agent.action_map, find_environment(env, limit), episodes, deterministic, **options
    )


def test_episodes_are_whole_and_have_seeds_of_their_own(agent):
    Lengths.seeds.clear()
    played = play(agent, 9, seed=100)
    lengths = np.array([Lengths.length(100 + i) for i in range(9)])
    assert Lengths.seeds == list(range(100, 109))  # one reset each: nothing is played twice
    np.testing.assert_array_equal(played.lengths, lengths)
    np.testing.assert_array_equal(played.returns, lengths * (lengths + 1) / 2)  # pays 1, 2, 3, …


def test_evaluation_seeds_are_far_from_those_of_training(agent):
    Lengths.seeds.clear()
    play(agent, 2)
    assert Lengths.seeds == [evaluation.EVALUATION_SEED, evaluation.EVALUATION_SEED + 1]


def test_the_step_limit_holds(pendulum):
    for limit, steps in ((7, 7), (None, 200)):
        assert (play(pendulum, 2, env="Pendulum-v1", limit=limit).lengths == steps).all()


@pytest.mark.parametrize("deterministic", [True, False])
def test_the_same_agent_scores_the_same_twice(pendulum, deterministic):
    one, two = (play(pendulum, 4, deterministic, env="Pendulum-v1", limit=30) for _ in range(2))
    np.testing.assert_array_equal(one.returns, two.returns)
    assert len(set(one.returns)) == 4


def test_sampled_actions_differ_from_deterministic_ones(pendulum):
    summaries = evaluate_both(pendulum.acting_policy(), pendulum.action_map, find_environment("Pendulum-v1", 30), 4)
    assert list(summaries) == ["deterministic", "sampled"]
    deterministic, sampled = summaries.values()
    assert deterministic["returns"] != sampled["returns"]
    expected = play(pendulum, 4, env="Pendulum-v1", limit=30)
    np.testing.assert_allclose(deterministic["returns"], expected.returns, atol=1e-3)
    assert evaluation_line(summaries).startswith(f"deterministic {deterministic['mean']:.1f} [")


def test_small_scores_keep_their_digits():
    summary = Evaluation(np.array([-1.09e-5, -2.3456789e-5, 0.0]), np.array([5, 5, 5])).summary()
    assert summary["returns"] == [-1.09e-5, -2.3456789e-5, 0.0]
    assert evaluation_line({"sampled": summary}) == "sampled -1.15e-05 [-2.35e-05, 0.0]"
    likely = dict(mean=0.955, low=0.9512, high=307.14, episodes=3)
    assert evaluation_line({"sampled": likely}) == "sampled 0.955 [0.951, 307.1]"


def test_rewards_are_the_environments_own(tiny):
    scores = []
    for design in ("unchanged", "scaled"):
        with contextlib.closing(PPOAgentTrainer(tiny.replace(reward_design=design))) as trainer:
            validation_scores = trainer.validator.returns(Timing()).tolist()
            scores.append((after_training.evaluate(trainer, 2), validation_scores))
    assert scores[0] == scores[1]


def test_summary():
    summary = Evaluation(np.array([1.0, 2.0, 3.0, 6.0]), np.array([10, 20, 30, 40])).summary()
    assert {k: summary[k] for k in ("mean", "min", "max", "mean_steps", "episodes", "returns")} == {
        "mean": 3.0, "min": 1.0, "max": 6.0, "mean_steps": 25.0, "episodes": 4, "returns": [1.0, 2.0, 3.0, 6.0],
    }  # fmt: skip
    assert summary["std"] == pytest.approx(np.sqrt((4 + 1 + 0 + 9) / 4))
    assert 1.0 <= summary["low"] < 3.0 < summary["high"] <= 6.0
    json.dumps(summary)
    for alike in ([5.0], [5.0, 5.0]):  # no spread: the interval is the mean
        summary = Evaluation(np.array(alike), np.ones(len(alike))).summary()
        assert summary["low"] == summary["mean"] == summary["high"] == 5.0


# -- in worker processes --


def walk(agent, env="tests/WanderingShort-v0", limit=None, episodes=21, **options):
    """Both kinds at once, in batches of which the last is not full."""
    return evaluate_both(agent.acting_policy(), agent.action_map, find_environment(env, limit), episodes, **options)


def test_scores_do_not_depend_on_the_number_of_processes(agent, pendulum):
    one, two, four = (walk(agent, workers=workers) for workers in (1, 2, 4))
    assert one == two == four
    assert one["deterministic"]["returns"] == one["sampled"]["returns"]  # its walks are the generator's own
    one, two = (walk(pendulum, "Pendulum-v1", 30, workers=workers) for workers in (1, 2))
    assert one == two and one["sampled"]["returns"] != one["deterministic"]["returns"]


def test_many_episodes_are_played_by_as_many_processes_as_there_are_cores(agent, monkeypatch):
    asked = []

    def run(function, items, workers, deaths, tell):
        asked.append((len(items), workers))
        return [function(item) for item in items]

    monkeypatch.setattr(playing.worker_processes, "run_in_workers", run)
    monkeypatch.setattr(playing.worker_processes, "cores", lambda: 3)
    walk(agent, episodes=17)  # 9 batches of 2 or less of each kind
    walk(agent, episodes=16)  # 2 of each: not worth the start
    assert asked == [(18, 3)]


@pytest.mark.parametrize("fault", ["pickle", "start"])
def test_where_no_process_starts_this_one_plays(agent, monkeypatch, fault):
    expected = walk(agent, workers=1)
    environment = find_environment("tests/WanderingShort-v0")
    if fault == "pickle":
        object.__setattr__(environment, "id", Name(environment.id))
    else:
        monkeypatch.setattr(playing.worker_processes, "run_in_workers", start_error)
    found = evaluate_both(agent.acting_policy(), agent.action_map, environment, 21, workers=2)
    assert found == expected


class Name(str):
    def __reduce__(self):
        raise TypeError("not for pickling")


def start_error(*_):
    raise playing.worker_processes.CannotStartError("no more processes")


# -- episodes that do not end by themselves --


def test_a_walk_without_end_is_cut_and_told(agent, monkeypatch):
    for module in (playing, evaluation):
        monkeypatch.setattr(module, "STEP_BOUND", 9)
    summaries = walk(agent, "tests/Wandering-v0", episodes=3)
    for kind in evaluation.KINDS:
        assert summaries[kind]["returns"] == [9.0] * 3
        assert (summaries[kind]["cut_episodes"], summaries[kind]["cut_after_steps"]) == (3, 9)
    line = evaluation_line(summaries)
    assert line.endswith(
        "; 3 of 3 deterministic episodes were cut after 9 steps; 3 of 3 sampled episodes were cut after 9 steps"
    )
    summaries = walk(agent, "tests/Wandering-v0", limit=12, episodes=3)  # a limit of its own holds
    assert summaries["sampled"]["returns"] == [12.0] * 3 and "cut_episodes" not in summaries["sampled"]
    assert ";" not in evaluation_line(summaries)


def test_an_untrained_policy_does_not_walk_for_ever():
    class Aside:  # of the cliff, into the wall
        is_plain = True

        def act(self, observations, noise=None):
            return np.zeros((len(observations), 1), np.float32)

    environment = find_environment("CliffWalking-v1")
    played = evaluate(Aside(), action_map(environment.action_space), environment, 2, deterministic=True)
    assert played.lengths.tolist() == [evaluation.STEP_BOUND] * 2 and played.cut == 2


@pytest.mark.parametrize("workers", [1, 2])
def test_an_environment_that_fails_is_survived(agent, workers):
    played = play(agent, 40, env="tests/Unsound-v0", seed=100, restarts=2, workers=workers)
    np.testing.assert_array_equal(played.returns, np.where(np.arange(40) % 4 == 3, 5.0, 2.0))
    assert len(played.faults) == 30 and played.repeated == 0
    raised, *nan = played.faults[:3]
    assert raised.startswith("RuntimeError: the third step is loose, at tiny_envs.py, line ")
    assert nan == [
        "it returned NaN or infinity as reward in step 3",
        "it returned NaN or infinity as observation in step 3",
    ]
    assert remarks_on("40 episodes", played.incidents()) == [
        f"30 of 40 episodes ended early because the environment failed ({raised})"
    ]


def test_an_episode_in_which_the_environment_failed_is_played_again(agent):
    Unsound.played.clear()
    played = play(agent, 8, env="tests/UnsoundOnce-v0", seed=100, restarts=1)
    assert (played.returns.tolist(), played.repeated, played.faults) == ([5.0] * 8, 6, ())
    assert remarks_on("8 episodes", played.incidents()) == [
        "6 of 8 episodes were played again after the environment failed"
    ]


def test_an_environment_that_always_fails_is_one_line():
    class Still:
        def act(self, observations, noise=None):
            return np.zeros((len(observations), 1), np.float32)

    for env, words in (
        ("tests/Raising-v0", "failed in every episode (RuntimeError: the floor gave way, at tiny_envs.py"),
        ("tests/FaultyReset-v0", "cannot be started"),
        ("tests/FaultyReward-v0", "it returned NaN or infinity as reward in step 40"),
    ):
        with pytest.raises(UserError) as refusal:
            evaluate(Still(), action_map(Box(-1, 1, (1,))), find_environment(env, 50), 3, True, restarts=1)
        assert words in str(refusal.value) and "\n" not in str(refusal.value)
    with pytest.raises(UserError, match="no episode is asked for"):
        evaluate(Still(), action_map(Box(-1, 1, (1,))), find_environment("tests/Target-v0", 50), 0, True)


def test_a_policy_of_nan_is_one_line(agent):
    class Broken:
        def act(self, observations, noise=None):
            return np.full((len(observations), 1), np.nan, np.float32)

    with pytest.raises(UserError, match="the policy returned NaN"):
        evaluate(Broken(), agent.action_map, find_environment("tests/Lengths-v0"), 2, True)


def test_sampled_noise_is_an_episodes_own(pendulum):
    many = play(pendulum, 12, False, env="Pendulum-v1", limit=200)
    later = play(pendulum, 3, False, env="Pendulum-v1", limit=200, seed=evaluation.EVALUATION_SEED + 8)
    np.testing.assert_array_equal(many.returns[8:11], later.returns)


@pytest.mark.parametrize(
    ("trainer", "config"), [(PPOAgentTrainer, PENDULUM), (OffPolicyAgentTrainer, PENDULUM_TD3_FAST)]
)
def test_a_new_agent_is_the_one_that_training_begins_with(trainer, config):
    observations = np.random.default_rng(0).normal(size=(5, 3)).astype(np.float32)  # [K, S]
    with contextlib.closing(trainer(config)) as begins:
        agents = begins.agent, new_agent(config, begins.environment)
        np.testing.assert_array_equal(*(agent.acting_policy().act(observations) for agent in agents))


def test_environments_of_which_few_may_exist_are_played_one_after_another_and_closed(agent):
    opened, closed = [], []

    class Licensed(Lengths):
        """The third one at a time is refused."""

        def __init__(self):
            if len(opened) - len(closed) == 2:
                raise RuntimeError("no third licence")
            super().__init__()
            opened.append(self)

        def close(self):
            closed.append(self)

    environment = find_environment("", 20, None, Licensed)
    alone = evaluate(agent.acting_policy(), agent.action_map, environment, 5, True)
    assert opened and set(opened) == set(closed)
    side_by_side = evaluate(agent.acting_policy(), agent.action_map, find_environment("", 20, None, Lengths), 5, True)
    assert alone.returns.tolist() == side_by_side.returns.tolist()


def test_a_validation_in_which_the_environment_fails_makes_no_parameters_the_best(tiny, eager, monkeypatch):
    """Its episodes end early, which may score more than whole ones."""
    faults = iter([("it broke",), (), ()])

    def played(*_):
        return Evaluation(np.array([5.0, 1.0]), np.array([3, 3]), faults=next(faults))

    monkeypatch.setattr(validation, "validate", played)
    config = tiny.replace(best_metric="validation", validate_from=(0.0,), validate_every=1, epochs=2, adopt_best=False)
    trainer, said = PPOAgentTrainer(config), []
    trainer.warn = said.append
    trainer.train()
    trainer.close()
    assert [row.metric for row in trainer.results] == [pytest.approx(np.nan, nan_ok=True), 3.0]
    assert [bool(row.is_best) for row in trainer.results] == [False, True]
    assert said[-1] == "warning: validation episodes failed, so these parameters cannot be the best"
