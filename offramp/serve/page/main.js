// The page at /: connects what a person does with the server, and tells both sides' news.

import { keepKey, key } from "./api.js";
import { Colours } from "./colours.js";
import { Conversation } from "./conversation.js";
import { byId, element } from "./elements.js";
import { Gauges } from "./gauges.js";
import { Settings, UNKNOWN } from "./settings.js";
import { Tip } from "./tip.js";
import { Watch } from "./watch.js";

const EXAMPLES = [
  "What is gravity?",
  "Name three primary colors.",
  "Write a Python function that adds two numbers, and one that multiplies them.",
];

const settings = new Settings();
const colours = new Colours();
const gauges = new Gauges();
const tip = new Tip(byId("conversation"));
const watch = new Watch(heard);
const conversation = new Conversation({ ask: nextRequest, told: answered });
let cards = [];

function offers() {
  return cards.find((card) => card.id === byId("model").value)?.offramp ?? UNKNOWN;
}

/** The fields of the next request, and what its model offers. */
function nextRequest() {
  return { fields: { model: byId("model").value, ...settings.fields() }, offers: offers() };
}

/** News of the server. */
function heard(what, news) {
  if (what === "models") meet(news);
  if (what === "metrics") return gauges.show(news, offers().num_layers ?? 0);
  if (what === "lost" || what === "refused" || what === "key") gauges.blank();
  if (what === "key") askForKey(news.message);
  if (what === "refused") say("alert", news.message);
  if (what === "lost") say("alert", "The server does not answer. Your conversation stays; trying again …");
  if (what === "restarted") say("notice", "The server was restarted. You can go on.");
  if (what === "found") say("notice", "The server answers again.");
  return false;
}

function meet(found) {
  cards = found;
  const chosen = byId("model").value;
  byId("model").replaceChildren(...cards.map(({ id }) => element("option", { value: id, text: id })));
  if (cards.some(({ id }) => id === chosen)) byId("model").value = chosen;
  byId("key-form").hidden = true;
  byId("forget-key").hidden = !key();
  say("alert", "");
  turnTo();
}

function turnTo() {
  settings.offer(offers());
  colours.offer(offers());
  byId("send").disabled = false;
}

/** News of an answer; those who hear the page get it once, when it is whole. */
function answered(what, answer, problem = null) {
  const busy = conversation.busy;
  byId("send").hidden = busy;
  byId("stop").hidden = !busy;
  if (what === "began") {
    say("notice", "");
    say("status", "Answering");
    watch.look();
    return;
  }
  byId("clear").hidden = false;
  if (problem === null) say("status", answer.text || "The answer is empty");
  else if (problem.name === "AbortError") say("status", "Stopped");
  else say("status", problem.message);
  if (problem?.status === 401) askForKey(problem.message);
  if (problem ? problem.name !== "AbortError" : offers() === UNKNOWN) watch.doubt();
}

function say(id, text) {
  byId(id).textContent = text;
}

function askForKey(message) {
  if (key()) say("alert", message);
  keepKey("");
  byId("key-form").hidden = false;
  byId("forget-key").hidden = true;
  byId("send").disabled = true;
  byId("key").focus();
}

function useKey(event) {
  event.preventDefault();
  const text = byId("key").value.trim();
  byId("key").value = "";
  say("alert", "");
  if (!/^[\x21-\x7e]+$/.test(text)) {
    say("alert", "A key is one word of printable ASCII characters.");
    return;
  }
  keepKey(text);
  byId("key-form").hidden = true;
  byId("question").focus();
  watch.doubt();
}

function send(text) {
  if (conversation.busy || byId("send").disabled || !text.trim()) return;
  try {
    settings.fields();
  } catch (error) {
    byId("settings").open = true;
    say("alert", error.message);
    return;
  }
  say("alert", "");
  byId("question").value = "";
  conversation.send(text);
}

function typed(event) {
  if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
  event.preventDefault();
  send(byId("question").value);
}

function escaped(event) {
  if (event.key === "Escape" && !tip.hide()) conversation.stop();
}

function stop() {
  conversation.stop();
  byId("question").focus();
}

function start() {
  byId("send").disabled = true; // until the server is known
  const buttons = EXAMPLES.map((text) => element("button", { type: "button", text }));
  for (const button of buttons) button.addEventListener("click", () => send(button.textContent));
  byId("examples").append(...buttons);
  byId("composer").addEventListener("submit", (event) => {
    event.preventDefault();
    send(byId("question").value);
  });
  byId("question").addEventListener("keydown", typed);
  byId("stop").addEventListener("click", stop);
  byId("clear").addEventListener("click", () => conversation.clear());
  byId("model").addEventListener("change", turnTo);
  byId("key-form").addEventListener("submit", useKey);
  byId("forget-key").addEventListener("click", () => {
    keepKey("");
    watch.doubt();
  });
  document.addEventListener("keydown", escaped);
  if (matchMedia("(pointer: fine)").matches) byId("question").focus();
  watch.look();
}

start();
