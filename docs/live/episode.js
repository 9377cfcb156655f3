// One episode of an agent in its world.

"use strict";

class LiveEpisode {
  // world: one of LiveWorlds; policy: from LivePolicy.read; limit: the largest number of steps
  constructor(world, policy, limit, start) {
    Object.assign(this, { world, policy, limit, state: start });
    this.steps = 0;
    this.total = 0; // of the rewards: the return so far
    this.action = null; // the last one
    this.terminated = false; // the pole fell, or the cart left
    this.pushed = false; // whether the reader pushed
  }

  get over() {
    return this.terminated || this.steps >= this.limit;
  }

  step(push = 0) {
    this.action = LivePolicy.act(this.policy, this.world.observe(this.state));
    const after = this.world.step(this.state, this.action, push);
    this.state = after.state;
    this.total += after.reward;
    this.terminated = after.terminated;
    this.pushed = this.pushed || push !== 0;
    this.steps += 1;
  }

  // To the end, without pictures and pushes.
  play() {
    while (!this.over) {
      this.step();
    }
    return this.total;
  }
}
