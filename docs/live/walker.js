// BipedalWalker-v3, whose constants and equations are those of Gymnasium 1.4.0, in
// gymnasium/envs/box2d/bipedal_walker.py. Its bodies are moved by Planck (planck.min.js), a version of Box2D in
// JavaScript. Gymnasium's Box2D rounds to float32, so the two part slowly; tests/test_live.py says how far.
//
// The state is the places and angles of the five bodies, for the picture. What the simulation needs besides is in its
// properties: `ground` (heights), `kick` (N, in the first step) and, from the first step on, `simulation`.

"use strict";

LiveWorlds.walker = (() => {
  const { World, Vec2, Edge, Polygon, Box, RevoluteJoint } = planck;
  const SCALE = 30; // of Gymnasium's pixels to metres
  const SECONDS = 1 / 50;
  const TORQUE = 80; // N m, a motor's
  const SPEEDS = [4, 6, 4, 6]; // radians a second: hip, knee, hip, knee
  const LIDAR = { rays: 10, length: 160 / SCALE };
  const GROUND = { steps: 200, step: 14 / SCALE, height: 400 / SCALE / 4, start: 20, end: 10 };
  const HULL = [[-30, 9], [6, 9], [34, 1], [34, -8], [-30, -8]].map(([x, y]) => [x / SCALE, y / SCALE]);
  const LEG = { width: 8 / SCALE, height: 34 / SCALE, down: -8 / SCALE };
  const uniform = (random, low, high) => low + (high - low) * random();
  const clip = (value, bound) => Math.min(Math.max(value, -bound), bound);

  // Heights of the ground, GROUND.step apart. Every few steps one is as high as the one before.
  function ground(random) {
    const heights = [];
    let [height, slope, flat, repeat] = [GROUND.height, 0, GROUND.start, false];
    for (let i = 0; i < GROUND.steps; i++) {
      if (!repeat) {
        slope = 0.8 * slope + 0.01 * Math.sign(GROUND.height - height);
        slope += i > GROUND.start ? uniform(random, -1, 1) / SCALE : 0;
        height += slope;
      }
      heights.push(height);
      flat -= 1;
      repeat = flat === 0;
      flat = repeat ? 5 + Math.floor(5 * random()) : flat;
    }
    return heights;
  }

  // Bodies, joints and contacts, after the step without torque with which an episode begins.
  class Simulation {
    constructor({ ground, kick }) {
      this.world = new World({ gravity: new Vec2(0, -10) });
      this.world.on("begin-contact", (contact) => this.touch(contact, true));
      this.world.on("end-contact", (contact) => this.touch(contact, false));
      ground.slice(1).forEach((height, i) => {
        const ends = [[i, ground[i]], [i + 1, height]].map(([step, y]) => new Vec2(step * GROUND.step, y));
        const fixture = { shape: new Edge(...ends), friction: 2.5, filterCategoryBits: 1 };
        this.world.createBody().createFixture(fixture);
      });
      const [x, y] = [(GROUND.step * GROUND.start) / 2, GROUND.height + 2 * LEG.height];
      this.hull = this.body(x, y, 0, new Polygon(HULL.map((corner) => new Vec2(...corner))), 5, 0.1);
      this.hull.applyForceToCenter(new Vec2(kick, 0));
      [this.legs, this.joints] = [[], []];
      for (const side of [-1, 1]) {
        const top = y - LEG.down - LEG.height / 2;
        const upper = this.leg(x, top, side, LEG.width);
        this.join(this.hull, upper, LEG.down, side, [-0.8, 1.1]);
        this.join(upper, this.leg(x, top - LEG.height, side, 0.8 * LEG.width), -LEG.height / 2, 1, [-1.6, -0.1]);
      }
      this.fallen = false;
      this.step([0, 0, 0, 0], 0);
    }

    body(x, y, angle, shape, density, friction) {
      const made = this.world.createBody({ type: "dynamic", position: new Vec2(x, y), angle });
      made.createFixture({ shape, density, friction, filterCategoryBits: 0x20, filterMaskBits: 1 });
      return made;
    }

    leg(x, y, side, width) {
      const made = this.body(x, y, 0.05 * side, new Box(width / 2, LEG.height / 2), 1, 0.2);
      this.legs.push(made);
      return made;
    }

    join(bodyA, bodyB, at, motorSpeed, [lowerAngle, upperAngle]) {
      const anchors = { localAnchorA: new Vec2(0, at), localAnchorB: new Vec2(0, LEG.height / 2) };
      const motor = { enableMotor: true, maxMotorTorque: TORQUE, motorSpeed };
      const limit = { enableLimit: true, lowerAngle, upperAngle };
      this.joints.push(this.world.createJoint(new RevoluteJoint({ bodyA, bodyB, ...anchors, ...motor, ...limit })));
    }

    touch(contact, begins) {
      const touched = [contact.getFixtureA().getBody(), contact.getFixtureB().getBody()];
      this.fallen ||= begins && touched.includes(this.hull);
      touched.filter((body) => this.legs.includes(body)).forEach((leg) => (leg.onGround = begins));
    }

    step(action, push) {
      this.joints.forEach((joint, i) => {
        joint.setMotorSpeed(SPEEDS[i] * Math.sign(action[i]));
        joint.setMaxMotorTorque(TORQUE * Math.min(Math.abs(action[i]), 1));
      });
      if (push !== 0) {
        this.hull.applyForceToCenter(new Vec2(push, 0), true);
      }
      this.world.step(SECONDS, 180, 60);
    }

    // Each ray's part before it meets the ground; 1 if it does not.
    rays() {
      const from = this.hull.getPosition();
      return Array.from({ length: LIDAR.rays }, (_, i) => {
        const angle = (1.5 * i) / LIDAR.rays;
        const reach = new Vec2(Math.sin(angle) * LIDAR.length, -Math.cos(angle) * LIDAR.length);
        let free = 1;
        this.world.rayCast(from, Vec2.add(from, reach), (fixture, point, normal, fraction) => {
          if (!(fixture.getFilterCategoryBits() & 1)) {
            return -1; // the walker's own body
          }
          free = fraction;
          return fraction;
        });
        return free;
      });
    }

    observe() {
      const { x, y } = this.hull.getLinearVelocity();
      const leg = (side) => {
        const [hip, knee] = this.joints.slice(side, side + 2);
        const bent = [hip.getJointAngle(), hip.getJointSpeed() / SPEEDS[0]];
        const knees = [knee.getJointAngle() + 1, knee.getJointSpeed() / SPEEDS[1]];
        return [...bent, ...knees, this.legs[side + 1].onGround ? 1 : 0];
      };
      const moving = [2 * this.hull.getAngularVelocity() * SECONDS, 0.3 * x * 20 * SECONDS];
      const height = (0.3 * y * 400 * SECONDS) / SCALE;
      return [this.hull.getAngle(), ...moving, height, ...leg(0), ...leg(2), ...this.rays()];
    }

    // What the reward is the growth of.
    shaping() {
      return (130 * this.hull.getPosition().x) / SCALE - 5 * Math.abs(this.hull.getAngle());
    }

    state({ ground, kick }) {
      const places = [this.hull, ...this.legs].flatMap((body) => [...Object.values(body.getPosition()), body.getAngle()]);
      return Object.assign(places, { ground, kick, simulation: this });
    }
  }

  // An episode starts from a state without a simulation, so that it can start from it again.
  const begun = (state) => state.simulation ?? new Simulation(state);

  const walker = {
    seconds: SECONDS,
    largestPush: 60, // N
    keyPush: 20,
    hull: HULL,
    leg: LEG,
    groundStep: GROUND.step,

    start(random) {
      const drawn = { ground: ground(random), kick: uniform(random, -5, 5) };
      return Object.assign([...new Simulation(drawn).state(drawn)], drawn);
    },

    observe: (state) => begun(state).observe().map(Math.fround),

    step(state, action, push = 0) {
      const simulation = begun(state);
      const before = simulation.shaping();
      simulation.step(action ?? [0, 0, 0, 0], push);
      const { x } = simulation.hull.getPosition();
      const failed = simulation.fallen || x < 0;
      const force = (action ?? []).reduce((sum, one) => sum + Math.min(Math.abs(one), 1), 0);
      const reward = failed ? -100 : simulation.shaping() - before - 0.00035 * TORQUE * force;
      const arrived = x > (GROUND.steps - GROUND.end) * GROUND.step;
      return { state: simulation.state(state), reward, terminated: failed || arrived };
    },

    // A spring between the pointer and the hull.
    pushTowards(_, x) {
      const stiffness = 15; // N/m
      return clip(stiffness * (x + walker.ahead), walker.largestPush);
    },

    ahead: 3, // m; the picture's middle is so far ahead of the hull
  };
  return walker;
})();
