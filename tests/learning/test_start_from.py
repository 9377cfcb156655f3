"""A run that starts from trained weights: what it takes over, what is drawn anew, a line for what does not fit."""

import shutil
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf
from gymnasium.spaces import Box, Discrete
from same_state import assert_same_state
from tiny_envs import PointAtDot, Target

from common import arrays_file
from common.errors import UserError
from common.runs import run_folder
from companions.config import OffPolicyConfig, SACConfig
from companions.OffPolicyAgentTrainer import OffPolicyAgentTrainer
from companions.SACAgentTrainer import SACAgentTrainer
from ppo.config import PPOConfig
from PPOAgentTrainer import PPOAgentTrainer
from programs import shipped

COMMON = dict(env="tests/Target-v0", num_envs=2, epochs=2, steps_per_epoch=64, hidden_sizes=(8, 8), adopt_best=False)
QUICK = COMMON | dict(best_metric="mean_episode_reward", score_window=1)
PPO = PPOConfig(**QUICK, minibatch_size=32, passes=2, learning_rate=1e-2)
OFF = dict(warmup_steps=16, train_every=16, batch_size=8, normalize_observations=True)
pytestmark = pytest.mark.usefixtures("eager_module")
CASES = {
    "ppo": (PPOAgentTrainer, PPO),
    "shared torso": (PPOAgentTrainer, PPO.replace(shared_torso=True)),
    "memory": (PPOAgentTrainer, PPO.replace(memory="gru", memory_size=4)),
    "own networks": (PPOAgentTrainer, PPO.replace(networks="tiny_envs:make_networks", hidden_sizes=(8,))),
    "images": (PPOAgentTrainer, PPO.replace(env="tests/DotAndSign-v0", convolutions=("4x3/2",), hidden_sizes=(8,))),
    "td3": (OffPolicyAgentTrainer, OffPolicyConfig(**QUICK, **OFF)),
    "sac": (SACAgentTrainer, SACConfig(**QUICK, **OFF)),
    "crossq": (SACAgentTrainer, SACConfig(**QUICK, **OFF, crossq=True)),
}


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """One epoch of each case, as a run folder holds it, and its parameters."""
    found = {}
    for name, (kind, config) in CASES.items():
        tf.config.run_functions_eagerly(name != "memory")  # whose layers need graphs
        trainer, folder = kind(config), tmp_path_factory.mktemp("runs") / name.replace(" ", "-")
        trainer.train(1)
        trainer.close()
        folder.mkdir()
        run_folder.write_config(folder, trainer.config, "none")
        trainer.agent.save_weights(folder / run_folder.WEIGHTS)
        found[name] = folder, trainer.agent.parameters()
    tf.config.run_functions_eagerly(True)
    return found


def started(name, trained, make_env=None, **changes):
    """A trainer that has begun, and what it said."""
    kind, config = CASES[name]
    trainer, said = kind(config.replace(start_from=str(trained[name][0]), seed=5, **changes), make_env=make_env), []
    trainer.warn = said.append
    trainer.train(0)
    trainer.close()
    return trainer, [line for line in said if "begin" in line]


@pytest.mark.parametrize("name", CASES)
def test_the_same_spaces_take_all_weights_and_the_normalisation_but_no_optimiser(name, trained):
    trainer, [line] = started(name, trained)
    folder, parameters = trained[name]
    assert line == f"the weights begin as those of {folder}"
    now = trainer.agent.learned_state()
    for key, array in parameters.items():
        np.testing.assert_array_equal(now[key], array, err_msg=key)
    assert all(not array.any() for key, array in now.items() if "adam" in key and array.ndim)  # no momenta


class ThreeDoors(Target):
    action_space = Discrete(3)

    def step(self, action):
        return self._observe(), 0.0, True, False, {}


class ThreeJoints(ThreeDoors):
    action_space = Box(-1.0, 1.0, (3,))


