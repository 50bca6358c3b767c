// Questions and answers: one at a time, streamed, to be stopped.

import { Answer } from "./answer.js";
import { chat, ConnectionError } from "./api.js";
import { byId, element } from "./elements.js";

const BOTTOM = 120; // pixels from the end within which the page follows the answer

export class Conversation {
  /** `ask` gives the fields of the next request; `told` hears how it went on: "began", then "ended" with any error. */
  constructor({ ask, told }) {
    this._ask = ask;
    this._told = told;
    this._turns = []; // { question, answer, root }
    this._running = null; // the AbortController of what runs
  }

  get busy() {
    return this._running !== null;
  }

  clear() {
    this.stop();
    for (const { root } of this._turns) root.remove();
    this._turns = [];
    byId("welcome").hidden = false;
  }

  stop() {
    this._running?.abort();
  }

  /** Send a question and show its answer. Throws nothing: what goes wrong is told in its place. */
  async send(question) {
    const { fields, offers } = this._ask();
    const answer = new Answer(offers);
    const root = element("article", {}, element("p", { classes: "question", text: question }), answer.root);
    const turn = { question, answer, root };
    this._turns.push(turn);
    byId("welcome").hidden = true;
    byId("conversation").append(root);
    scrollTo({ top: document.documentElement.scrollHeight });
    const running = (this._running = new AbortController());
    this._told("began", answer);
    let problem = null;
    try {
      const body = { ...fields, messages: this._messages(turn), stream: true, logprobs: true };
      for await (const chunk of chat(body, running.signal)) follow(() => answer.add(chunk));
      answer.finish();
    } catch (error) {
      problem = error;
      this._end(turn, error, running.signal.aborted);
    }
    if (this._running === running) this._running = null;
    this._told("ended", answer, problem);
  }

  _end(turn, error, stopped) {
    turn.answer.finish(stopped ? "stopped" : "broken off");
    if (stopped) return;
    if (!(error instanceof ConnectionError) && error.status === undefined) console.error(error); // a fault of this page
    turn.answer.fail(error.message, () => this._again(turn));
  }

  _again(turn) {
    if (this.busy) return;
    this._turns = this._turns.filter((each) => each !== turn);
    turn.root.remove();
    this.send(turn.question);
  }

  /** Everything said before; a question that got no answer was not. */
  _messages(last) {
    const messages = this._turns
      .filter((turn) => turn !== last && turn.answer.text)
      .flatMap(({ question, answer }) => [
        { role: "user", content: question },
        { role: "assistant", content: answer.text },
      ]);
    return [...messages, { role: "user", content: last.question }];
  }
}

/** Do something that makes the page longer; whoever reads its end stays there. */
function follow(act) {
  const { scrollHeight } = document.documentElement;
  const near = scrollHeight - (scrollY + innerHeight) < BOTTOM;
  act();
  if (near) scrollTo({ top: document.documentElement.scrollHeight });
}
