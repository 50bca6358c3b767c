// Looks after the server while the page is open: its metrics, and whether it is there, or another one.

import { metrics, models, ServerError } from "./api.js";

const BUSY_MS = 1000;
const IDLE_MS = 3000;
const LOST_MS = 1500;

export class Watch {
  /** `told` hears "models" with the cards, "metrics" with their page, "lost", "restarted", "key" and "refused". */
  constructor(told) {
    this._told = told;
    this._started = null; // when the server was, by its own clock
    this._known = false; // its models are
    this._lost = false;
    this._timer = 0;
    document.addEventListener("visibilitychange", () => this.look());
  }

  /** Look now, and from now on. */
  async look() {
    clearTimeout(this._timer);
    const turn = (this._turn = (this._turn ?? 0) + 1);
    const pause = document.hidden ? null : await this._once();
    if (turn === this._turn && pause !== null) this._timer = setTimeout(() => this.look(), pause);
  }

  /** Something failed: the server may have changed. */
  doubt() {
    this._known = false;
    return this.look();
  }

  async _once() {
    try {
      if (!this._known) await this._meet();
      const busy = this._told("metrics", await metrics());
      return busy ? BUSY_MS : IDLE_MS;
    } catch (error) {
      return this._failed(error);
    }
  }

  async _meet() {
    const cards = await models();
    const restarted = this._started !== null && cards[0].created !== this._started;
    this._started = cards[0].created;
    this._known = true;
    this._told("models", cards);
    if (restarted) this._told("restarted");
    else if (this._lost) this._told("found");
    this._lost = false;
  }

  _failed(error) {
    this._known = false;
    if (error instanceof ServerError && error.status === 401) {
      this._told("key", error);
      return null; // until there is another key
    }
    if (error instanceof ServerError && error.status < 500) {
      this._told("refused", error);
      return IDLE_MS;
    }
    if (!this._lost) this._told("lost", error);
    this._lost = true;
    return LOST_MS;
  }
}
