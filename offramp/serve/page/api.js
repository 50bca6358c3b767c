// The server's API: requests with the key of this tab, errors in its own words, streams as events.

const KEY = "offramp.key";

/** The server refused, or failed: `message` is its own. */
export class ServerError extends Error {
  constructor(status, error) {
    super(error?.message ?? `the server answered with status ${status}`);
    this.status = status;
    this.code = error?.code ?? null;
  }
}

/** Nobody answered, or the answer broke off. */
export class ConnectionError extends Error {}

export function key() {
  return sessionStorage.getItem(KEY) ?? "";
}

/** Keep a key for this tab alone; "" forgets it. */
export function keepKey(text) {
  if (text) sessionStorage.setItem(KEY, text);
  else sessionStorage.removeItem(KEY);
}

/** A response that is fine; throws ServerError, ConnectionError, or AbortError once `signal` says so. */
async function ask(path, { body, signal } = {}) {
  const headers = {};
  if (key()) headers.authorization = `Bearer ${key()}`;
  if (body) headers["content-type"] = "application/json";
  const options = { headers, signal, cache: "no-store", credentials: "omit", redirect: "error" };
  if (body) Object.assign(options, { method: "POST", body: JSON.stringify(body) });
  const response = await reached(() => fetch(path, options), signal);
  if (response.ok) return response;
  const told = await response.json().catch(() => null);
  throw new ServerError(response.status, told?.error);
}

/** What `act` gives; whatever the browser says of a lost connection becomes a ConnectionError. */
async function reached(act, signal) {
  try {
    return await act();
  } catch (error) {
    if (signal?.aborted) throw error;
    throw new ConnectionError("the server does not answer");
  }
}

/** The models that are served, each with what it offers. */
export async function models() {
  return (await (await ask("v1/models")).json()).data;
}

/** The metrics' page, as text. */
export async function metrics() {
  return (await ask("metrics")).text();
}

/** The chunks of an answer as they come. Throws, too, where the stream ends before its end. */
export async function* chat(body, signal) {
  const response = await ask("v1/chat/completions", { body, signal });
  for await (const data of events(response.body, signal)) {
    if (data === "[DONE]") return;
    const chunk = JSON.parse(data);
    if (chunk.error) throw new ServerError(response.status, chunk.error);
    yield chunk;
  }
  throw new ConnectionError("the connection broke before the answer's end");
}

/** The data of server-sent events. */
async function* events(stream, signal) {
  const reader = stream.getReader();
  const decoder = new TextDecoder();
  let text = "";
  try {
    for (;;) {
      const { done, value } = await reached(() => reader.read(), signal);
      if (done) return;
      text += decoder.decode(value, { stream: true });
      const whole = text.split(/\r?\n\r?\n/);
      text = whole.pop();
      for (const event of whole) {
        const lines = event.split(/\r?\n/).filter((line) => line.startsWith("data:"));
        if (lines.length) yield lines.map((line) => line.slice(5).replace(/^ /, "")).join("\n");
      }
    }
  } finally {
    reader.cancel().catch(() => {}); // a stream that broke has told already
  }
}
