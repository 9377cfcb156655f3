"""What `learning_curves.py` compares: tasks, and the settings of every contestant on each of them.

rl-zoo3's settings are those of its files `hyperparams/*.yml` at commit 22e3ff2 (23 April 2026). "defaults" are
what the library itself uses if nothing is said. "ours-zoo" are our methods with rl-zoo3's settings; "ours" are our
presets without mirrors, "ours-mirror" those with them, "ours-unshaped" those without shaped rewards, and "ours-first"
is the first command, which ends when the walker is solved.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import gymnasium

from common.envs.action_masks import WithActionMask
from common.envs.environment import find_environment
from common.envs.registered import wrapped

GAME = "ale_py:{}NoFrameskip-v4"  # as rl-zoo3 names games, on Stable-Baselines3's own wrappers


class Linear(NamedTuple):
    """A value that falls linearly to 0 during the training."""

    start: float

    def schedule(self) -> Callable[[float], float]:
        """As Stable-Baselines3 takes it: the share of the training that is left → the value."""
        return lambda left: left * self.start


@dataclass(frozen=True)
class Contestant:
    """One library with one set of settings."""

    library: str  # stable_baselines3, sb3_contrib, sbx, cleanrl or ours
    method: str  # the library's class, the script of CleanRL, or the preset of ours
    settings: dict[str, Any] = field(default_factory=dict)  # of the class or script; of ours, typed settings
    num_envs: int = 1
    normalize: bool = False  # observations and rewards, by Stable-Baselines3's VecNormalize
    action_noise: float | None = None  # standard deviation of normal noise
    env: str | None = None  # the environment's id where the contestant needs an older Gymnasium
    wrappers: tuple[str, ...] = ()  # what it learns and is scored with, besides the task's


@dataclass(frozen=True)
class Task:
    """An environment, and how many steps each method is given."""

    env: str
    steps: int
    contestants: dict[str, Contestant]
    wrappers: tuple[str, ...] = ()  # of the environment, as of `--wrappers`
    parts: int = 50  # of the training after which it is scored
    schedule: int | None = None  # steps after which falling values would be 0; None: all steps
    kind: str = "deterministic"  # or sampled: the actions of the scores that are drawn and compared
    note: str = ""  # what the page says of it

    def make(self, contestant: Contestant) -> gymnasium.Env:
        """A new environment as a contestant sees it; its action mask stands behind the observation if it uses one.

        An Atari game is a whole one, of all lives, in the wrappers that the contestant learns with.
        """
        if self.env.startswith("ALE/"):
            if contestant.library == "ours":
                return find_environment(self.env).make()
            from peers.whole_games import WholeGame

            return WholeGame(GAME.format(self.env[4:-3]))
        env_id = contestant.env or self.env
        env = wrapped(env_id, gymnasium.make(env_id), self.wrappers + contestant.wrappers)
        is_masked = contestant.method == "MaskablePPO" or "action_masks" in contestant.settings
        return WithActionMask(env) if is_masked else env


BREAKOUT_NOTE = """Breakout without sticky actions (BreakoutNoFrameskip-v4): the first million of the ten million steps
that rl-zoo3 trains. Learning rate and clip range fall as over all ten million. The column *sampled* is drawn and
compared, as rl-zoo3 scores Atari games: without noise there are only four different games. Each agent plays whole
games of five lives in the wrappers that it learns with, which serve the ball differently. PPO's page lists
[what differs](methods/ppo.md#from-stable-baselines3-on-breakout), Adam's ε first. Three runs of each show no
difference. rl-zoo3 publishes 398.0 after all ten million steps, from one run."""
_NET_400 = {"net_arch": [400, 300]}
_TD3_ZOO = {
    "gamma": 0.98, "buffer_size": 200_000, "learning_starts": 10_000, "train_freq": 1, "gradient_steps": 1,
    "learning_rate": 1e-3, "policy_kwargs": _NET_400,
}  # fmt: skip
_SDE = {
    "learning_rate": 7.3e-4, "buffer_size": 300_000, "batch_size": 256, "ent_coef": "auto", "gamma": 0.98,
    "tau": 0.02, "train_freq": 64, "gradient_steps": 64, "learning_starts": 10_000, "use_sde": True,
    "policy_kwargs": {"log_std_init": -3, **_NET_400},
}  # fmt: skip
# Ours with other libraries' settings: none of what only our presets have, and the last weights.
_PLAIN = {"backend": "gymnasium", "best_metric": "mean_episode_reward", "adopt_best": False}
_PLAIN_PPO = {
    **_PLAIN, "normalize_observations": False, "reward_scaling": "none", "noise_color": 0.0, "adam_epsilon": 1e-5,
    "anneal": (),
}  # fmt: skip
_ZOO_TD3 = {
    **_PLAIN, "hidden_sizes": (400, 300), "gamma": 0.98, "replay_size": 200_000, "warmup_steps": 10_000,
    "learning_rate": 1e-3,
}  # fmt: skip
_UNSHAPED = {"reward_design": "unchanged", "fall_cost": ("1",), "action_cost": ("0",)}
_LANDER_TQC = {
    "batch_size": 256, "learning_rate": Linear(7.3e-4), "buffer_size": 1_000_000, "ent_coef": "auto", "gamma": 0.99,
    "tau": 0.01, "train_freq": 1, "gradient_steps": 1, "learning_starts": 10_000, "policy_kwargs": _NET_400,
}  # fmt: skip


def _hidden(env: str, wrapper: str, steps: int, zoo: dict[str, Any], ours: dict[str, Any], num_envs: int) -> Task:
    """A task whose speeds are hidden: with a memory, without one, with four observations at a time, and sb3-contrib.

    Args:
        zoo: rl-zoo3's settings for RecurrentPPO (`hyperparams/ppo_lstm.yml`), but for those of all three tasks.
        ours: the same as settings of ours.
    """
    network = {
        "ortho_init": False, "activation_fn": "ReLU", "lstm_hidden_size": 64, "enable_critic_lstm": True,
        "net_arch": {"pi": [64], "vf": [64]},
    }  # fmt: skip
    ours = {
        **_PLAIN_PPO, "num_envs": num_envs, "normalize_observations": True, "reward_scaling": "returns",
        "hidden_sizes": (64,), "activation": "relu", "initial_gains": (), **ours,
    }  # fmt: skip
    stacked = ("gymnasium.wrappers:FrameStackObservation(4)",)
    contestants = {
        "sb3-contrib-zoo": Contestant(
            "sb3_contrib", "RecurrentPPO", {**zoo, "policy_kwargs": network}, num_envs=num_envs, normalize=True
        ),
        "ours-zoo-lstm": Contestant("ours", "default", {**ours, "memory": "lstm"}),
        "ours-gru": Contestant("ours", "default", {**ours, "memory": "gru"}),
        "ours-stacked": Contestant("ours", "default", ours, wrappers=stacked),
        "ours-plain": Contestant("ours", "default", ours),
    }
    return Task(env, steps, contestants, (f"common.hidden_speeds:{wrapper}",))


_WIDE = {
    "log_std_init": -2, "ortho_init": False, "activation_fn": "ReLU", "net_arch": {"pi": [256, 256], "vf": [256, 256]},
}  # fmt: skip
_PPO_ZOO = {  # of the tasks in version 4; Ant's are the defaults
    "HalfCheetah": {
        "batch_size": 64, "n_steps": 512, "gamma": 0.98, "learning_rate": 2.0633e-05, "ent_coef": 0.000401762,
        "clip_range": 0.1, "n_epochs": 20, "gae_lambda": 0.92, "max_grad_norm": 0.8, "vf_coef": 0.58096,
        "policy_kwargs": _WIDE,
    },
    "Hopper": {
        "batch_size": 32, "n_steps": 512, "gamma": 0.999, "learning_rate": 9.80828e-05, "ent_coef": 0.00229519,
        "clip_range": 0.2, "n_epochs": 5, "gae_lambda": 0.99, "max_grad_norm": 0.7, "vf_coef": 0.835671,
        "policy_kwargs": _WIDE,
    },
    "Walker2d": {
        "batch_size": 32, "n_steps": 512, "gamma": 0.99, "learning_rate": 5.05041e-05, "ent_coef": 0.000585045,
        "clip_range": 0.1, "n_epochs": 20, "gae_lambda": 0.95, "max_grad_norm": 1, "vf_coef": 0.871923,
    },
    "Ant": {"gamma": 0.99},
    "Humanoid": {
        "batch_size": 256, "n_steps": 512, "gamma": 0.95, "learning_rate": 3.56987e-05, "ent_coef": 0.00238306,
        "clip_range": 0.3, "n_epochs": 5, "gae_lambda": 0.9, "max_grad_norm": 2, "vf_coef": 0.431892,
        "policy_kwargs": _WIDE,
    },
}  # fmt: skip


def _crossq(units: int) -> Contestant:
    """SBX's CrossQ with rl-zoo3's settings, but for the critics' units."""
    settings = {"learning_rate": 1e-3, "learning_starts": 5000, "policy_delay": 3}
    return Contestant(
        "sbx", "CrossQ", {**settings, "policy_kwargs": {"net_arch": {"pi": [256] * 2, "qf": [units] * 2}}}
    )


def _mujoco(body: str) -> Task:
    """A task of MuJoCo: rl-zoo3's settings, and ours, the same for every task. The last weights are scored."""
    last = {"best_metric": "mean_episode_reward", "adopt_best": False, "backend": "gymnasium"}
    contestants = {
        "sb3-ppo-zoo": Contestant("stable_baselines3", "PPO", _PPO_ZOO[body], normalize=True),
        "sbx-sac-zoo": Contestant("sbx", "SAC", {"learning_starts": 10_000}),
        "sbx-crossq-zoo": _crossq(2048),
        "sbx-crossq-256": _crossq(256),
    }
    presets = {
        "ours-ppo": "mujoco",
        "ours-sac": "mujoco-sac",
        "ours-tqc": "mujoco-tqc",
        "ours-crossq": "mujoco-crossq",
    }
    rounded = {"precision": "bfloat16"}  # takes less time where a processor has instructions for it
    ours = {
        name: Contestant("ours", preset, last if name == "ours-ppo" else {**last, **rounded})
        for name, preset in presets.items()
    }
    return Task(f"{body}-v5", 1_000_000, contestants | ours)


def _masked(env: str, steps: int, wrappers: tuple[str, ...] = ()) -> Task:
    """A task with invalid actions: with the masks, without them, and sb3-contrib, all with the same settings."""
    ours = {
        **_PLAIN_PPO, "num_envs": 8, "steps_per_epoch": 1024, "minibatch_size": 256, "gae_lambda": 0.95, "gamma": 0.99,
        "passes": 10, "learning_rate": 1e-3, "entropy_coefficient": 0.01,
    }  # fmt: skip
    theirs = {"n_steps": 128, "batch_size": 256, "learning_rate": 1e-3, "ent_coef": 0.01}
    contestants = {
        "sb3-contrib-masked": Contestant("sb3_contrib", "MaskablePPO", theirs, num_envs=8),
        "ours-masked": Contestant("ours", "default", {**ours, "action_masks": True}),
        "ours-unmasked": Contestant("ours", "default", ours),
    }
    return Task(env, steps, contestants, wrappers)


TASKS = {
    **{f"mujoco-{body.lower()}": _mujoco(body) for body in _PPO_ZOO},
    "cartpole-ppo": Task(
        "CartPole-v1",
        100_000,
        {
            "sb3-zoo": Contestant(
                "stable_baselines3",
                "PPO",
                {
                    "n_steps": 32, "batch_size": 256, "gae_lambda": 0.8, "gamma": 0.98, "n_epochs": 20,
                    "learning_rate": Linear(1e-3), "clip_range": Linear(0.2),
                },
                num_envs=8,
            ),
            "sb3-defaults": Contestant("stable_baselines3", "PPO"),
            "cleanrl-defaults": Contestant("cleanrl", "ppo"),
            "ours-zoo": Contestant(
                "ours",
                "default",
                {
                    **_PLAIN_PPO, "num_envs": 8, "steps_per_epoch": 256, "minibatch_size": 256, "gae_lambda": 0.8,
                    "gamma": 0.98, "passes": 20, "learning_rate": 1e-3,
                    "anneal": ("learning_rate", "clip_range"),
                },
            ),
            "ours": Contestant("ours", "cartpole-fast", {"max_episode_steps": None}),
            "ours-mirror": Contestant("ours", "cartpole-fewest-steps"),
        },
    ),
    "pendulum-td3": Task(
        "Pendulum-v1",
        20_000,
        {
            "sbx-zoo": Contestant("sbx", "TD3", _TD3_ZOO, action_noise=0.1),
            "sb3-zoo": Contestant("stable_baselines3", "TD3", _TD3_ZOO, action_noise=0.1),
            "sbx-defaults": Contestant("sbx", "TD3"),
            "ours-zoo": Contestant("ours", "td3", {**_ZOO_TD3, "steps_per_epoch": 200}),
            "ours": Contestant("ours", "pendulum-td3-fast"),
            "ours-mirror": Contestant("ours", "pendulum-td3-seconds"),
        },
    ),
    "pendulum-sac": Task(
        "Pendulum-v1",
        20_000,
        {
            "sbx-zoo": Contestant("sbx", "SAC", {"learning_rate": 1e-3}),
            "sbx-defaults": Contestant("sbx", "SAC"),
            "ours-zoo": Contestant(
                "ours", "sac", {**_PLAIN, "steps_per_epoch": 200, "warmup_steps": 100, "learning_rate": 1e-3}
            ),
            "ours": Contestant("ours", "pendulum-sac"),
            "ours-mirror": Contestant("ours", "pendulum-sac", {"symmetry": True}),
        },
    ),
    "lander-ppo": Task(
        "LunarLanderContinuous-v3",
        1_000_000,
        {
            "sb3-zoo": Contestant(
                "stable_baselines3",
                "PPO",
                {
                    "n_steps": 1024, "batch_size": 64, "gae_lambda": 0.98, "gamma": 0.999, "n_epochs": 4,
                    "ent_coef": 0.01,
                },
                num_envs=16,
            ),
            "sb3-defaults": Contestant("stable_baselines3", "PPO"),
            "cleanrl-defaults": Contestant("cleanrl", "ppo_continuous_action", env="LunarLanderContinuous-v2"),
            "ours-zoo": Contestant(
                "ours",
                "default",
                {
                    **_PLAIN_PPO, "num_envs": 16, "steps_per_epoch": 16_384, "minibatch_size": 64, "gae_lambda": 0.98,
                    "gamma": 0.999, "passes": 4, "entropy_coefficient": 0.01,
                },
            ),
            "ours": Contestant("ours", "lunar-lander-continuous"),
            "ours-mirror": Contestant("ours", "lunar-lander-continuous", {"symmetry": True}),
        },
    ),
    "lander-td3": Task(
        "LunarLanderContinuous-v3",
        300_000,
        {
            "sbx-zoo": Contestant("sbx", "TD3", _TD3_ZOO, action_noise=0.1),
            "sb3-zoo": Contestant("stable_baselines3", "TD3", _TD3_ZOO, action_noise=0.1),
            "sbx-defaults": Contestant("sbx", "TD3"),
            "ours-zoo": Contestant("ours", "td3", {**_ZOO_TD3, "steps_per_epoch": 3000}),
            "ours": Contestant("ours", "lunar-lander-td3"),
            "ours-mirror": Contestant("ours", "lunar-lander-td3", {"symmetry": True}),
        },
    ),
    "lander-tqc": Task(
        "LunarLanderContinuous-v3",
        300_000,
        {
            "sbx-zoo": Contestant("sbx", "TQC", _LANDER_TQC),
            "sbx-defaults": Contestant("sbx", "TQC"),
            "ours-zoo": Contestant(
                "ours",
                "tqc",
                {
                    **_PLAIN, "hidden_sizes": (400, 300), "steps_per_epoch": 3000, "warmup_steps": 10_000,
                    "learning_rate": 7.3e-4, "anneal": ("learning_rate",), "tau": 0.01,
                },
            ),
            "ours": Contestant("ours", "lunar-lander-tqc", {"symmetry": False}),
            "ours-mirror": Contestant("ours", "lunar-lander-tqc"),
        },
    ),
    "walker-ppo": Task(
        "BipedalWalker-v3",
        5_000_000,
        {
            "sb3-zoo": Contestant(
                "stable_baselines3",
                "PPO",
                {
                    "n_steps": 2048, "batch_size": 64, "gae_lambda": 0.95, "gamma": 0.999, "n_epochs": 10,
                    "ent_coef": 0.0, "learning_rate": 3e-4, "clip_range": 0.18,
                },
                num_envs=32,
                normalize=True,
            ),
            "sb3-defaults": Contestant("stable_baselines3", "PPO"),
            "cleanrl-defaults": Contestant("cleanrl", "ppo_continuous_action"),
            "ours-zoo": Contestant(
                "ours",
                "default",
                {
                    **_PLAIN_PPO, "normalize_observations": True, "reward_scaling": "returns", "num_envs": 32,
                    "steps_per_epoch": 65_536, "minibatch_size": 64, "gae_lambda": 0.95, "gamma": 0.999,
                    "clip_range": 0.18,
                },
            ),
            "ours-unshaped": Contestant("ours", "bipedal-walker-fast-continued", _UNSHAPED),
            "ours": Contestant("ours", "bipedal-walker-fast-continued"),
            "ours-mirror": Contestant("ours", "bipedal-walker-long"),
            "ours-first": Contestant("ours", "bipedal-walker-fast"),
        },
    ),
    "walker-tqc": Task(
        "BipedalWalker-v3",
        500_000,
        {
            "sb3-contrib-zoo": Contestant("sb3_contrib", "TQC", _SDE),
            "sbx-defaults": Contestant("sbx", "TQC"),
            "ours-zoo": Contestant(
                "ours",
                "tqc",
                {
                    **_PLAIN, "hidden_sizes": (400, 300), "steps_per_epoch": 5000, "warmup_steps": 10_000,
                    "learning_rate": 7.3e-4, "gamma": 0.98, "tau": 0.02, "replay_size": 300_000, "train_every": 64,
                    "updates_per_train": 64,
                },
            ),
            "ours-unshaped": Contestant("ours", "bipedal-walker-tqc", {**_UNSHAPED, "symmetry": False}),
            "ours": Contestant("ours", "bipedal-walker-tqc", {"symmetry": False}),
            "ours-mirror": Contestant("ours", "bipedal-walker-tqc"),
        },
    ),
    "cartpole-hidden": _hidden(
        "CartPole-v1",
        "CartPoleWithoutSpeeds",
        100_000,
        {
            "n_steps": 32, "batch_size": 256, "gae_lambda": 0.8, "gamma": 0.98, "n_epochs": 20,
            "learning_rate": Linear(1e-3), "clip_range": Linear(0.2),
        },
        {
            "steps_per_epoch": 256, "minibatch_size": 256, "gae_lambda": 0.8, "gamma": 0.98, "passes": 20,
            "learning_rate": 1e-3, "anneal": ("learning_rate", "clip_range"),
        },
        8,
    ),
    "pendulum-hidden": _hidden(
        "Pendulum-v1",
        "PendulumWithoutSpeed",
        100_000,
        {
            "n_steps": 1024, "gae_lambda": 0.95, "gamma": 0.9, "n_epochs": 10, "learning_rate": 1e-3, "use_sde": True,
            "sde_sample_freq": 4,
        },
        {
            "steps_per_epoch": 4096, "minibatch_size": 128, "gae_lambda": 0.95, "gamma": 0.9, "passes": 10,
            "learning_rate": 1e-3,
        },
        4,
    ),
    "lander-hidden": _hidden(
        "LunarLanderContinuous-v3",
        "LunarLanderWithoutSpeeds",
        300_000,
        {
            "n_steps": 512, "batch_size": 128, "gae_lambda": 0.98, "gamma": 0.999, "n_epochs": 4, "ent_coef": 0.01,
        },
        {
            "steps_per_epoch": 16_384, "minibatch_size": 128, "gae_lambda": 0.98, "gamma": 0.999, "passes": 4,
            "entropy_coefficient": 0.01,
        },
        32,
    ),
    "queens-masked": _masked("peers.queens:Queens-v0", 200_000),
    "taxi-masked": _masked("Taxi-v4", 200_000, ("gymnasium.wrappers:FlattenObservation",)),
    "breakout-ppo": Task(
        "ALE/Breakout-v5",
        1_000_000,
        {
            "sb3-zoo": Contestant(
                "stable_baselines3",
                "PPO",
                {
                    "n_steps": 128, "n_epochs": 4, "batch_size": 256, "learning_rate": Linear(2.5e-4),
                    "clip_range": Linear(0.1), "vf_coef": 0.5, "ent_coef": 0.01,
                },
                num_envs=8,
            ),
            "ours-zoo": Contestant(
                "ours",
                "breakout",
                {
                    "passes": 4, "value_loss": "squared", "adam_epsilon": 1e-5, "adopt_best": False,
                    "best_metric": "mean_episode_reward", "steps_per_epoch": 1024, "updates_per_epoch": 1,
                },
            ),
        },
        parts=10,
        schedule=10_000_000,
        kind="sampled",
        note=BREAKOUT_NOTE,
    ),
}  # fmt: skip
