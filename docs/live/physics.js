// Pendulum-v1 and CartPole-v1, without a picture. Constants and equations are those of Gymnasium 1.4.0, in
// gymnasium/envs/classic_control/pendulum.py and gymnasium/envs/classic_control/cartpole.py. tests/test_live.py steps
// both versions side by side. What Gymnasium does not have is the push: a torque or a force that the reader adds.
//
// Each world has
//   seconds               the time of a step
//   start(random)         the state at the start of an episode; random() is uniform in [0, 1)
//   observe(state)        what the agent sees, in the precision of float32
//   step(state, action, push)  → {state, reward, terminated}; without an action (null) the agent does nothing
//   largestPush           of the reader's pointer, in newtons or newton metres
//   keyPush               of an arrow key
//   pushTowards(state, x, y)   the push of a pointer at x, y: metres to the right of the middle, and upwards

"use strict";

const LiveWorlds = (() => {
  const uniform = (random, bound) => bound * (2 * random() - 1);
  const clip = (value, bound) => Math.min(Math.max(value, -bound), bound);
  const float32 = Math.fround;

  // A rod that hangs from a motor. State: the angle from upright, positive to the left, in radians, and its velocity.
  const pendulum = {
    seconds: 0.05,
    largestPush: 5, // N m; as much as the rod's weight when it is level
    keyPush: 5,
    strongestAction: 2, // N m
    fastest: 8, // radians a second
    gravity: 10, // m/s²
    mass: 1, // kg
    length: 1, // m

    start: (random) => [uniform(random, Math.PI), uniform(random, 1)],

    observe: ([angle, velocity]) => [Math.cos(angle), Math.sin(angle), velocity].map(float32),

    step(state, action, push = 0) {
      const [angle, velocity] = state;
      const { gravity, mass, length, seconds } = pendulum;
      const torque = clip(float32(action ?? 0), pendulum.strongestAction);
      const cost = fromUpright(angle) ** 2 + 0.1 * velocity ** 2 + 0.001 * torque ** 2;
      const inertia = (mass * length ** 2) / 3; // of a rod about its end
      const weight = (mass * gravity * length) / 2; // torque of a level rod's weight
      const turned = float32(torque / inertia); // Gymnasium multiplies its float32 torque in float32
      const acceleration = (weight * Math.sin(angle) + push) / inertia + turned;
      const faster = clip(velocity + acceleration * seconds, pendulum.fastest);
      return { state: [angle + faster * seconds, faster], reward: -cost, terminated: false };
    },

    tip: ([angle]) => [-pendulum.length * Math.sin(angle), pendulum.length * Math.cos(angle)],

    // A spring between the pointer and the tip: the part of its pull that is at right angles to the rod.
    pushTowards(state, x, y) {
      const [tipX, tipY] = pendulum.tip(state);
      const stiffness = 5; // N/m
      const torque = tipX * (y - tipY) - tipY * (x - tipX);
      return clip(stiffness * torque, pendulum.largestPush);
    },
  };

  // The angle from upright, in [−π, π).
  function fromUpright(angle) {
    const turn = 2 * Math.PI;
    const rest = (angle + Math.PI) % turn; // has the sign of the angle
    return (rest < 0 ? rest + turn : rest) - Math.PI;
  }

  // A pole on a cart. State: the cart's place and velocity, the pole's angle from upright, positive to the right, in
  // radians, and its velocity.
  const cartpole = {
    seconds: 0.02,
    largestPush: 12, // N; more than the agent's own force
    keyPush: 5,
    force: 10, // N, to the left (action 0) or to the right (action 1)
    gravity: 9.8, // m/s²
    cart: 1, // kg
    pole: 0.1, // kg
    half: 0.5, // m, from the pole's foot to its centre of mass
    farthest: 2.4, // m; beyond it the episode ends
    steepest: (12 * Math.PI) / 180, // radians; beyond it the episode ends

    start: (random) => [0, 0, 0, 0].map(() => uniform(random, 0.05)),

    observe: (state) => state.map(float32),

    // Euler's method: places change by the velocities before the step.
    step(state, action, push = 0) {
      const [place, velocity, angle, turning] = state;
      const { gravity, pole, half, seconds } = cartpole;
      const both = cartpole.cart + pole;
      const agent = action === null ? 0 : action === 1 ? cartpole.force : -cartpole.force;
      const sine = Math.sin(angle);
      const cosine = Math.cos(angle);
      const shared = (agent + push + pole * half * turning ** 2 * sine) / both;
      const turn = (gravity * sine - cosine * shared) / (half * (4 / 3 - (pole * cosine ** 2) / both));
      const acceleration = shared - (pole * half * turn * cosine) / both;
      const next = [
        place + seconds * velocity,
        velocity + seconds * acceleration,
        angle + seconds * turning,
        turning + seconds * turn,
      ];
      const terminated = Math.abs(next[0]) > cartpole.farthest || Math.abs(next[2]) > cartpole.steepest;
      return { state: next, reward: 1, terminated };
    },

    // A spring between the pointer and the cart.
    pushTowards([place], x) {
      const stiffness = 5; // N/m
      return clip(stiffness * (x - place), cartpole.largestPush);
    },
  };

  return { pendulum, cartpole };
})();
