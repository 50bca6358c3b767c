// What a person may choose for the next request: only what the model's card offers, the rest with the reason.

import { byId, element } from "./elements.js";

const MODES = {
  lossless: "exactly what plain decoding gives",
  full: "every layer, nothing dynamic",
  calibrated: "leaves early, within a certified risk",
  unchecked: "leaves early, without a promise",
};

/** Of a model that was never in memory: the first question brings it there. */
export const UNKNOWN = { modes: {}, mode: "", drafters: {}, draft: "", risks: [], risk: null, exit_layers: [], num_layers: null };

export class Settings {
  constructor() {
    this._offers = null;
    byId("modes").addEventListener("change", () => this._follow());
    byId("controls").addEventListener("submit", (event) => event.preventDefault());
    const wide = matchMedia("(min-width: 60rem)");
    const fold = () => (byId("settings").open = wide.matches);
    wide.addEventListener("change", fold);
    fold();
  }

  /** Another model, or a server that has changed; what was chosen stays where it is still offered. */
  offer(offers) {
    const mode = this._mode;
    const draft = byId("draft").value;
    const risk = byId("risk").value;
    this._offers = offers;
    const rows = Object.entries(offers.modes).map(([name, reason]) => modeRow(name, reason));
    byId("modes").replaceChildren(byId("modes").firstElementChild, ...rows);
    this._choose(mode in offers.modes && offers.modes[mode] === null ? mode : offers.mode);
    fill("draft", Object.entries(offers.drafters).map(([name, reason]) => [name, reason]), draft, offers.draft);
    const risks = offers.risks.length ? offers.risks.map((each) => [`${each}`, null]) : [["none", null]];
    fill("risk", risks, risk, `${offers.risk ?? risks[0][0]}`);
    this._follow();
  }

  /** The fields of a request that these settings stand for. Throws an Error whose message says what is wrong. */
  fields() {
    const mode = this._mode;
    const offramp = { report: "tokens" };
    if (mode) offramp.mode = mode;
    if (mode === "calibrated") offramp.risk = Number(byId("risk").value);
    if (!byId("draft").disabled && byId("draft").value) offramp.draft = byId("draft").value;
    const fields = { offramp };
    const temperature = number("temperature", "Temperature");
    if (temperature !== null) fields.temperature = temperature;
    const most = number("max-tokens", "Max tokens");
    if (most !== null) fields.max_tokens = most;
    return fields;
  }

  get _mode() {
    return byId("modes").querySelector("input:checked")?.value;
  }

  _choose(mode) {
    for (const input of byId("modes").querySelectorAll("input")) input.checked = input.value === mode;
  }

  /** What the mode makes of the other controls. */
  _follow() {
    const mode = this._mode;
    const { risks, drafters } = this._offers;
    const drafts = mode === "lossless";
    byId("draft").disabled = !drafts;
    const unread = this._offers === UNKNOWN ? "known once the model is loaded, by a first question" : null;
    byId("draft-note").textContent = unread ?? (drafts ? refusals(drafters) : `mode ${mode} runs no drafts`);
    byId("risk").disabled = mode !== "calibrated";
    const why = risks.length ? "only mode calibrated takes one" : "no risk was certified for this server";
    byId("risk-note").textContent = unread ?? (mode === "calibrated" ? "loss of quality at most, as certified" : why);
  }
}

function modeRow(name, reason) {
  const input = element("input", { type: "radio", name: "mode", value: name, "aria-describedby": `mode-${name}` });
  input.disabled = reason !== null;
  const note = element("span", { classes: "note", id: `mode-${name}`, text: reason === null ? (MODES[name] ?? "") : told(reason) });
  return element("div", { classes: "choice" }, element("label", {}, input, ` ${name}`), note);
}

/** Options of a select; those with a reason can't be chosen. */
function fill(id, options, chosen, fallback) {
  const made = options.map(([value, reason]) => {
    const option = element("option", { value, text: reason === null ? value : `${value} (not here)` });
    option.disabled = reason !== null;
    return option;
  });
  byId(id).replaceChildren(...made);
  const offered = options.filter(([, reason]) => reason === null).map(([value]) => value);
  byId(id).value = offered.includes(chosen) ? chosen : fallback;
}

function refusals(drafters) {
  const refused = Object.entries(drafters).filter(([, reason]) => reason !== null);
  return refused.map(([name, reason]) => `${name}: ${told(reason)}`).join("; ") || "changes the speed, never the tokens";
}

/** A refusal without the field that it begins with. */
function told(reason) {
  return reason.replace(/^(mode|draft)='[^']*': /, "");
}

function number(id, label) {
  const input = byId(id);
  const fine = input.checkValidity();
  input.setAttribute("aria-invalid", `${!fine}`);
  if (!fine) throw new Error(`${label}: ${input.validationMessage}`);
  return input.value === "" ? null : Number(input.value);
}
