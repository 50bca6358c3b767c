// What the server does now, from its metrics.

import { byId, element, percent } from "./elements.js";

const WINDOW_SECONDS = 20;
const SPEED_SECONDS = 3;
const LINE = /^offramp:(\w+)\{([^}]*)\} (\S+)$/gm;
const LAYER = /(?:^|,)layer="(\d+)"/;

const GAUGES = {
  speed: ["tokens/s", "Tokens generated a second, over all requests"],
  running: ["batch", "Sequences that run"],
  waiting: ["queue", "Requests that wait"],
  pages: ["pages", "K/V pages in use"],
  acceptance: ["accepted", "Draft tokens that the model agreed to"],
  depth: ["layers", "Mean layers run for a token"],
};

/** The sum over labels of each series (of shares the largest), and tokens by layers run. */
export function read(text) {
  const values = {};
  const layers = {};
  for (const [, name, labels, value] of text.matchAll(LINE)) {
    const before = values[name] ?? 0;
    values[name] = name.endsWith("_perc") ? Math.max(before, Number(value)) : before + Number(value);
    if (name === "early_exit_tokens_total") {
      const layer = LAYER.exec(labels)?.[1];
      layers[layer] = (layers[layer] ?? 0) + Number(value);
    }
  }
  return { values, layers };
}

/** What changed from one reading to another; rates are null where nothing happened. */
export function rates(before, now, seconds, numLayers) {
  const grown = (name) => (now.values[name] ?? 0) - (before.values[name] ?? 0);
  const tokens = grown("generation_tokens_total");
  const drafted = grown("spec_decode_num_draft_tokens_total");
  const early = Object.keys(now.layers).map((layer) => [Number(layer), now.layers[layer] - (before.layers[layer] ?? 0)]);
  const counted = early.reduce((sum, [, count]) => sum + count, 0);
  const run = early.reduce((sum, [layer, count]) => sum + layer * count, 0);
  const others = Math.max(0, tokens - counted); // of requests without exits
  return {
    speed: seconds > 0 ? tokens / seconds : 0,
    acceptance: drafted > 0 ? grown("spec_decode_num_accepted_tokens_total") / drafted : null,
    depth: tokens > 0 ? (run + others * numLayers) / (counted + others) : null,
  };
}

export class Gauges {
  constructor() {
    this._samples = []; // { seconds, reading }, the newest last
    this._outputs = {};
    for (const [name, [label, title]] of Object.entries(GAUGES)) {
      this._outputs[name] = element("dd", { text: "–", "data-gauge": name });
      byId("gauges").append(element("div", { title }, element("dt", { text: label }), this._outputs[name]));
    }
  }

  /** A new reading of the metrics. */
  show(text, numLayers) {
    const now = { seconds: performance.now() / 1000, reading: read(text) };
    const last = this._samples.at(-1);
    if (last && counter(now) < counter(last)) this._samples = []; // another server: its counters begin again
    this._samples.push(now);
    this._samples = this._samples.filter((sample) => now.seconds - sample.seconds <= WINDOW_SECONDS);
    const recent = this._samples.find((sample) => now.seconds - sample.seconds <= SPEED_SECONDS);
    const { speed } = since(recent, now, numLayers);
    const { acceptance, depth } = since(this._samples[0], now, numLayers);
    const { values } = now.reading;
    this._set("speed", speed.toFixed(speed > 0 && speed < 10 ? 1 : 0));
    this._set("running", `${values.num_requests_running ?? 0}`);
    this._set("waiting", `${values.num_requests_waiting ?? 0}`);
    this._set("pages", percent(values.kv_cache_usage_perc ?? 0));
    this._set("acceptance", acceptance === null ? "–" : percent(acceptance));
    this._set("depth", depth === null ? "–" : `${Number(depth.toFixed(1))}`);
    return values.num_requests_running > 0;
  }

  /** Nobody answers: old numbers would lie. */
  blank() {
    this._samples = [];
    for (const name of Object.keys(GAUGES)) this._set(name, "–");
  }

  _set(name, text) {
    this._outputs[name].textContent = text;
  }
}

function counter(sample) {
  return sample.reading.values.engine_steps_total ?? 0;
}

function since(before, now, numLayers) {
  return rates(before.reading, now.reading, now.seconds - before.seconds, numLayers);
}
