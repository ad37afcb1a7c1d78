// @ts-check
// What the server says: requests, streams of AG-UI events, and a thread as they change it.

/** @typedef {{id: string, role: string, content?: any}} Message */
/** @typedef {{id: string, runId: string, messages: Message[], state: any}} Thread */

const LOST = "The connection was lost before the answer was complete. Reload the page to see how it went on.";
const UNSAFE = new Set(["__proto__", "constructor", "prototype"]);

/** Random; `crypto.randomUUID` is only there with TLS. */
export function newId() {
  return Array.from(crypto.getRandomValues(new Uint8Array(16)), (byte) => byte.toString(16).padStart(2, "0")).join("");
}

/** Its answer; throws what it has against the request. @param {string} path @param {RequestInit} [init] */
export async function request(path, init) {
  const response = await fetch(path, init).catch(() => {
    throw new Error("The server cannot be reached.");
  });
  if (response.ok) return response;
  const error = (await response.json().catch(() => null))?.error;
  const message = error ? `${error.message} (${error.code})` : `The server answered ${response.status}.`;
  throw Object.assign(new Error(message), { status: response.status });
}

/** The events of a run, up to its last. @param {string} path @param {RequestInit} [init] */
export async function* events(path, init = {}) {
  const headers = { ...init.headers, Accept: "text/event-stream" };
  for await (const data of frames(await request(path, { ...init, headers }))) {
    const event = JSON.parse(data);
    yield event;
    if (event.type === "RUN_FINISHED") return;
  }
  throw new Error(LOST);
}

/** The data of each server-sent event. @param {Response} response */
async function* frames(response) {
  const reader = /** @type {any} */ (response.body).pipeThrough(new TextDecoderStream()).getReader();
  const fail = () => {
    throw new Error(LOST);
  };
  try {
    for (let rest = ""; ; ) {
      const { done, value } = await reader.read().catch(fail);
      if (done) return;
      const parts = (rest + value).split(/\r\n\r\n|\n\n|\r\r/);
      rest = parts.pop() ?? "";
      for (const part of parts) {
        const lines = part.split(/\r\n|\n|\r/).filter((line) => line.startsWith("data:"));
        if (lines.length) yield lines.map((line) => line.slice(line[5] === " " ? 6 : 5)).join("\n");
      }
    }
  } finally {
    reader.cancel().catch(() => {});
  }
}

/** Take an event into the thread. Throws what a run failed of. @param {Thread} thread @param {any} event */
export function take(thread, event) {
  switch (event.type) {
    case "RUN_STARTED":
      thread.runId = event.runId;
      break;
    case "TEXT_MESSAGE_START":
    case "TEXT_MESSAGE_CONTENT":
    case "TEXT_MESSAGE_CHUNK":
      append(thread.messages, event);
      break;
    case "MESSAGES_SNAPSHOT":
      thread.messages = event.messages;
      break;
    case "STATE_SNAPSHOT":
      thread.state = event.snapshot;
      break;
    case "STATE_DELTA":
      thread.state = event.delta.reduce(patched, thread.state);
      break;
    case "RUN_ERROR":
      throw new Error(event.code ? `${event.message} (${event.code})` : event.message);
  }
}

/** A chunk may be the first of its message, and a later one need not say which it belongs to.
 * @param {Message[]} messages @param {any} event */
function append(messages, { type, messageId, role = "assistant", delta = "" }) {
  let message = messageId ? messages.find(({ id }) => id === messageId) : messages.at(-1);
  if (!message && type !== "TEXT_MESSAGE_CONTENT") messages.push((message = { id: messageId, role, content: "" }));
  if (message) message.content += delta;
}

// JSON Patch (RFC 6902). Nothing is changed in place: what stays as it was is the same object afterwards.

/** @param {any} root @param {{op: string, path: string, from: string, value: any}} operation */
function patched(root, { op, path, from, value }) {
  switch (op) {
    case "add":
    case "replace":
    case "remove":
      return change(root, steps(path), op, value);
    case "copy":
      return change(root, steps(path), "add", steps(from).reduce(child, root));
    case "move":
      return change(change(root, steps(from), "remove"), steps(path), "add", steps(from).reduce(child, root));
    case "test":
      if (same(steps(path).reduce(child, root), value)) return root;
  }
  throw new Error(`The server changes the state in a way that does not fit: ${op} ${path}`);
}

/** @param {any} node @param {string[]} path @param {string} op @param {any} [value] @returns {any} */
function change(node, [step, ...rest], op, value = null) {
  if (step === undefined) return value;
  const at = place(node, step, op === "add" && !rest.length);
  const copy = Array.isArray(node) ? [...node] : { ...node };
  if (rest.length) copy[at] = change(node[at], rest, op, value);
  else if (Array.isArray(copy)) copy.splice(Number(at), op === "add" ? 0 : 1, ...(op === "remove" ? [] : [value]));
  else if (op === "remove") delete copy[at];
  else copy[at] = value;
  return copy;
}

/** The key or index that a step names, where something is or (`isNew`) may come. @param {any} node @param {string} step */
function place(node, step, isNew = false) {
  if (Array.isArray(node)) {
    const at = isNew && step === "-" ? node.length : /^(?:0|[1-9]\d*)$/.test(step) ? Number(step) : -1;
    if (at >= 0 && at < node.length + Number(isNew)) return at;
  } else if (node !== null && typeof node === "object" && !UNSAFE.has(step) && (isNew || Object.hasOwn(node, step))) {
    return step;
  }
  throw new Error(`The server names a place that the state does not have: ${step}`);
}

/** @param {any} node @param {string} step */
function child(node, step) {
  return node[place(node, step)];
}

/** @param {string} pointer */
function steps(pointer) {
  if (!/^(?:\/(?:[^~/]|~[01])*)*$/.test(pointer)) throw new Error(`The server names a place that cannot be: ${pointer}`);
  return pointer.split("/").slice(1).map((step) => step.replaceAll("~1", "/").replaceAll("~0", "~"));
}

/** Whether two JSON values are equal. @param {any} one @param {any} other @returns {boolean} */
function same(one, other) {
  if (one === other || one === null || other === null || typeof one !== "object") return one === other;
  const names = Object.keys(one);
  return (
    Array.isArray(one) === Array.isArray(other) &&
    names.length === Object.keys(other).length &&
    names.every((name) => Object.hasOwn(other, name) && same(one[name], other[name]))
  );
}
