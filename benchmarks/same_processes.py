"""Does a process for each environment change what Stable-Baselines3 learns? python benchmarks/same_processes.py

PPO learns CartPole with environments in one process and in one process each. What is compared is the weights. It needs
requirements/benchmarks.txt, and writes results/same_processes.json.
"""

import hashlib
import sys
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from contestants import versions
from speed import RESULTS, machine

from common.files import write_json
from common.runs.command_line import one_line_errors, parse_settings

ENV, SETTINGS = "CartPole-v1", {"n_steps": 128, "batch_size": 64, "seed": 1}


@dataclass(frozen=True)
class Arguments:
    """Compare the weights that Stable-Baselines3's PPO learns in one process and in one for each environment."""

    steps: int = 10_240
    """Environment steps of each training."""


def weights(processes: str, environments: int, steps: int) -> str:
    """A hash of all weights after the training."""
    from stable_baselines3 import PPO
    from stable_baselines3.common.env_util import make_vec_env
    from stable_baselines3.common.vec_env import DummyVecEnv, SubprocVecEnv

    kind = {"one": DummyVecEnv, "each": SubprocVecEnv}[processes]
    env = make_vec_env(ENV, environments, seed=SETTINGS["seed"], vec_env_cls=kind)
    model = PPO("MlpPolicy", env, device="cpu", **SETTINGS).learn(steps)
    env.close()
    digest = hashlib.sha256()
    for name, tensor in sorted(model.policy.state_dict().items()):
        digest.update(name.encode() + tensor.numpy().tobytes())
    return digest.hexdigest()


def main() -> None:
    """Train three times, and say which weights are equal."""
    with one_line_errors():
        steps, where = parse_settings(Arguments).steps, machine()
        tried = ("one", 4), ("each", 4), ("one", 2)
        found = {f"{kind}, {count} environments": weights(kind, count, steps) for kind, count in tried}
        trained = {"method": "PPO", "env": ENV, "steps": steps, **SETTINGS}
        content = {"machine": where, "versions": versions(), "trained": trained, "weights": found}
        write_json(RESULTS / "same_processes.json", content)
        first = next(iter(found.values()))
        print(
            "\n".join(f"{name}: {'equal' if digest == first else 'other'} weights" for name, digest in found.items())
        )


if __name__ == "__main__":
    main()
