// The figures of the page Live: a picture, buttons and numbers for each element with the class live.

"use strict";

(() => {
  const REST = 1.2; // seconds between two episodes
  const LONGEST = 0.1; // seconds that one picture may catch up; a hidden page stands still

  // The numbers below a picture, and the classes that colour some of them as the picture's arrows.
  const ROWS = {
    "trained for": "",
    score: "",
    step: "",
    "return so far": "",
    "last action": "live-by-agent",
    "your push": "live-by-reader",
    "last episode": "",
  };

  // What the page says about each agent.
  const WORDS = {
    walker: {
      label: "A walker with two legs. The agent moves its hips and knees, so that it walks to the far end.",
      push: "Press or drag in the picture: the body is pulled towards the pointer. ← and → push the body.",
      unit: "N",
      action: (action) => action.map((torque) => number(80 * torque, 0)).join(", ") + " N m",
      failure: (state) => (state.simulation.fallen ? "The walker fell." : "The walker has arrived."),
      keys: { ArrowLeft: -1, ArrowRight: 1 },
    },
    pendulum: {
      label: "A rod that hangs from a motor. The agent swings it up and holds it upright.",
      push: "Press or drag in the picture: the rod's tip is pulled towards the pointer. ← and → turn the rod.",
      unit: "N m",
      action: (action) => `${number(action, 2)} N m`,
      keys: { ArrowLeft: 1, ArrowRight: -1 }, // a positive torque turns to the left
    },
    cartpole: {
      label: "A pole on a cart. The agent pushes the cart left and right, so that the pole stays upright.",
      push: "Press or drag in the picture: the cart is pulled towards the pointer. ← and → push the cart.",
      unit: "N",
      action: (action) => (action === 1 ? "10 N right" : "10 N left"),
      failure: ([place]) =>
        Math.abs(place) > LiveWorlds.cartpole.farthest ? "The cart left the track." : "The pole fell.",
      keys: { ArrowLeft: -1, ArrowRight: 1 },
    },
  };

  // With a true minus and thousands separated.
  function number(value, digits) {
    const rounded = Number(value.toFixed(digits)) + 0; // no −0
    return rounded
      .toLocaleString("en-US", { minimumFractionDigits: digits, maximumFractionDigits: digits })
      .replace("-", "−");
  }

  function element(name, attributes = {}, ...children) {
    const made = document.createElement(name);
    Object.entries(attributes).forEach(([key, value]) => made.setAttribute(key, value));
    made.append(...children);
    return made;
  }

  function button(text, press) {
    const made = element("button", { type: "button", class: "md-button" }, text);
    made.addEventListener("click", press);
    return made;
  }

  class Figure {
    constructor(place) {
      this.name = place.dataset.agent;
      this.agent = LiveWeights[this.name];
      this.world = LiveWorlds[this.name];
      this.picture = LivePictures[this.name];
      this.words = WORDS[this.name];
      this.pointer = null; // where it is pressed, in metres
      this.key = 0; // −1, 0 or 1
      this.time = 0; // seconds since the last step
      this.rest = 0; // seconds until the next episode
      this.paused = matchMedia("(prefers-reduced-motion: reduce)").matches;
      this.build(place);
      this.choose("trained");
    }

    build(place) {
      this.canvas = element("canvas", { tabindex: 0, role: "img", "aria-label": this.words.label });
      this.canvas.style.aspectRatio = this.picture.size.join(" / ");
      this.stages = Object.keys(this.agent.stages).map((stage) => {
        const made = button(stage, () => this.choose(stage));
        made.dataset.stage = stage;
        return made;
      });
      this.pauseButton = button("", () => this.pause(!this.paused));
      this.pause(this.paused);
      this.values = {};
      const rows = Object.entries(ROWS).map(([name, colour]) => {
        this.values[name] = element("dd");
        return element("div", { class: colour }, element("dt", {}, name), this.values[name]);
      });
      const stages = element("div", { class: "live-buttons", role: "group", "aria-label": "Stage of training" });
      stages.append(...this.stages);
      const others = element("div", { class: "live-buttons" });
      others.append(button("restart", () => this.begin()), this.pauseButton);
      place.replaceChildren(
        element("p", { class: "live-name" }, element("strong", {}, this.agent.environment)),
        stages,
        this.canvas,
        element("p", { class: "live-push" }, this.words.push),
        element("dl", {}, ...rows),
        others,
      );
      this.listen();
    }

    listen() {
      const follow = (event) => {
        const box = this.canvas.getBoundingClientRect();
        const [width, height] = this.picture.size;
        this.pointer = [
          ((event.clientX - box.left) / box.width - 0.5) * width,
          (0.5 - (event.clientY - box.top) / box.height) * height,
        ];
      };
      this.canvas.addEventListener("pointerdown", (event) => {
        if (event.button === 0) {
          this.canvas.setPointerCapture(event.pointerId);
          follow(event);
        }
      });
      this.canvas.addEventListener("pointermove", (event) => this.pointer && follow(event));
      for (const end of ["pointerup", "pointercancel"]) {
        this.canvas.addEventListener(end, () => (this.pointer = null));
      }
      this.canvas.addEventListener("keydown", (event) => {
        if (event.key in this.words.keys) {
          this.key = this.words.keys[event.key];
          event.preventDefault();
        }
      });
      for (const end of ["keyup", "blur"]) {
        this.canvas.addEventListener(end, () => (this.key = 0));
      }
    }

    // Another stage of training, from the start of the same episode.
    choose(stage) {
      this.stage = stage;
      this.policy = LivePolicy.read(this.agent, stage);
      this.stages.forEach((made) => {
        const chosen = made.dataset.stage === stage;
        made.setAttribute("aria-pressed", chosen);
        made.classList.toggle("md-button--primary", chosen);
      });
      this.values["last episode"].textContent = "–";
      this.begin(this.start);
    }

    pause(paused) {
      this.paused = paused;
      this.pauseButton.textContent = paused ? "play" : "pause";
    }

    begin(start = this.world.start(Math.random)) {
      this.start = start;
      this.episode = new LiveEpisode(this.world, this.policy, this.agent.limit, start);
      this.shown = this.before = start; // states that the picture lies between
      this.time = 0;
    }

    push() {
      if (this.pointer) {
        return this.world.pushTowards(this.shown, ...this.pointer);
      }
      return this.key * this.world.keyPush;
    }

    advance(seconds) {
      this.time += seconds;
      while (this.time >= this.world.seconds) {
        this.time -= this.world.seconds;
        this.before = this.shown;
        if (!this.episode.over) {
          this.episode.step(this.push());
          this.shown = this.episode.state;
          if (this.episode.over) {
            this.end();
          }
        } else if (this.rest > 0) {
          this.rest -= this.world.seconds;
          if (this.episode.terminated) {
            this.shown = this.world.step(this.shown, null).state; // it falls on
          }
        } else {
          this.begin();
        }
      }
    }

    end() {
      this.rest = REST;
      const { total, pushed } = this.episode;
      this.values["last episode"].textContent = number(total, 1) + (pushed ? ", with pushes" : "");
    }

    frame(seconds) {
      if (!this.paused) {
        this.advance(Math.min(seconds, LONGEST));
      }
      this.write();
      this.draw();
    }

    write() {
      const { episode, agent, values } = this;
      const { steps, score } = agent.stages[this.stage];
      values["trained for"].textContent = `${number(steps, 0)} steps`;
      values.score.textContent = number(score, 1);
      values.step.textContent = `${number(episode.steps, 0)} of ${number(agent.limit, 0)}`;
      values["return so far"].textContent = number(episode.total, 1);
      values["last action"].textContent = episode.action === null ? "–" : this.words.action(episode.action);
      values["your push"].textContent = `${number(this.push(), 1)} ${this.words.unit}`;
    }

    draw() {
      const { canvas } = this;
      const ratio = window.devicePixelRatio || 1;
      const [width, height] = [canvas.clientWidth, canvas.clientHeight].map((length) => Math.round(length * ratio));
      if (canvas.width !== width || canvas.height !== height) {
        [canvas.width, canvas.height] = [width, height];
      }
      const context = canvas.getContext("2d");
      context.setTransform(1, 0, 0, 1, 0, 0);
      context.clearRect(0, 0, width, height);
      const colours = this.colours();
      if (this.episode.over) {
        context.fillStyle = colours.ink;
        context.font = `${15 * ratio}px ${getComputedStyle(canvas).fontFamily}`;
        context.fillText(this.ending(), 0, 18 * ratio); // beside an upright rod
      }
      const scale = width / this.picture.size[0];
      context.setTransform(scale, 0, 0, -scale, width / 2, height / 2);
      const part = this.time / this.world.seconds;
      const between = this.shown.map((value, i) => this.before[i] + part * (value - this.before[i]));
      const state = Object.assign(between, { ground: this.shown.ground });
      const action = this.episode.over ? null : this.episode.action;
      this.picture.draw(context, state, action, this.episode.over ? 0 : this.push(), colours);
    }

    ending() {
      const { terminated, state } = this.episode;
      return terminated ? this.words.failure(state) : "The episode ended.";
    }

    // Those of the page, which the reader may change from light to dark.
    colours() {
      const style = getComputedStyle(this.canvas);
      const named = (name) => style.getPropertyValue(name).trim() || style.color;
      return {
        ink: style.color,
        faint: named("--md-default-fg-color--light"),
        paper: named("--md-default-bg-color"),
        pole: named("--live-pole"),
        ground: named("--live-ground"),
        agent: named("--live-agent"),
        push: named("--live-push"),
      };
    }
  }

  const figures = Array.from(document.querySelectorAll(".live"), (place) => new Figure(place));
  let last = performance.now();

  function next(now) {
    figures.forEach((figure) => figure.frame((now - last) / 1000));
    last = now;
    requestAnimationFrame(next);
  }

  requestAnimationFrame(next);
})();
