"""What `records.py` measures: the tables of LEADERBOARD.md and the command of each record."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Task:
    """What the records of a table have in common."""

    metric: str  # the heading of the table
    solved: float  # mean reward of fresh episodes from which a seed counts as solved
    limits: tuple[str, ...]  # steps of an episode: the environment's own, by which a seed is judged, and others
    episodes: int = 100  # played after training, at each limit
    milestone: tuple[str, float] | None = None  # on the way: what it is called, and the epoch's score that reaches it
    sampled: bool = False  # whether its rows show the score of sampled actions, too
    seeds: int = 10  # of a record


@dataclass(frozen=True)
class Record:
    """What is trained, and what its row says."""

    command: str  # to which seed and folder are added
    task: Task
    knowledge: str  # of the environment, that the settings use; empty for none
    changed: str  # what makes the difference


# The walker's second limit is that of the 2021 study. A person would call a mean reward of 200 walking.
WALKER = Task(
    "BipedalWalker-v3: steps and seconds until solved (mean of 100 episodes ≥ 300)",
    300.0,
    ("1600", "2000"),
    milestone=("a walk", 200.0),
)
CARTPOLE = Task(
    "CartPole-v1: environment steps until solved (mean of 100 deterministic episodes = 500)", 475.0, ("500",)
)
PENDULUM = Task(
    "Pendulum-v1: seconds until solved, within 5,000 steps (mean of 1,000 deterministic episodes ≥ −155)",
    -155.0,
    ("200",),
    episodes=1000,
)
OFTEN = (
    "an update of ten passes after every 64 steps, a learning rate of 0.003, and after each update five deterministic "
    "episodes, then 100 others where all of the five last 500 steps (not counted as steps)"
)
BEST_WALKER = Task("BipedalWalker-v3: best score", 328.0, ("1600", "2000"), sampled=True)
BEST_PPO = Task("BipedalWalker-v3: best score with PPO after 1.7 million steps", 315.0, ("1600", "2000"), sampled=True)
ROUGH_GROUND = Task(
    "BipedalWalkerHardcore-v3: score on rough ground, and seconds", 300.0, ("2000",), sampled=True, seeds=3
)
HELD = (
    "while it learns, each action is held for three of the environment's steps, and steps here are actions; the "
    "trained agent acts in every step; an update for two actions, minibatches of 128, two-step returns, γ 0.98, "
    "exploration noise from 0.2 to 0.1, falls that cost 5, then 20 and 50, a learning rate that falls to 0, averaged "
    "weights"
)
MOSTLY_SYMMETRIC = (
    "layer normalisation in the critics; the policy's mirror image has a weight of 0.4; once the mean of 100 training "
    "episodes is 200, an action costs 0.05 times its size"
)
TASKS = {task.metric: task for task in (WALKER, CARTPOLE, PENDULUM, BEST_WALKER, BEST_PPO, ROUGH_GROUND)}
RECORDS = {
    "fast-walker-symmetric": Record(
        "PPOAgentTrainer.py bipedal-walker-fast-symmetric",
        WALKER,
        "mirror symmetry",
        "symmetric networks, small updates, learning rates steered by the KL divergence, averaged weights, falls that "
        "cost more with a better score, early validation",
    ),
    "fast-walker": Record(
        "PPOAgentTrainer.py bipedal-walker-fast",
        WALKER,
        "",
        "plain networks; updates of five passes that learn from the last two trajectories, learning rates steered by "
        "the KL divergence, falls that cost more with a better score, actions that cost something from a training "
        "score of 0 on; epochs of 3,072 steps; validations of 8 episodes every four epochs, from a training score of "
        "−30 on, which end as soon as falls have put both 303 and the best score so far out of reach; the mean of the "
        "100 episodes that confirm a score, less half its standard error, is at least 303",
    ),
    "best-walker": Record(
        "-m companions.SACAgentTrainer bipedal-walker-tqc",
        BEST_WALKER,
        "mirror symmetry",
        "TQC with symmetric networks of 128 units, an update a step, minibatches of 128, γ 0.97, a learning rate that "
        "falls to 0, averaged weights, a fall that costs 10; once the mean of ten training episodes is 200, a fall "
        "costs 40, and an action costs 0.05 times its size",
    ),
    "best-ppo": Record(
        "PPOAgentTrainer.py bipedal-walker-long",
        BEST_WALKER,
        "mirror symmetry",
        "PPO with symmetric networks of 96 units, an update of ten passes after every 4,096 steps, learning rates "
        "steered by the KL divergence, averaged weights, γ that falls from 0.995 to 0.98; once the mean of 100 "
        "training episodes is 200, an action costs 0.05 times its size, and a fall costs 40 from 150 on "
        "and 100 from 250 on",
    ),
    "continued-walker": Record(
        "PPOAgentTrainer.py bipedal-walker-fast-continued",
        BEST_PPO,
        "",
        "the settings of the first command, `bipedal-walker-fast`, without a stop: plain networks of 96 units, "
        "updates of five passes that learn from the last two trajectories, learning rates steered by the KL "
        "divergence, an action costs 0.056 times its size from a training score of 0 on; in addition averaged "
        "weights, γ that falls from 0.995 to 0.98, and falls that cost 40 from a training score of 150 on and 100 "
        "from 250 on",
    ),
    "rough-ground": Record(
        "-m companions.OffPolicyAgentTrainer bipedal-walker-hardcore-td3 --precision bfloat16",
        ROUGH_GROUND,
        "mirror symmetry",
        f"TD3 with networks of 256 units, whose products are rounded to bfloat16; {MOSTLY_SYMMETRIC}; {HELD}",
    ),
    "rough-ground-float32": Record(
        "-m companions.OffPolicyAgentTrainer bipedal-walker-hardcore-td3",
        ROUGH_GROUND,
        "mirror symmetry",
        f"TD3 with networks of 256 units; {MOSTLY_SYMMETRIC}; {HELD}",
    ),
    "rough-ground-plain": Record(
        "-m companions.OffPolicyAgentTrainer bipedal-walker-hardcore-td3 --no-symmetry",
        ROUGH_GROUND,
        "",
        f"TD3 with plain networks of 256 units, layer normalisation in the critics, a cost of actions; {HELD}",
    ),
    "cartpole-steps": Record(
        "PPOAgentTrainer.py cartpole-fewest-steps",
        CARTPOLE,
        "mirror symmetry",
        f"symmetric networks; {OFTEN}",
    ),
    "cartpole-steps-plain": Record(
        "PPOAgentTrainer.py cartpole-fewest-steps --no-symmetry",
        CARTPOLE,
        "",
        OFTEN,
    ),
    "pendulum-seconds": Record(
        "-m companions.OffPolicyAgentTrainer pendulum-td3-seconds",
        PENDULUM,
        "mirror symmetry",
        "symmetric networks of 64 units, an update a step in calls of 40, a warm-up of 200 steps, quick targets, an "
        "actor that learns in every update, averaged weights, one validation",
    ),
    "pendulum-seconds-plain": Record(
        "-m companions.OffPolicyAgentTrainer pendulum-td3-seconds --no-symmetry",
        PENDULUM,
        "",
        "networks of 64 units, an update a step in calls of 40, a warm-up of 200 steps, quick targets, an actor that "
        "learns in every update, averaged weights, one validation",
    ),
}
