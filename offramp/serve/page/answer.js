// One answer on the page: its tokens, what each took, and what the whole took.

import { depthClass, draftClass } from "./colours.js";
import { element, percent } from "./elements.js";
import { Pieces } from "./tokens.js";

const ENDS = { length: "cut at max tokens", abort: "aborted by the server", error: "ended by an error" };

export class Answer {
  constructor(offers) {
    this._offers = offers; // those of the model that was asked
    this._pieces = new Pieces();
    this._spans = []; // { span, tokens: their indices }
    this._finish = null;
    this._report = null;
    this._body = element("p", { classes: "answer", role: "group", "aria-label": "Answer" });
    this._foot = element("p", { classes: "foot" });
    this.root = element("div", { classes: "reply" }, this._body, this._foot);
    this.root.answer = this;
  }

  get text() {
    return this._pieces.text;
  }

  /** A chunk of the stream. */
  add(chunk) {
    const [choice] = chunk.choices;
    if (choice) {
      this._finish = choice.finish_reason ?? this._finish;
      this._append(this._pieces.add(choice.delta.content ?? "", choice.logprobs?.content ?? []));
    }
    if (chunk.offramp) this._report = chunk.offramp;
  }

  /** Nothing more comes. */
  finish(note = "") {
    this._append(this._pieces.finish());
    const told = this._report?.tokens?.[0];
    if (told?.length === this._pieces.tokens.length) this._colour(told);
    this._foot.textContent = [note || ENDS[this._finish], ...summary(this._report, this._offers.num_layers)]
      .filter(Boolean)
      .join(" · ");
    if (this._spans.length) {
      this._body.setAttribute("aria-label", "Answer; arrow keys go from token to token");
      this._spans[0].span.tabIndex = 0;
    }
  }

  /** What went wrong, with a way to ask again. */
  fail(message, again) {
    const button = element("button", { type: "button", classes: "quiet", text: "Try again" });
    button.addEventListener("click", again);
    this.root.append(element("p", { classes: "failure" }, element("span", { text: message }), button));
  }

  /** What is known of a token on the page, as [name, value] pairs. */
  describe(span) {
    return (span.tokens ?? []).flatMap((index) => {
      const { text, logprob } = this._pieces.tokens[index];
      const told = this._report?.tokens?.[0]?.[index];
      const rows = [["token", told ? `${visible(text)}  (${told.id})` : visible(text)]];
      if (told) {
        rows.push(["layers", `${told.exit_layer}${ofAll(this._offers.num_layers)}`]);
        rows.push(["draft", told.draft ? "foresaw it" : "did not foresee it"]);
      }
      return [...rows, ["probability", percent(Math.exp(logprob))]];
    });
  }

  /** The token so many steps away on the page; an end of the answer for infinite ones. */
  neighbour(span, steps) {
    const spans = this._spans.map((each) => each.span);
    return spans[Math.min(spans.length - 1, Math.max(0, spans.indexOf(span) + steps))];
  }

  _append(pieces) {
    for (const { text, tokens } of pieces) {
      if (!tokens.length) {
        this._body.append(text);
        continue;
      }
      const word = text.trimStart() || text; // the space before a word has no colour
      const span = element("span", { classes: "token", text: word });
      span.tokens = tokens;
      span.tabIndex = -1;
      this._spans.push({ span, tokens });
      this._body.append(text.slice(0, text.length - word.length), span);
    }
  }

  _colour(told) {
    for (const { span, tokens } of this._spans) {
      const layers = Math.max(...tokens.map((index) => told[index].exit_layer));
      const drafted = tokens.every((index) => told[index].draft);
      span.classList.add(depthClass(layers, this._offers), draftClass(drafted));
      span.dataset.layers = layers;
      span.dataset.draft = drafted;
    }
  }
}

/** A token's text with what would not be seen. */
function visible(text) {
  return text.replaceAll(" ", "␣").replaceAll("\n", "⏎").replaceAll("\t", "⇥") || "(nothing)";
}

/** A model that came into memory for this answer had not told how many it has. */
function ofAll(numLayers) {
  return numLayers === null ? "" : ` of ${numLayers}`;
}

function summary(report, numLayers) {
  if (!report) return ["no report: it comes with an answer's end"];
  const rate = report.draft_acceptance_rate;
  return [
    report.mode_reason ? `mode ${report.mode}, since ${report.mode_reason}` : `mode ${report.mode}`,
    report.risk === null ? "" : `risk ${report.risk}`,
    `${Number(report.mean_exit_layer.toFixed(1))}${ofAll(numLayers)} layers a token`,
    report.draft === "off" ? "" : `drafter ${report.draft}`,
    rate === null ? "" : `${percent(rate)} of ${report.num_draft_tokens} draft tokens accepted`,
    report.tokens_per_second === null ? "" : `${report.tokens_per_second.toFixed(0)} tokens/s`,
    report.exact_kv ? "" : "K/V projected",
  ];
}
