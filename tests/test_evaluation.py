"""Evaluation and film: apart from training, whole episodes, seeds of their own."""

import contextlib
import json

import imageio.v2 as imageio
import numpy as np
import pytest
from tiny_envs import Lengths

from common import evaluation, run_folder, session
from common.config import RunOptions
from common.environment import look_up
from common.evaluation import Evaluation, evaluate, evaluate_both, film, save_video
from common.load_agent import new_agent
from common.presets import PENDULUM
from common.recorder import evaluation_line
from common.results import TIMING_COLUMNS
from companions.OffPolicyAgentTrainer import OffPolicyAgentTrainer
from companions.presets import PENDULUM_TD3_FAST
from PPOAgentTrainer import PPOAgentTrainer


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
    return evaluate(agent.behaviour(), agent.action_map, look_up(env, limit), episodes, deterministic, **options)


def test_evaluating_never_disturbs_training(tiny, eager, tmp_path, capsys):
    tables = []
    for every in (0, 1):
        options = RunOptions(
            name=f"every-{every}", runs_folder=str(tmp_path), evaluate_every=every, evaluation_episodes=3,
            video=False, tensorboard=bool(every), figure=False,
        )  # fmt: skip
        folder = session.run(PPOAgentTrainer, "tiny", tiny.replace(epochs=3, passes=1, minibatch_size=64), options)
        columns = run_folder.read_results(folder)
        tables.append({k: v.tobytes() for k, v in columns.items() if k not in TIMING_COLUMNS})
    assert tables[0] == tables[1]
    assert len(columns["epoch"]) == 3
    assert capsys.readouterr().out.count("evaluation: deterministic") == 3


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
    summaries = evaluate_both(pendulum.behaviour(), pendulum.action_map, look_up("Pendulum-v1", 30), 4)
    assert list(summaries) == ["deterministic", "sampled"]
    deterministic, sampled = summaries.values()
    assert deterministic["returns"] != sampled["returns"]
    expected = play(pendulum, 4, env="Pendulum-v1", limit=30)
    np.testing.assert_allclose(deterministic["returns"], expected.returns, atol=1e-3)
    assert evaluation_line(summaries).startswith(f"deterministic {deterministic['mean']:.1f} [")


def test_scores_do_not_depend_on_how_many_episodes_are_played(pendulum):
    few, many = (play(pendulum, n, env="Pendulum-v1", limit=30).returns for n in (2, 5))
    np.testing.assert_allclose(few, many[:2], rtol=1e-4)


def test_rewards_are_the_environments_own(tiny):
    trainer = PPOAgentTrainer(tiny.replace(reward_design="scaled"))
    plain = PPOAgentTrainer(tiny)
    scores = [play(t.agent, 2, env="Pendulum-v1", limit=20).returns for t in (trainer, plain)]
    np.testing.assert_array_equal(*scores)


def test_a_behaviour_is_a_frozen_copy(tiny, eager):
    trainer = PPOAgentTrainer(tiny.replace(adopt_best=False))
    trainer.train(1)
    behaviour, observations = trainer.agent.behaviour(), np.random.default_rng(0).normal(size=(5, 3))
    before = behaviour.act(observations)
    trainer.train(1)
    np.testing.assert_array_equal(behaviour.act(observations), before)
    assert (trainer.agent.behaviour().act(observations) != before).any()


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


# -- film --


def test_film_returns_a_frame_for_the_start_and_every_step(agent):
    seed = 4  # 5 steps
    frames, score, fps = film(agent.behaviour(), agent.action_map, look_up("tests/Lengths-v0"), seed=seed)
    assert [frame[0, 0, 0] for frame in frames] == [0, 20, 40, 60, 80, 100]
    assert all(frame.shape == (48, 64, 3) and frame.dtype == np.uint8 for frame in frames)
    assert score == 15.0
    assert fps == 20


