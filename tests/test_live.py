"""The page Live: its JavaScript acts as the agents, steps as Gymnasium, and scores what the agents' cards say."""

import json
import re
import sys
from pathlib import Path

import gymnasium
import numpy as np
import pytest
from py_mini_racer import MiniRacer

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "experiments"))

import live  # noqa: E402

from common.errors import UserError  # noqa: E402
from common.rollout.evaluation import EVALUATION_SEED  # noqa: E402
from common.rollout.policies import CategoricalPolicy, NormalPolicy, SquashedPolicy  # noqa: E402
from programs import shipped  # noqa: E402

FOLDER = ROOT / "docs" / "live"
FILES = ("weights", "physics", "planck.min", "walker", "policy", "episode", "pictures")  # page.js needs a browser
CASES = [(name, stage) for name in live.NAMES for stage in shipped.STAGES]
EXACT = ("pendulum", "cartpole")  # step as Gymnasium does


@pytest.fixture(scope="module")
def page():
    """The page's JavaScript."""
    context = MiniRacer()
    for name in FILES:
        context.eval((FOLDER / f"{name}.js").read_text(encoding="utf-8"))
    return context


def value_of(page, expression):
    return json.loads(page.eval(f"JSON.stringify({expression})"))


def card(name):
    return json.loads((shipped.AGENTS / live.NAMES[name] / shipped.CARD).read_text(encoding="utf-8"))


def recorded(name):
    with np.load(shipped.AGENTS / live.NAMES[name] / shipped.RECORDED) as arrays:
        return arrays["observations"]


def environment(name):
    env = gymnasium.make(card(name)["environment"], max_episode_steps=card(name)["max_episode_steps"])
    return env, env.unwrapped


def test_the_page_loads_every_script_in_order_and_each_is_whole(page):
    """page.js needs a browser; here it is only parsed."""
    loaded = re.findall(r'<script src="live/([\w.]+)\.js"></script>', (ROOT / "docs" / "live.md").read_text("utf-8"))
    assert loaded == [*FILES, "page"] and set(loaded) == {path.stem for path in FOLDER.glob("*.js")}
    code = (FOLDER / "page.js").read_text(encoding="utf-8")
    assert page.eval(f"typeof new Function({json.dumps(code)})") == "function"


# -- weights --


def test_the_weights_are_what_the_script_writes():
    assert live.WEIGHTS.read_text(encoding="utf-8") == live.script()
    assert live.WEIGHTS.stat().st_size < 400_000


@pytest.mark.parametrize("name", ["best-walker", "lander"])
def test_an_agent_that_the_page_cannot_show_is_refused(name):
    with pytest.raises(UserError, match=f"{name} cannot act on the page"):
        live.agent(name)


# -- the policy --


@pytest.mark.parametrize(("name", "stage"), CASES)
def test_outputs_and_actions_are_the_agents(page, name, stage):
    """Whole actions say little of a network; its outputs are numbers."""
    agent, _, _ = shipped.load(shipped.AGENTS / live.NAMES[name], stage)
    observations, policy = recorded(name), agent.policy
    assert isinstance(policy, CategoricalPolicy | NormalPolicy | SquashedPolicy)
    outputs, *_ = policy.heads(observations)
    for function, expected in (("act", agent.action_map(policy.act(observations)).squeeze()), ("outputs", outputs)):
        read = f"LivePolicy.read(LiveWeights.{name}, '{stage}')"
        found = value_of(page, f"{observations.tolist()}.map(o => LivePolicy.{function}({read}, o))")
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)


# -- the physics --


def actions_of(env, steps, rng):
    space = env.action_space
    if isinstance(space, gymnasium.spaces.Discrete):
        return rng.integers(space.n, size=steps).tolist()
    return rng.uniform(1.5 * space.low, 1.5 * space.high, (steps, 1)).astype(np.float32)[:, 0].tolist()


