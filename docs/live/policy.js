// The agents' policies, as common/rollout/policies.py has them: dense layers, and the deterministic action.
// weights.js holds the arrays.

"use strict";

const LivePolicy = (() => {
  const ACTIVATIONS = {
    linear: (value) => value,
    relu: (value) => Math.max(value, 0),
    tanh: (value) => Math.tanh(value),
  };
  const clip = (value) => Math.min(Math.max(value, -1), 1);
  const LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

  // float32 numbers from base64, the least significant byte first. Not every JavaScript has a function for it.
  function numbers(base64) {
    const bytes = [];
    let bits = 0;
    let size = 0;
    for (const letter of base64.replace(/=+$/, "")) {
      bits = ((bits << 6) | LETTERS.indexOf(letter)) & 0xffff;
      size += 6;
      if (size >= 8) {
        size -= 8;
        bytes.push((bits >> size) & 0xff);
      }
    }
    const view = new DataView(Uint8Array.from(bytes).buffer);
    return Float32Array.from({ length: bytes.length / 4 }, (_, i) => view.getFloat32(4 * i, true));
  }

  // A stage of an agent in weights.js → what act() needs.
  function read(agent, stage) {
    const layers = agent.stages[stage].layers.map((layer) => ({
      kernel: numbers(layer.kernel), // [in, out], row by row
      bias: numbers(layer.bias), // [out]
      activation: ACTIVATIONS[layer.activation],
    }));
    return { kind: agent.kind, low: agent.low, high: agent.high, layers };
  }

  // features [in] → [out]
  function dense({ kernel, bias, activation }, features) {
    const size = bias.length;
    const sums = Array.from(bias);
    for (let row = 0; row < features.length; row++) {
      for (let column = 0; column < size; column++) {
        sums[column] += features[row] * kernel[row * size + column];
      }
    }
    return sums.map(activation);
  }

  // What the last layer returns for an observation.
  const outputs = (policy, observation) =>
    policy.layers.reduce((features, layer) => dense(layer, features), observation);

  // The environment's action: a whole number, or a number between low and high, or several.
  function act(policy, observation) {
    const last = outputs(policy, observation);
    if (policy.kind === "categorical") {
      return last.indexOf(Math.max(...last)); // the likeliest
    }
    const action = policy.low.map((low, i) => {
      const [middle, half] = [(policy.high[i] + low) / 2, (policy.high[i] - low) / 2];
      // Of the mean; a standard deviation beside it is for sampling.
      return middle + half * (policy.kind === "squashed" ? Math.tanh(last[i]) : clip(last[i]));
    });
    return action.length === 1 ? action[0] : action;
  }

  return { read, outputs, act };
})();