def test_film_shows_the_first_evaluated_episode(pendulum):
    frames, score, fps = film(pendulum.behaviour(), pendulum.action_map, look_up("Pendulum-v1", 5))
    assert score == pytest.approx(play(pendulum, 1, env="Pendulum-v1", limit=5).returns[0], rel=1e-5)
    assert len(frames) == 6 and fps == 30
    assert frames[0].std() > 0 and (frames[0] != frames[-1]).any()


def some_frames(height=48, width=64):
    return [np.full((height, width, 3), shade, np.uint8) for shade in range(0, 240, 24)]


@pytest.mark.parametrize("size", [(48, 64), (49, 65)])
def test_video_is_an_mp4_that_reads_back(tmp_path, size):
    path = save_video(some_frames(*size), 20, tmp_path / "video.mp4")
    assert path == tmp_path / "video.mp4"
    assert [p.name for p in tmp_path.iterdir()] == ["video.mp4"]
    with imageio.get_reader(path) as reader:
        assert reader.get_meta_data()["fps"] == 20
        frames = [np.asarray(frame) for frame in reader]
    assert len(frames) == 10
    assert abs(frames[0].shape[0] - size[0]) <= 1 and abs(frames[0].shape[1] - size[1]) <= 1
    np.testing.assert_allclose([frame.mean() for frame in frames], range(0, 240, 24), atol=6)


@pytest.mark.parametrize("fails", ["at once", "half-way"])
def test_a_gif_is_written_where_ffmpeg_fails(tmp_path, monkeypatch, fails):
    class Broken:
        def __enter__(self):
            (tmp_path / "video.mp4").write_bytes(b"half")
            return self

        def __exit__(self, *_):
            pass

        def append_data(self, frame):
            raise RuntimeError("no codec")

    def get_writer(*_, **__):
        if fails == "at once":
            raise ImportError("no ffmpeg")
        return Broken()

    monkeypatch.setattr(evaluation.imageio, "get_writer", get_writer)
    path = save_video(some_frames(), 20, tmp_path / "video.mp4")
    assert path == tmp_path / "video.gif"
    assert [p.name for p in tmp_path.iterdir()] == ["video.gif"]
    frames = imageio.mimread(path)
    assert [int(frame[..., 0].mean()) for frame in frames] == pytest.approx([0, 48, 96, 144, 192], abs=2)
    with imageio.get_reader(path) as reader:
        assert reader.get_meta_data()["duration"] == 100  # ms: every second frame of 20 a second


def test_ctrl_c_while_a_film_is_written_stops(tmp_path, monkeypatch):
    class Writer:
        def __enter__(self):
            (tmp_path / "video.mp4").write_bytes(b"half")
            return self

        def __exit__(self, *_):
            raise OSError("ffmpeg heard the Ctrl-C, too")

        def append_data(self, frame):
            raise KeyboardInterrupt

    monkeypatch.setattr(evaluation.imageio, "get_writer", lambda *_, **__: Writer())
    with pytest.raises(KeyboardInterrupt):
        save_video(some_frames(), 20, tmp_path / "video.mp4")
    assert list(tmp_path.iterdir()) == []


def test_a_gif_has_every_frame_at_30_a_second(tmp_path):
    frames = some_frames()
    path = save_video(frames, 50, tmp_path / "video.gif")
    assert path.name == "video.gif"
    film = imageio.mimread(path)
    assert len(film) == len(frames)
    assert imageio.get_reader(path).get_meta_data()["duration"] == pytest.approx(
        1000 / 30, abs=5
    )  # GIFs count in 1/100 s


@pytest.mark.parametrize(
    ("trainer", "config"), [(PPOAgentTrainer, PENDULUM), (OffPolicyAgentTrainer, PENDULUM_TD3_FAST)]
)
def test_a_new_agent_is_the_one_that_training_begins_with(trainer, config):
    observations = np.random.default_rng(0).normal(size=(5, 3)).astype(np.float32)  # [K, S]
    with contextlib.closing(trainer(config)) as begins:
        agents = begins.agent, new_agent(config, begins.environment)
        np.testing.assert_array_equal(*(agent.behaviour().act(observations) for agent in agents))