@pytest.mark.parametrize(
    ("name", "make_env", "anew"),
    [
        ("ppo", ThreeDoors, "the heads of the actor"),
        ("ppo", ThreeJoints, "the heads of the actor"),
        ("shared torso", ThreeDoors, "the heads of the network"),
        ("memory", ThreeDoors, "the heads of the actor"),
        ("own networks", ThreeDoors, "the heads of the actor"),
        ("images", PointAtDot, "the heads of the actor"),
        ("td3", ThreeJoints, "the heads of the actor, the critics"),
        ("sac", ThreeJoints, "the heads of the actor, the critics"),
    ],
)
def test_other_actions_keep_the_hidden_layers_and_are_told_in_a_line(name, make_env, anew, trained):
    trainer, [line] = started(name, trained, make_env)
    assert line.endswith(f"; drawn anew: {anew}")
    fresh = CASES[name][0](CASES[name][1].replace(seed=5), make_env=make_env)
    network = "network" if name == "shared torso" else "actor"
    theirs, drawn = trained[name][1], fresh.agent.parameters()
    mine = trainer.agent.parameters()
    fresh.close()
    if f"{network}/0" in mine:
        hidden = {"memory": 7, "images": 6}.get(name, 4)  # arrays
        for i in range(hidden):
            np.testing.assert_array_equal(mine[f"{network}/{i}"], theirs[f"{network}/{i}"])
        np.testing.assert_array_equal(mine[f"{network}/{hidden}"], drawn[f"{network}/{hidden}"])
    else:
        hidden = 2 * 8 + 8 + 8 * 8 + 8
        np.testing.assert_array_equal(mine["actor"][:hidden], theirs["actor"][:hidden])
        np.testing.assert_array_equal(mine["actor"][hidden:], drawn["actor"][hidden:])
        np.testing.assert_array_equal(mine["critics"], drawn["critics"])
    np.testing.assert_array_equal(mine["observations/mean"], theirs["observations/mean"])


@pytest.mark.parametrize(
    ("agent", "kind", "changes"),
    [
        ("walker", PPOAgentTrainer, {"env": "BipedalWalkerHardcore-v3", "num_envs": 2}),
        ("pendulum", SACAgentTrainer, {"num_envs": 1}),
    ],
)
def test_an_agent_that_comes_with_the_project_acts_as_before(agent, kind, changes):
    _, config, _ = shipped.load(shipped.AGENTS / agent)
    small = config.replace(
        backend="gymnasium", steps_per_epoch=1024 if agent == "walker" else 64, start_from=agent, max_episode_steps=50,
        **changes,
    )  # fmt: skip
    trainer, said = kind(small), []
    trainer.warn = said.append
    trainer.train(0)
    trainer.close()
    assert f"agents/{agent}; drawn anew: the critic" in "".join(said).replace("\\", "/")
    seen = arrays_file.read(shipped.AGENTS / agent / shipped.RECORDED)
    own = trainer.agent
    acts = own.action_map(own.acting_policy().act(seen["observations"]))
    np.testing.assert_allclose(acts, seen["actions"], atol=1e-3)


@pytest.mark.parametrize("name", ["ppo", "td3"])
def test_a_resumed_run_needs_its_source_no_more(name, trained, tmp_path):
    kind, config = CASES[name]
    source = shutil.copytree(trained[name][0], tmp_path / "source")
    make = lambda: kind(config.replace(start_from=str(source)))  # noqa: E731
    whole, cut, resumed = make(), make(), make()
    whole.train(2)
    cut.train(1)
    shutil.rmtree(source)
    resumed.load_state({name: np.array(array) for name, array in cut.state().items()})
    resumed.train(1)
    assert_same_state(resumed.state(), whole.state())
    for trainer in (whole, cut, resumed):
        trainer.close()


@pytest.mark.parametrize(
    ("case", "changes", "line"),
    [
        ("ppo", {"start_from": "walkre"}, "expected a run with weights, like runs/NAME, or walker"),
        ("ppo", {"start_from": "pendulum"}, "pendulum was trained by 'sac', not ppo"),
        ("ppo", {"start_from": "walker"}, r"hidden_sizes \[256, 256\].*: give it the same --hidden-sizes"),
        ("ppo", {"activation": "relu"}, "give it the same --activation"),
        ("sac", {"crossq": True, "critics": 2}, "give it the same --crossq"),
        ("td3", {"normalize_observations": False}, "give it the same --normalize-observations"),
        (
            "ppo",  # from an agent of an older version
            {"start_from": "cartpole", "memory": "gru", "hidden_sizes": (64, 64), "normalize_observations": False},
            "with memory none, this run has gru: .* --memory",
        ),
        (
            "own networks",
            {"networks": None},
            "with networks tiny_envs:make_networks, this run has None: .* --networks",
        ),
        (
            "ppo",
            {"env": "Pendulum-v1"},
            "its networks see other observations.*with the same",
        ),
        ("shared torso", {"env": "Pendulum-v1"}, "its networks see other observations"),
        ("td3", {"env": "Pendulum-v1"}, "its networks see other observations"),
    ],
)
def test_what_does_not_fit_is_one_line(case, changes, line, trained):
    kind, config = CASES[case]
    trainer = kind(config.replace(**{"start_from": str(trained[case][0])} | changes))
    with pytest.raises(UserError, match=line) as error:
        trainer.train(0)
    trainer.close()
    assert "\n" not in str(error.value)


def test_a_run_without_weights(trained, tmp_path):
    folder = Path(shutil.copytree(trained["ppo"][0], tmp_path / "new"))
    (folder / run_folder.WEIGHTS).unlink()
    with pytest.raises(UserError, match="expected a run with weights"):
        PPOAgentTrainer(PPO.replace(start_from=str(folder))).train(0)
