// What a token took, beside the token that the pointer is over or the focus is on.

import { byId, element } from "./elements.js";

const KEYS = { ArrowLeft: -1, ArrowUp: -1, ArrowRight: 1, ArrowDown: 1, Home: -Infinity, End: Infinity };
const GAP = 6; // pixels

export class Tip {
  constructor(conversation) {
    this._tip = byId("tip");
    this._span = null;
    conversation.addEventListener("pointerover", (event) => this._show(tokenAt(event.target)));
    conversation.addEventListener("pointerleave", () => this._show(tokenAt(document.activeElement)));
    conversation.addEventListener("focusin", (event) => this._show(tokenAt(event.target)));
    conversation.addEventListener("focusout", () => this.hide());
    conversation.addEventListener("keydown", (event) => this._move(event));
    addEventListener("scroll", () => this._place(), { passive: true });
    addEventListener("resize", () => this._place());
  }

  /** True when there was one. */
  hide() {
    const shown = this._span !== null;
    this._span?.removeAttribute("aria-describedby");
    this._span = null;
    this._tip.hidden = true;
    return shown;
  }

  _show(span) {
    if (span === this._span) return;
    this.hide();
    if (!span) return;
    this._span = span;
    const rows = answerOf(span).describe(span);
    this._tip.replaceChildren(...rows.map(([name, value]) => element("div", {}, named(name), value)));
    this._tip.hidden = false;
    span.setAttribute("aria-describedby", "tip");
    this._place();
  }

  _place() {
    if (!this._span) return;
    const [at] = this._span.getClientRects();
    const { offsetWidth: width, offsetHeight: height } = this._tip;
    const left = Math.max(GAP, Math.min(at.left, document.documentElement.clientWidth - width - GAP));
    const above = at.top - height - GAP;
    this._tip.style.left = `${left}px`;
    this._tip.style.top = `${above >= 0 ? above : at.bottom + GAP}px`;
  }

  _move(event) {
    const span = tokenAt(event.target);
    if (!span || !(event.key in KEYS) || event.ctrlKey || event.altKey || event.metaKey) return;
    event.preventDefault();
    const next = answerOf(span).neighbour(span, KEYS[event.key]);
    span.tabIndex = -1;
    next.tabIndex = 0;
    next.focus();
  }
}

function tokenAt(target) {
  return target?.tokens ? target : null;
}

function answerOf(span) {
  return span.closest(".reply").answer;
}

function named(name) {
  return element("span", { classes: "name", text: `${name} ` });
}