@pytest.mark.parametrize("name", EXACT)
def test_steps_are_gymnasiums(page, name):
    """200 steps with random actions; an episode that ends early is followed by another."""
    rng, steps = np.random.default_rng(0), 200
    env, inner = environment(name)
    env.reset(seed=7)
    start, ends = inner.state.tolist(), 0
    for action in actions_of(env, steps, rng):
        state = value_of(page, f"LiveWorlds.{name}.step({start}, {action}, 0)")
        taken = action if isinstance(action, int) else np.float32([action])
        observation, reward, terminated, truncated, _ = env.step(taken)
        np.testing.assert_allclose(state["state"], inner.state, rtol=0, atol=1e-5)
        np.testing.assert_allclose(
            value_of(page, f"LiveWorlds.{name}.observe({state['state']})"), observation, rtol=0, atol=1e-5
        )
        assert state["reward"] == pytest.approx(reward, abs=1e-5) and state["terminated"] == terminated
        start = state["state"]  # the page's own: differences would add up
        if terminated or truncated:
            env.reset()
            start, ends = inner.state.tolist(), ends + 1
    assert ends >= (1 if name == "pendulum" else 5)


def test_the_pendulum_is_as_fast_and_costs_as_much_as_gymnasiums_wherever_it_is(page):
    """Its angle grows beyond a turn, and its speed is limited."""
    env, inner = environment("pendulum")
    env.reset(seed=0)
    rng = np.random.default_rng(1)
    for _ in range(50):
        state = rng.uniform([-20.0, -8.0], [20.0, 8.0])
        inner.state = state
        _, reward, *_ = inner.step(np.float32([2.0]))
        after = value_of(page, f"LiveWorlds.pendulum.step({state.tolist()}, 2, 0)")
        np.testing.assert_allclose(after["state"], inner.state, rtol=0, atol=1e-5)
        assert after["reward"] == pytest.approx(reward, abs=1e-5)


@pytest.mark.parametrize(("name", "bounds"), [("pendulum", [np.pi, 1.0]), ("cartpole", [0.05] * 4)])
def test_episodes_start_where_gymnasiums_do(page, name, bounds):
    for random, sign in ((0, -1), (0.5, 0), (1, 1)):
        np.testing.assert_allclose(value_of(page, f"LiveWorlds.{name}.start(() => {random})"), sign * np.array(bounds))


def test_a_push_adds_to_the_agents_force(page):
    """The agent's 10 N to the right and 20 N to the left are 10 N to the left; a torque may exceed its motor's."""
    both, other = (
        value_of(page, f"LiveWorlds.cartpole.step([0.1, 0.2, 0.03, -0.1], {action}).state")
        for action in ("1, -20", "0")
    )
    assert both == pytest.approx(other)
    _, inner = environment("pendulum")
    inner.max_torque = 6.0
    inner.state = np.array([0.3, -0.2])
    inner.step(np.float32([5.0]))
    after = value_of(page, "LiveWorlds.pendulum.step([0.3, -0.2], 2, 3).state")
    np.testing.assert_allclose(after, inner.state, rtol=0, atol=1e-6)


@pytest.mark.parametrize(
    ("name", "state", "pointer", "sign"),
    [
        ("cartpole", [0.5, 0, 0, 0], (1.0, 0.0), 1),  # to the right of the cart
        ("cartpole", [0.5, 0, 0, 0], (0.2, 0.0), -1),
        ("pendulum", [0.0, 0], (-1.0, 1.0), 1),  # the tip is on top; a pull to the left turns to the left
        ("pendulum", [0.0, 0], (1.0, 1.0), -1),
        ("pendulum", [np.pi, 0], (1.0, -1.0), 1),  # hanging: a pull to the right turns it anticlockwise
        ("pendulum", [np.pi / 2, 0], (-1.0, 1.0), -1),  # the tip is on the left; a pull upwards
    ],
)
def test_a_pointer_pulls_towards_itself(page, name, state, pointer, sign):
    push = page.eval(f"LiveWorlds.{name}.pushTowards({state}, {pointer[0]}, {pointer[1]})")
    assert np.sign(push) == sign
    place = "s => s[0]" if name == "cartpole" else "LiveWorlds.pendulum.tip"

    def distance(pushed):
        step = f"const {{step}} = LiveWorlds.{name}; let s = {state};"
        step += f"for (let k = 0; k < 3; k++) s = step(s, null, {pushed}).state;"
        where = np.atleast_1d(json.loads(page.eval(f"(() => {{{step} return JSON.stringify(({place})(s))}})()")))
        return np.linalg.norm(np.array(pointer)[: len(where)] - where)

    assert distance(push) < distance(0)


