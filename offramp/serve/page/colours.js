// The two colourings: by the layers that ran for a token, and by whether a draft foresaw it.

import { byId, element } from "./elements.js";

const STEPS = 8; // .depth-0 ... .depth-7 in the style sheet

/** The class of a token for which so many layers ran: from the first exit's to that of all layers. */
export function depthClass(layers, { exit_layers: exits, num_layers: all }) {
  const first = exits.length ? exits[0] : 0;
  const share = first < all ? (layers - first) / (all - first) : 1;
  return `depth-${Math.round(Math.min(1, Math.max(0, share)) * (STEPS - 1))}`;
}

export function draftClass(drafted) {
  return drafted ? "drafted" : "undrafted";
}

export class Colours {
  constructor() {
    this._offers = null;
    this._chosen = false; // by a person
    for (const input of byId("views").querySelectorAll("input")) {
      input.addEventListener("change", () => {
        this._chosen = true;
        this._show(input.value);
      });
    }
  }

  /** Another model, or a server that has changed. The colouring that tells more of its mode, unless one was chosen. */
  offer(offers) {
    this._offers = offers;
    const early = offers.mode === "calibrated" || offers.mode === "unchecked";
    this._show(this._chosen ? this._view : early ? "depth" : "draft");
  }

  get _view() {
    return byId("views").querySelector("input:checked")?.value ?? "draft";
  }

  _show(view) {
    for (const input of byId("views").querySelectorAll("input")) input.checked = input.value === view;
    byId("conversation").dataset.view = view;
    byId("legend").dataset.view = view;
    byId("legend").replaceChildren(...(view === "depth" ? this._depths() : this._drafts()));
  }

  _depths() {
    const { exit_layers: exits, num_layers: all } = this._offers;
    const items = (exits.length ? exits : [all]).map((layers) => {
      const text = layers === all ? `all ${all ?? ""}`.trim() : `${layers}`;
      return element("li", {}, element("span", { classes: `token ${depthClass(layers, this._offers)}`, text }));
    });
    return [element("li", { text: "layers:" }), ...items];
  }

  _drafts() {
    return [
      element("li", {}, element("span", { classes: "token drafted", text: "drafted, then verified" })),
      element("li", {}, element("span", { classes: "token undrafted", text: "not drafted" })),
    ];
  }
}
