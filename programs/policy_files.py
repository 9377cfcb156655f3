"""An agent's policy as files that need no code of this project; `python -m programs export` writes them.

They are a TensorFlow SavedModel, a LiteRT (TensorFlow Lite) file and, if wanted, an ONNX file. Each is a function from
raw observations, [B, S] or images [B, height, width, channels], to environment actions: it includes normalisation,
network and action map. Its weights are constants. A policy that remembers also takes what it remembers, `memory`
[B, Z], and returns `next_memory`.
"""

import common.learning.quiet_start  # noqa: F401  isort: skip  (before anything else imports TensorFlow)
import re
import shutil
import tempfile
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from Agent import Agent
from common.envs.spaces import ActionMap, BoxMap
from common.errors import UserError
from common.nets.from_keras import can_describe, describe
from common.nets.network import Network, forward
from common.nets.tensorflow_operations import TENSORFLOW
from common.rollout.policies import CategoricalPolicy, SamplingPolicy, SquashedPolicy
from common.user_code import describe as describe_error
from common.user_code import held_back_errors
from companions.DDPGAgent import DDPGAgent
from programs import onnx_files
from programs.onnx_files import MEMORY, NEXT, OUTPUT, Policy, first_action, float32_bounds, is_whole, policy_of

SAVED_MODEL, LITERT, ONNX = "saved_model", "policy.tflite", "policy.onnx"
UNFINISHED = ".unfinished-"  # how the name of a copy begins that is not complete
CHECKED_OBSERVATIONS = 500
TOLERANCE = 1e-5
CHECKED_IMAGES = 64


class ExportedPolicy(tf.Module):
    """An agent's deterministic policy as a TensorFlow graph, frozen as it is now.

    Attributes:
        act: raw observations [B, S] float32, or images [B, height, width, channels] uint8, →
            {"actions": [B, *space.shape] in the space's dtype}. A policy that remembers also maps its memory [B, Z]
            float32 to "next_memory" [B, Z].
    """

    def __init__(self, agent: Any) -> None:
        super().__init__()
        policy, heads = agent.acting_policy(), _heads(agent)
        size = getattr(policy, "memory_size", 0)  # Z

        def act(observations: tf.Tensor, memory: tf.Tensor | None = None) -> dict[str, tf.Tensor]:
            first, *after = heads(observations, *([] if memory is None else [memory]))
            return {OUTPUT: _environment_actions(first, policy, agent.action_map)} | dict(zip([NEXT], after))

        signature = [tf.TensorSpec((None, *observation_shape(agent)), tf.uint8 if agent.sees_images else tf.float32)]
        if size:
            signature.append(tf.TensorSpec((None, size), tf.float32, MEMORY))
        self.act = tf.function(act, input_signature=signature, autograph=False)


def _environment_actions(outputs: tf.Tensor, policy: SamplingPolicy, action_map: ActionMap) -> tf.Tensor:
    """What an actor's first head says to do, [B, X] → [B, *space.shape] in the space's type."""
    start = first_action(action_map)  # [1, *space.shape]
    if isinstance(policy, CategoricalPolicy):
        best = [tf.argmax(part, axis=1) for part in tf.split(outputs, policy.choices, axis=1)]
        actions = tf.stack(best, axis=1) + start.astype(np.int64).reshape(1, -1)  # [B, A]
    else:
        assert isinstance(action_map, BoxMap)
        if isinstance(policy, SquashedPolicy):
            outputs = tf.tanh(outputs[:, : action_map.size])  # μ stands before log σ
        mapped = np.float32(action_map.centre) + np.float32(action_map.scale) * outputs  # [B, A]
        actions = tf.clip_by_value(tf.round(mapped) if is_whole(action_map) else mapped, *float32_bounds(action_map))
    shaped = tf.reshape(actions, (-1, *start.shape[1:]))
    if start.dtype == np.uint64:  # to which LiteRT casts nothing
        return tf.bitcast(tf.cast(shaped, tf.int64), tf.uint64)
    return tf.cast(shaped, start.dtype)


def observation_shape(agent: Any) -> tuple[int, ...]:
    """Of one observation: (S,), or (height, width, channels)."""
    return tuple(agent.actor.inputs[0].shape[1:])


def acting_network(agent: Any) -> Network:
    """The actor as it acts now, without a Normal policy's spread; UserError if a layer of the user's is unknown."""
    return describe(agent.actor, agent.normalizer()).first_head()


def _heads(agent: Any) -> Callable[..., list[tf.Tensor]]:
    """What computes the first head of an actor as it is now, and its next memory if any; weights are constants."""
    if can_describe(agent.actor):
        network = acting_network(agent)
        return lambda observations, *memory: forward(TENSORFLOW, network, observations, *memory)
    actor, normalize = agent.actor, agent.normalizer()
    weights, others = (
        [tf.constant(np.array(variable)) for variable in variables]
        for variables in (actor.trainable_variables, actor.non_trainable_variables)
    )

    def heads(observations: tf.Tensor) -> list[tf.Tensor]:
        inputs = TENSORFLOW.normalized(observations, normalize)
        return tf.nest.flatten(actor.stateless_call(weights, others, inputs, training=False)[0])[:1]

    return heads


