"""What `records.py` measures: metrics, and the command of each record."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Task:
    """What the records of a metric have in common."""

    metric: str
    name: str  # the same in few words
    solved: float  # mean reward of fresh episodes from which a seed counts as solved
    limits: tuple[str, ...]  # steps of an episode: the environment's own, by which a seed is judged, and others
    episodes: int = 100  # played after training, at each limit
    walks: float | None = None  # an epoch's score on the way, whose steps and seconds are noted
    seeds: int = 10  # of a record
    held: int = 1  # steps of the environment for which today's preset holds an action while it learns


@dataclass(frozen=True)
class Record:
    """What is trained."""

    command: str  # to which seed and folder are added
    task: Task
    knowledge: str = ""  # of the environment, that the settings use


MIRROR = "mirror symmetry"
WALKER = Task(  # its second limit is that of the 2021 study; a person would call a mean reward of 200 walking
    "BipedalWalker-v3: steps and seconds until solved (mean of 100 episodes ≥ 300)",
    "BipedalWalker until solved",
    300.0,
    ("1600", "2000"),
    walks=200.0,
)
CARTPOLE = Task(
    "CartPole-v1: environment steps until solved (mean of 100 deterministic episodes = 500)",
    "CartPole until solved",
    475.0,
    ("500",),
)
PENDULUM = Task(
    "Pendulum-v1: seconds until solved, within 5,000 steps (mean of 1,000 deterministic episodes ≥ −155)",
    "Pendulum in seconds",
    -155.0,
    ("200",),
    episodes=1000,
)
BEST_WALKER = Task("BipedalWalker-v3: best score", "BipedalWalker, best score", 328.0, ("1600", "2000"))
BEST_PPO = Task(
    "BipedalWalker-v3: best score with PPO after 1.7 million steps",
    "BipedalWalker, PPO, 1.7 million steps",
    315.0,
    ("1600", "2000"),
)
ROUGH_GROUND = Task(
    "BipedalWalkerHardcore-v3: score on rough ground, and seconds",
    "BipedalWalkerHardcore",
    300.0,
    ("2000",),
    seeds=3,
    held=3,
)
TASKS = {task.metric: task for task in (WALKER, CARTPOLE, PENDULUM, BEST_WALKER, BEST_PPO, ROUGH_GROUND)}

_OFF_POLICY = "-m companions.OffPolicyAgentTrainer"
RECORDS = {
    "fast-walker": Record("PPOAgentTrainer.py bipedal-walker-fast", WALKER),
    "fast-walker-symmetric": Record("PPOAgentTrainer.py bipedal-walker-fast-symmetric", WALKER, MIRROR),
    "continued-walker": Record("PPOAgentTrainer.py bipedal-walker-fast-continued", BEST_PPO),
    "best-ppo": Record("PPOAgentTrainer.py bipedal-walker-long", BEST_WALKER, MIRROR),
    "best-walker": Record("-m companions.SACAgentTrainer bipedal-walker-tqc", BEST_WALKER, MIRROR),
    "rough-ground": Record(f"{_OFF_POLICY} bipedal-walker-hardcore-td3 --precision bfloat16", ROUGH_GROUND, MIRROR),
    "rough-ground-float32": Record(f"{_OFF_POLICY} bipedal-walker-hardcore-td3", ROUGH_GROUND, MIRROR),
    "rough-ground-plain": Record(f"{_OFF_POLICY} bipedal-walker-hardcore-td3 --no-symmetry", ROUGH_GROUND),
    "cartpole-steps": Record("PPOAgentTrainer.py cartpole-fewest-steps", CARTPOLE, MIRROR),
    "cartpole-steps-plain": Record("PPOAgentTrainer.py cartpole-fewest-steps --no-symmetry", CARTPOLE),
    "pendulum-seconds": Record(f"{_OFF_POLICY} pendulum-td3-seconds", PENDULUM, MIRROR),
    "pendulum-seconds-plain": Record(f"{_OFF_POLICY} pendulum-td3-seconds --no-symmetry", PENDULUM),
}