def test_the_trained_cart_keeps_its_balance_against_an_arrow_key(page):
    """The page says so, and that the key pushes with 5 N."""
    starts = np.random.default_rng(0).uniform(-0.05, 0.05, (10, 4)).tolist()
    assert page.eval("LiveWorlds.cartpole.keyPush") == 5
    standing = page.eval(f"""{starts}.every((start, i) => {{
        const policy = LivePolicy.read(LiveWeights.cartpole, "trained");
        const episode = new LiveEpisode(LiveWorlds.cartpole, policy, LiveWeights.cartpole.limit, start);
        while (!episode.over) episode.step(i % 2 ? 5 : -5);
        return !episode.terminated && episode.pushed && episode.steps === 1024;
    }})""")
    assert standing


# -- episodes --


@pytest.mark.parametrize(("name", "stage"), [case for case in CASES if case[0] in EXACT])
def test_scores_are_those_of_the_card(page, name, stage):
    """The same 100 episodes, from states that Gymnasium draws; sums are rounded differently here."""
    env, inner = environment(name)
    said = card(name)["stages"][stage]
    starts = []
    for seed in range(EVALUATION_SEED, EVALUATION_SEED + said["episodes"]):
        env.reset(seed=seed)
        starts.append(inner.state.tolist())
    returns = value_of(
        page,
        f"{starts}.map(s => new LiveEpisode(LiveWorlds.{name}, LivePolicy.read(LiveWeights.{name}, '{stage}'), "
        f"LiveWeights.{name}.limit, s).play())",
    )
    assert np.mean(returns) == pytest.approx(said["mean"], rel=0.01)


class Drawn:
    """A random generator that writes down its draws between 0 and 1, from which it makes all others."""

    def __init__(self, seed):
        self._rng, self.draws = np.random.default_rng(seed), []

    def uniform(self, low, high):
        self.draws.append(self._rng.random())
        self.last = low + (high - low) * self.draws[-1]
        return self.last

    def integers(self, low, high):
        return int(self.uniform(low, high))


def walkers_start(seed):
    """Of Gymnasium's walker: draws, heights of the ground, first observation; and the same start on the page."""
    env, inner = environment("walker")
    inner.np_random = drawn = Drawn(seed)
    observation, _ = env.reset()
    start = {"ground": inner.terrain_y, "kick": drawn.last}  # the push in the first step is drawn last
    return drawn.draws, inner.terrain_y, observation, f"Object.assign(Array(15).fill(0), {json.dumps(start)})"


def test_the_walkers_ground_is_drawn_as_gymnasium_draws_it(page):
    draws, ground, *_ = walkers_start(0)
    made = value_of(page, f"(d => LiveWorlds.walker.start(() => d.shift()).ground)({draws})")
    np.testing.assert_allclose(made, ground, rtol=0, atol=1e-12)


def test_the_walker_starts_where_gymnasiums_does_and_scores_as_much(page):
    """Planck rounds otherwise than Box2D, so that later states differ. The card's score is that of 100 episodes."""
    returns = []
    for seed in range(3):
        *_, observation, start = walkers_start(seed)
        np.testing.assert_allclose(value_of(page, f"LiveWorlds.walker.observe({start})"), observation, atol=1e-5)
        episode = f"new LiveEpisode(LiveWorlds.walker, LivePolicy.read(LiveWeights.walker, 'trained'), 1600, {start})"
        returns.append(value_of(page, f"{episode}.play()"))
    assert np.mean(returns) == pytest.approx(card("walker")["stages"]["trained"]["mean"], rel=0.02)