def read_saved_model(folder: Path) -> Policy:
    """Load the policy of a SavedModel, as its user would."""
    with tempfile.TemporaryDirectory() as plain:  # as in `export`
        shutil.copytree(folder, plain, dirs_exist_ok=True)
        act = tf.saved_model.load(plain).signatures["serving_default"]

    def run(inputs: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        outputs = act(**{name: tf.constant(array) for name, array in inputs.items()})
        return {name: output.numpy() for name, output in outputs.items()}

    return policy_of(run)


def read_litert(file: Path) -> Policy:
    """Load the policy of a LiteRT file, as its user would."""
    with held_back_errors(), warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # the interpreter will move to a package of its own
        # Not `model_path`: the file would stay mapped, and Windows renames no mapped file.
        interpreter = tf.lite.Interpreter(model_content=file.read_bytes())
        interpreter.allocate_tensors()
        run = interpreter.get_signature_runner()
    return policy_of(lambda inputs: run(**inputs))


def random_observations(agent: Agent | DDPGAgent, rng: np.random.Generator) -> np.ndarray:
    """Observations around those of training or around 0, some of which are clipped if normalised; or images.

    Returns:
        [CHECKED_OBSERVATIONS, S] float32, or [CHECKED_IMAGES, height, width, channels] uint8.
    """
    if agent.sees_images:
        return _random_images(observation_shape(agent), rng)
    normalize = agent.normalizer()
    farthest = 0.0 if normalize.shift is None else 1.5  # without clipping, far ones would show float32's rounding
    spread = 10.0 ** rng.uniform(-1, farthest, (CHECKED_OBSERVATIONS, 1))  # [K, 1] standard deviations
    drawn = spread * rng.standard_normal((CHECKED_OBSERVATIONS, agent.observation_size))  # [K, S]
    if normalize.shift is not None and normalize.scale is not None:
        drawn = normalize.shift + drawn / normalize.scale  # [K, S]
    if agent.mask_size:
        drawn[:, -agent.mask_size :] = rng.integers(2, size=(CHECKED_OBSERVATIONS, agent.mask_size))
    return drawn.astype(np.float32)


def _random_images(shape: tuple[int, ...], rng: np.random.Generator) -> np.ndarray:
    """[CHECKED_IMAGES, *shape] uint8: patches of random sizes and brightness, not noise, whose mean hardly varies."""
    height, width, channels = shape
    images = np.empty((CHECKED_IMAGES, *shape), np.uint8)
    for image in images:
        side = rng.integers(1, max(2, min(height, width) // 2))
        rows, columns = -(-height // side), -(-width // side)
        patches = rng.integers(0, rng.integers(2, 257), (rows, columns, channels))
        image[:] = patches.repeat(side, axis=0).repeat(side, axis=1)[:height, :width]  # [height, width, channels]
    return images


def largest_difference(policy: Policy, agent: Any, observations: np.ndarray) -> float:
    """The largest difference between a file's actions and the agent's, for observations [K, ...].

    It is divided by the size of the largest action in the same dimension, if that is above 1 and actions are no
    choices. What rounding to the space's type changes is left out: float32 and float64 may round to different sides.
    If shape or type differ, or an action is NaN, the result is infinite. A policy that remembers is asked with random
    memories, and the next ones are compared, too.
    """
    acting, action_map = agent.acting_policy(), agent.action_map
    size = getattr(acting, "memory_size", 0)  # Z
    drawn = np.random.default_rng(0).uniform(-1, 1, (len(observations), size)).astype(np.float32)  # [K, Z]
    before = [drawn] if size else []
    after, theirs_after = ([memory.copy() for memory in before] for _ in range(2))
    chosen = acting.act(observations, None, *after)  # [K, A]
    expected = action_map(chosen)  # [K, *space.shape]
    exact, unit = expected.astype(np.float64), np.ones(expected.shape[1:])  # [K, *space.shape], [*space.shape]
    if isinstance(action_map, BoxMap):
        exact = action_map.unrounded(chosen).reshape(expected.shape)
        unit = np.maximum(1.0, np.abs(exact).max(axis=0))
    rows = [slice(i, i + 1) for i in range(min(10, len(observations)))]
    alone = [policy(observations[row], *(memory[row].copy() for memory in before)) for row in rows]
    found = policy(observations, *theirs_after), np.concatenate(alone)  # [K, ...], [10, ...]
    differences = [np.abs(one - other).max() for one, other in zip(after, theirs_after)]
    for ours, theirs, wanted in zip(found, (expected, expected[:10]), (exact, exact[:10])):
        if ours.shape != theirs.shape or ours.dtype != theirs.dtype:
            return np.inf
        step = np.spacing(np.abs(theirs)).astype(np.float64) if theirs.dtype.kind == "f" else 1.0
        apart = np.maximum(0.0, np.abs(ours.astype(np.float64) - wanted) - step / 2) / unit  # [K, *space.shape]
        differences.append(np.nan_to_num(apart, nan=np.inf).max())
    return float(max(differences))


class Written(NamedTuple):
    """A file or folder that an export wrote."""

    path: Path
    size: int  # bytes; of a folder, of all its files
    difference: float  # from the agent's actions; see `largest_difference`


READ: dict[str, Callable[[Path], Policy]] = {
    SAVED_MODEL: read_saved_model,
    LITERT: read_litert,
    ONNX: onnx_files.read_onnx,
}
"""Name of a file → the function that loads its policy, as its user would."""


def export(agent: Agent | DDPGAgent, folder: Path, onnx: bool = False) -> list[Written]:
    """Write all files into a folder, made if it is missing; an earlier export is replaced once they are checked.

    Returns:
        One record for each file, in the order SavedModel, LiteRT and, if wanted, ONNX.

    Raises:
        UserError: something that is not an export is in the way, a package is missing, or a file acts differently from
            the agent.
    """
    _check_free(folder)
    with tempfile.TemporaryDirectory() as temporary:  # TensorFlow takes `[x]` in a path for a pattern
        plain = Path(temporary)
        if onnx:  # first, since its package may be missing
            try:
                policy, network = agent.acting_policy(), acting_network(agent)
            except UserError as error:
                raise UserError(
                    f"{ONNX} cannot be written, {error}; or leave --onnx out for the other formats"
                ) from None
            onnx_files.write_onnx(policy, network, agent.action_map, observation_shape(agent), plain / ONNX)
        model, exported = str(plain / SAVED_MODEL), ExportedPolicy(agent)
        with held_back_errors():
            tf.saved_model.save(exported, model, signatures=exported.act)
        try:
            with held_back_errors():
                (plain / LITERT).write_bytes(tf.lite.TFLiteConverter.from_saved_model(model).convert())
        except Exception as error:
            if can_describe(agent.actor):
                raise
            named = re.search(r"'tf\.(\w+)' op", str(error))
            what = f"the operation {named[1]}" if named else describe_error(error)
            print(f"{LITERT} is left out, since LiteRT cannot convert your networks ({what}); {SAVED_MODEL} has them")
        return copy(agent, random_observations(agent, np.random.default_rng(0)), plain, folder, onnx)


def copy(agent: Any, observations: np.ndarray, source: Path, folder: Path, onnx: bool = False) -> list[Written]:
    """Check the files of an export of this agent with these observations, and copy them; see `export`."""
    _check_free(folder)
    if folder.resolve() == source.resolve():
        raise UserError(f"{folder} already has these files: choose another folder with --out")
    if onnx and not (source / ONNX).exists():
        raise UserError(f"{source} has no {ONNX}: leave out --onnx, or export a run")
    names = [name for name in READ if (source / name).exists() and (onnx or name != ONNX)]
    differences = {name: largest_difference(READ[name](source / name), agent, observations) for name in names}
    for name, difference in differences.items():
        if difference > TOLERANCE:
            raise UserError(
                f"{name} acts differently from the agent, by {difference:.3g} where {TOLERANCE:g} is allowed: "
                "nothing was exported; score the agent itself with python -m programs evaluate"
            )
    folder.mkdir(parents=True, exist_ok=True)
    for name in {LITERT, ONNX} - {*names}:
        (folder / name).unlink(missing_ok=True)  # of an earlier export, perhaps of another policy
    for name in names:
        _replace(folder / name, source / name)
    return [Written(folder / name, _size(folder / name), difference) for name, difference in differences.items()]


def _replace(path: Path, source: Path) -> None:
    """Copy a file or a folder; what was there before is removed when the copy is complete."""
    unfinished = path.with_name(UNFINISHED + path.name)
    if source.is_file():
        shutil.copyfile(source, unfinished)
    else:
        shutil.rmtree(unfinished, ignore_errors=True)  # of an export that was killed
        shutil.copytree(source, unfinished)
        shutil.rmtree(path, ignore_errors=True)
    unfinished.replace(path)


def _check_free(folder: Path) -> None:
    """Raises UserError if an export would replace something that is not an export."""
    foreign = [path for path in (folder, *folder.parents) if path.exists() and not path.is_dir()]
    foreign += [path for path in (folder / LITERT, folder / ONNX) if path.is_dir()]
    model = folder / SAVED_MODEL
    if foreign or (model.exists() and not (model / "saved_model.pb").exists()):
        raise UserError(
            f"{[*foreign, model][0]} is in the way and is not an export: remove it or choose another --out"
        )


def _size(path: Path) -> int:
    """Bytes of a file, or of all files in a folder."""
    return sum(file.stat().st_size for file in (path, *path.rglob("*")) if file.is_file())
