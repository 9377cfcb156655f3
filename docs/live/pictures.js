// Pictures of the worlds on a canvas. draw(context, state, action, push, colours) works in metres: the middle of
// the picture is at 0, 0, x grows to the right and y upwards.

"use strict";

const LivePictures = (() => {
  const THIN = 0.02; // m, a line

  function line(context, colour, width, ...points) {
    context.strokeStyle = colour;
    context.lineWidth = width;
    context.lineCap = "round";
    context.beginPath();
    points.forEach(([x, y]) => context.lineTo(x, y));
    context.stroke();
  }

  function dot(context, colour, [x, y], radius) {
    context.fillStyle = colour;
    context.beginPath();
    context.arc(x, y, radius, 0, 2 * Math.PI);
    context.fill();
  }

  // An arrow to the right, or to the left if its length is negative.
  function arrow(context, colour, [x, y], length) {
    if (Math.abs(length) < 0.02) {
      return;
    }
    const head = 0.08 * Math.sign(length);
    const end = x + length;
    line(context, colour, 2 * THIN, [x, y], [end, y]);
    line(context, colour, 2 * THIN, [end - head, y + 0.08], [end, y], [end - head, y - 0.08]);
  }

  // An arrow around the motor; a positive torque turns to the left.
  function turn(context, colour, radius, torque) {
    const swept = (torque / LiveWorlds.pendulum.largestPush) * 0.75 * Math.PI;
    if (Math.abs(swept) < 0.05) {
      return;
    }
    const top = Math.PI / 2;
    context.strokeStyle = colour;
    context.lineWidth = 2 * THIN;
    context.beginPath();
    context.arc(0, 0, radius, top, top + swept, swept < 0);
    context.stroke();
    const at = (distance, angle) => [distance * Math.cos(angle), distance * Math.sin(angle)];
    const back = top + swept - Math.sign(swept) * 0.35;
    line(context, colour, 2 * THIN, at(radius + 0.07, back), at(radius, top + swept), at(radius - 0.07, back));
  }

  const pendulum = {
    size: [3.75, 2.5], // m

    draw(context, state, action, push, colours) {
      line(context, colours.ink, 0.16, [0, 0], LiveWorlds.pendulum.tip(state));
      dot(context, colours.paper, [0, 0], 0.04);
      turn(context, colours.agent, 0.3, action ?? 0);
      turn(context, colours.push, 0.45, push);
    },
  };

  const GROUND = -0.9; // m, where the cart's wheels stand
  const CART = { width: 0.5, height: 0.28 }; // m

  const cartpole = {
    size: [5.4, 3.6], // m

    draw(context, state, action, push, colours) {
      const { farthest, half, force } = LiveWorlds.cartpole;
      const [place, , leaning] = state;
      const angle = Math.min(Math.max(leaning, -Math.PI / 2), Math.PI / 2); // it comes to rest on the cart
      const top = GROUND + CART.height;
      const middle = GROUND + CART.height / 2;
      line(context, colours.faint, THIN, [-farthest, GROUND], [farthest, GROUND]);
      for (const end of [-farthest, farthest]) {
        line(context, colours.faint, THIN, [end, GROUND - 0.1], [end, GROUND + 0.1]);
      }
      context.fillStyle = colours.ink;
      context.fillRect(place - CART.width / 2, GROUND, CART.width, CART.height);
      const foot = [place, top];
      line(context, colours.pole, 0.1, foot, [
        place + 2 * half * Math.sin(angle),
        top + 2 * half * Math.cos(angle),
      ]);
      dot(context, colours.paper, foot, 0.03);
      const agent = action === null ? 0 : action === 1 ? force : -force;
      arrow(context, colours.agent, [place + (Math.sign(agent) * CART.width) / 2, middle + 0.07], 0.05 * agent);
      arrow(context, colours.push, [place + (Math.sign(push) * CART.width) / 2, middle - 0.07], 0.05 * push);
    },
  };

  // A body's corners, at [place x, place y, angle].
  function shape(context, colour, [x, y, angle], corners) {
    const [cosine, sine] = [Math.cos(angle), Math.sin(angle)];
    context.fillStyle = colour;
    context.beginPath();
    corners.forEach(([a, b]) => context.lineTo(x + a * cosine - b * sine, y + a * sine + b * cosine));
    context.closePath();
    context.fill();
  }

  const walker = {
    size: [14, 5.6], // m

    draw(context, state, action, push, colours) {
      const { hull, leg, groundStep, ahead } = LiveWorlds.walker;
      const bottom = -walker.size[1] / 2;
      context.translate(-state[0] - ahead, bottom - 1.6);
      const surface = state.ground.map((height, i) => [i * groundStep, height]);
      const [first, last] = [surface[0], surface[surface.length - 1]];
      shape(context, colours.ground, [0, 0, 0], [[first[0], 0], ...surface, [last[0], 0]]);
      const box = (width) => [-1, 1].flatMap((x) => [-x, x].map((y) => [(x * width) / 2, (y * leg.height) / 2]));
      const bodies = Array.from({ length: 5 }, (_, i) => state.slice(3 * i, 3 * i + 3));
      const limb = (i, colour) => {
        shape(context, colour, bodies[i], box(leg.width));
        shape(context, colour, bodies[i + 1], box(0.8 * leg.width));
      };
      limb(1, colours.faint); // the far leg
      shape(context, colours.ink, bodies[0], hull);
      limb(3, colours.pole);
      arrow(context, colours.push, bodies[0], 0.05 * push);
    },
  };

  return { pendulum, cartpole, walker };
})();
