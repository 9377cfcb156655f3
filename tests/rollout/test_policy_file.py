"""Policies as files of plain arrays: the same actions when read again, and one line for a file that is none."""

import json

import numpy as np
import pytest

from common.arrays_file import packed
from common.envs.mirrors import Entries, Sides
from common.errors import UserError
from common.nets.network import UNCHANGED, Constant, Dense, Network, Normalizer
from common.rollout import policy_file
from common.rollout.policies import CategoricalPolicy, DeterministicPolicy, NormalPolicy, SquashedPolicy

RNG = np.random.default_rng(0)
NORMALIZE = Normalizer(np.array([1, -2, 3], np.float32), np.array([0.5, 2, 1], np.float32))
MIRROR = Entries((-1, 3, 2), (0.0, 0.1, -0.1))


def dense(inputs, outputs, activation):
    kernel, bias = RNG.standard_normal((inputs, outputs)), RNG.standard_normal(outputs)
    return Dense(kernel.astype(np.float32), bias.astype(np.float32), activation)


HIDDEN = dense(3, 8, "tanh"), dense(8, 5, "relu")
MEAN, STD, LOGITS = dense(5, 2, "linear"), dense(5, 2, "softplus"), dense(5, 7, "linear")
ACTION = MEAN._replace(activation="tanh")
BOTH = Dense(np.ones((5, 4), np.float32), np.zeros(4, np.float32), "linear")
SWAPPED = Sides(MIRROR, Entries((2, 1)), 0.3)
POLICIES = {
    "Normal": NormalPolicy(Network(NORMALIZE, HIDDEN, (MEAN, STD))),
    "Normal with one spread": NormalPolicy(Network(UNCHANGED, HIDDEN, (MEAN, Constant(np.float32([0.3, 2]))))),
    "Normal in a mirror": NormalPolicy(
        Network(NORMALIZE, HIDDEN, (MEAN, STD), (SWAPPED, Sides(MIRROR, Entries((2, 1)), 0.3)))
    ),
    "Categorical": CategoricalPolicy(Network(NORMALIZE, HIDDEN, (LOGITS,)), (3, 4)),
    "deterministic": DeterministicPolicy(Network(UNCHANGED, HIDDEN, (ACTION,)), 0.1),
    "deterministic in a mirror": DeterministicPolicy(Network(NORMALIZE, HIDDEN, (ACTION,), (SWAPPED,)), 0.2),
    "squashed": SquashedPolicy(Network(NORMALIZE, HIDDEN, (BOTH,))),
}
NOISE = {"Categorical": 7}


@pytest.mark.parametrize("name", POLICIES)
def test_a_policy_read_again_acts_the_same_with_and_without_noise(name, tmp_path):
    policy, path = POLICIES[name], tmp_path / "policy.npz"
    policy_file.write(path, policy)
    again = policy_file.read(path)
    assert type(again) is type(policy) and again.noise == policy.noise and again.is_plain
    observations = 3 * RNG.standard_normal((20, 3)).astype(np.float32)
    noise = RNG.standard_normal((20, NOISE.get(name, 2))).astype(np.float32)
    for drawn in (None, noise):
        np.testing.assert_array_equal(again.act(observations, drawn), policy.act(observations, drawn))
    assert np.abs(policy.act(observations, noise) - policy.act(observations)).max() > 0.01


def changed(layout=None, without=(), **arrays):
    """The arrays of a policy with other ones, named like hidden_1_kernel, or another layout."""
    own = policy_file.to_arrays(POLICIES["Normal"])
    said = json.loads(own["layout"].tobytes()) | (layout or {})
    own["layout"] = np.frombuffer(json.dumps(said).encode(), np.uint8)
    own |= {name.replace("_", "/"): np.asarray(array, np.float32) for name, array in arrays.items()}
    return {name: array for name, array in own.items() if name not in without}


FAULTS = {
    "no layout": (changed(without=["layout"]), "it holds no policy"),
    "a newer format": (changed({"format": 2}), "has format 2, this code reads up to 1"),
    "no format": (changed({"format": "x"}), "does not say what its arrays are"),
    "another kind": (changed({"kind": "magic"}), "KeyError"),
    "an unknown activation": (changed({"hidden": ["tanh", "snake"]}), "unknown here, 'snake'"),
    "a layer is missing": (changed(without=["hidden/1/kernel"]), "KeyError"),
    "layers that do not fit": (changed(hidden_1_kernel=np.ones((9, 5))), "its layers do not fit together"),
    "a bias that does not fit": (changed(head_0_bias=np.ones(3)), "its layers do not fit together"),
    "a normaliser that does not fit": (changed(shift=np.ones(4)), "its layers do not fit together"),
    "no heads": (changed({"heads": []}), "it has no outputs"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_file_that_is_no_policy_is_refused_in_one_line(fault, tmp_path):
    arrays, why = FAULTS[fault]
    (tmp_path / "policy.npz").write_bytes(packed(arrays))
    with pytest.raises(UserError) as refused:
        policy_file.read(tmp_path / "policy.npz")
    assert why in str(refused.value) and "policy.npz cannot be read as a policy" in str(refused.value)


def test_a_missing_and_a_damaged_file(tmp_path):
    with pytest.raises(UserError, match="no policy at"):
        policy_file.read(tmp_path / "policy.npz")
    (tmp_path / "policy.npz").write_bytes(b"PK")
    with pytest.raises(UserError, match="cannot be read as a policy"):
        policy_file.read(tmp_path / "policy.npz")
