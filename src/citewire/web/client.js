// A citewire server as a page asks it. Runs live on the server: a connection that is cut is taken up where it was, and
// who leaves can come back.

import { isObject } from "./patch.js";
import { Retry, WireError, within } from "./retry.js";
import { FrameTooLarge, Frames } from "./sse.js";

/** @typedef {import("./thread.js").Thread} Thread */
/** @typedef {import("./types.js").WireEvent} WireEvent */
/** @typedef {import("./types.js").SourceList} SourceList */
/** @typedef {import("./types.js").Source} Source */
/** @typedef {{signal?: AbortSignal,
 *   onStatus?: (status: import("./retry.js").Status, error?: WireError) => void}} Following */
/** @typedef {{method?: string, body?: BodyInit | null, headers?: Record<string, string>, signal?: AbortSignal,
 *   keepalive?: boolean, duplex?: "half"}} Init */

// Milliseconds: the server says something every 15 seconds.
const QUIET = 45_000;
// A connection that held this long, in milliseconds, was a good one.
const STEADY = 5_000;
// What only a front end shows of a message.
const SHOWN = ["citations", "reasoning", "reasoningDurationMs"];
const EVENTS = { Accept: "text/event-stream" };

export { WireError };

/** Random; `crypto.randomUUID` is only there with TLS. */
export function newId() {
  return Array.from(crypto.getRandomValues(new Uint8Array(16)), (byte) => byte.toString(16).padStart(2, "0")).join("");
}

/** A server at `base`: `""` or a path for that of the page. Without a `key` the session of the page counts. What fails
 * throws a `WireError`. The events of a run are taken into its thread before they are given; who stops reading them
 * leaves, and the run goes on. */
export class Client {
  #base;
  #key;
  #fetch;
  #retries;
  #quiet;
  /** The run of each thread that was asked for or seen last. @type {WeakMap<Thread, string>} */
  #runs = new WeakMap();

  /** `retries` are the attempts in a row to come back to a stream, `quiet` the milliseconds of silence after which a
   * connection counts as dead.
   * @param {string} base
   * @param {{key?: string, fetch?: typeof globalThis.fetch, retries?: number, quiet?: number}} [options] */
  constructor(base, { key, fetch = (input, init) => globalThis.fetch(input, init), retries = 10, quiet = QUIET } = {}) {
    this.#base = base.replace(/\/+$/, "");
    this.#key = key;
    this.#fetch = fetch;
    this.#retries = retries;
    this.#quiet = quiet;
  }

  // Threads

  /** Ask a question: it is in the thread at once, and the events of the answer are what this gives.
   * @param {Thread} thread @param {string} text @param {Following} [options] */
  ask(thread, text, options) {
    thread.add({ id: newId(), role: "user", content: text });
    return this.run(thread, options);
  }

  /** Run the agent over the messages as they are, as after a run that failed.
   * @param {Thread} thread @param {Following} [options] */
  run(thread, options = {}) {
    const runId = newId();
    this.#runs.set(thread, runId);
    const { messages, state } = thread.view;
    const posted = messages.filter(({ role }) => role !== "activity").map(withoutShown);
    const given = { threadId: thread.id, runId, messages: posted, state, tools: [], context: [], forwardedProps: {} };
    const headers = { ...EVENTS, "Content-Type": "application/json" };
    // Asked again with the same id, the server gives the same run from its first event.
    const init = { method: "POST", headers, body: JSON.stringify(given), signal: options.signal };
    return this.#follow(thread, () => this.#request("/agui", init), "RUN_STARTED", this.#retry(options));
  }

  /** Ask anew for an answer: what follows its question is gone.
   * @param {Thread} thread @param {string} messageId @param {Following} [options] */
  regenerate(thread, messageId, options) {
    const { messages, isLoading } = thread.view;
    const at = messages.findIndex(({ id, role }) => id === messageId && role === "assistant");
    const question = messages.slice(0, Math.max(at, 0)).findLast(({ role }) => role === "user");
    if (isLoading) throw new WireError("cannot_regenerate", "a run is going on");
    if (!question) throw new WireError("cannot_regenerate", "there is no such answer to a question");
    thread.cut(question.id);
    return this.run(thread, options);
  }

  /** Load a thread that the server has, and go on with the run that is going on.
   * @param {Thread} thread @param {Following} [options] @returns {AsyncGenerator<WireEvent, void>} */
  async *join(thread, options = {}) {
    const [path, retry] = [pathOf(thread.id), this.#retry(options)];
    const view = await retry.run(() => this.json(path, { signal: options.signal }));
    if (view.status === "running") {
      // From its start: a chunk in the middle may not say what it goes on with.
      const start = () => this.#request(path, { headers: EVENTS, signal: options.signal });
      yield* this.#follow(thread, start, "STATE_SNAPSHOT", retry);
      return;
    }
    thread.cursor = view.cursor;
    if (view.runId) this.#runs.set(thread, view.runId);
    yield* taken(thread, [
      { type: "MESSAGES_SNAPSHOT", messages: view.messages },
      { type: "STATE_SNAPSHOT", snapshot: view.state },
      ...(view.status === "error" ? [{ type: "RUN_ERROR", message: view.error ?? "" }] : []),
    ]);
  }

  /** Load a thread and follow all of its runs, also those of other clients. A thread that is loaded already continues
   * from its position. @param {Thread} thread @param {Following} [options] @returns {AsyncGenerator<WireEvent, void>} */
  async *watch(thread, options = {}) {
    if (thread.cursor === null) yield* this.join(thread, options);
    const retry = this.#retry(options);
    const init = { headers: EVENTS, signal: options.signal };
    const after = () => new URLSearchParams({ follow: "true", after: thread.cursor ?? "" });
    try {
      for (;;) {
        const response = await retry.run(() => this.#request(`${pathOf(thread.id)}/events?${after()}`, init));
        const since = performance.now();
        thread.open(true);
        try {
          for await (const { data, id } of framesOf(response, retry, this.#quiet)) {
            const event = data ? parsed(data) : null;
            if (data) thread.take(event);
            thread.cursor = id ?? thread.cursor;
            if (!isObject(event)) continue;
            if (event.type === "RUN_STARTED") this.#runs.set(thread, event.runId);
            if (event.type === "RUN_ERROR" && event.code === "stopped") thread.stop();
            yield /** @type {WireEvent} */ (event);
          }
        } catch (error) {
          // Nothing need come over a good connection for hours.
          if (performance.now() - since > STEADY) retry.succeed();
          await retry.fail(error);
        }
      }
    } finally {
      thread.stop(); // a run that goes on is not seen any more
    }
  }

  /** End the run of a thread; its last event is a RUN_ERROR with the code `stopped`.
   * @param {Thread} thread @param {{signal?: AbortSignal}} [options] */
  async stop(thread, { signal } = {}) {
    const runId = this.#runs.get(thread);
    if (runId === undefined) throw new WireError("not_found", "no run of this thread is known");
    await this.#request(`${pathOf(thread.id)}/runs/${encodeURIComponent(runId)}/stop`, { method: "POST", signal });
  }

  /** Tell what somebody who looked at a citation did.
   * @param {string} threadId @param {import("./types.js").Review} review @param {{signal?: AbortSignal}} [options] */
  async review(threadId, review, { signal } = {}) {
    const headers = { "Content-Type": "application/json" };
    // The page may be gone before it is sent.
    const init = { method: "POST", headers, body: JSON.stringify(review), keepalive: true, signal };
    await this.#request(`${pathOf(threadId)}/reviews`, init);
  }

  // Sources

  /** The sources by name; `next` is the name after which the list goes on.
   * @param {{after?: string, limit?: number, signal?: AbortSignal}} [options] @returns {Promise<SourceList>} */
  sources({ after = "", limit = 1000, signal } = {}) {
    return this.json(`/sources?${new URLSearchParams({ after, limit: String(limit) })}`, { signal });
  }

  /** All sources in a `snapshot`, then each one that changes (`source`) or goes (`removed`), until it is left.
   * @param {Following} [options] @returns {AsyncGenerator<{event: string, data: any}, never>} */
  async *sourceEvents(options = {}) {
    const retry = this.#retry(options);
    for (;;) {
      const init = { headers: EVENTS, signal: options.signal };
      const response = await retry.run(() => this.#request("/sources/events", init));
      try {
        for await (const { event, data } of framesOf(response, retry, this.#quiet)) {
          retry.succeed();
          const said = parsed(data);
          if (event !== undefined && isObject(said)) yield { event, data: said };
        }
      } catch (error) {
        await retry.fail(error);
      }
    }
  }

  /** Add a file; `onProgress` is told the share that was sent. @param {Blob & {name?: string}} file
   * @param {{name?: string, onProgress?: (share: number) => void, signal?: AbortSignal}} [options]
   * @returns {Promise<Source>} */
  async upload(file, { name = file.name ?? "", onProgress = () => {}, signal } = {}) {
    const path = `/sources?${new URLSearchParams({ name })}`;
    const headers = { "Content-Type": file.type || "application/octet-stream" };
    // `fetch` does not tell how far it is, unless it may send a stream, which browsers do not over HTTP/1.
    if (typeof XMLHttpRequest === "function") {
      return (await sent(`${this.#base}${path}`, file, this.#headers(headers), onProgress, signal)).sources[0];
    }
    let count = 0;
    const counter = new TransformStream({
      /** @param {Uint8Array} piece @param {TransformStreamDefaultController} controller */
      transform(piece, controller) {
        controller.enqueue(piece);
        count += piece.byteLength;
        onProgress(count / file.size);
      },
    });
    const body = file.stream().pipeThrough(counter);
    return (await this.json(path, { method: "POST", headers, body, duplex: "half", signal })).sources[0];
  }

  /** Add what is at a URL. @param {string} url @param {{signal?: AbortSignal}} [options] @returns {Promise<Source>} */
  async addUrl(url, { signal } = {}) {
    const headers = { "Content-Type": "application/json" };
    return (await this.json("/sources", { method: "POST", headers, body: JSON.stringify({ url }), signal })).sources[0];
  }

  // Requests

  /** What is at a path of the server. @param {string} path @param {Init} [init] @returns {Promise<any>} */
  async json(path, init) {
    const response = await this.#request(path, init);
    const value = parsed(await textOf(response, init?.signal));
    if (typeof value !== "string") return value;
    throw new WireError("bad_json", "the server answered with something else than JSON", response.status);
  }

  /** @param {string} path @param {Init} [init] @returns {Promise<Response>} */
  async #request(path, init = {}) {
    const headers = this.#headers(init.headers);
    const given = /** @type {RequestInit} */ ({ ...init, headers });
    const response = await this.#fetch(`${this.#base}${path}`, given).catch(() => {
      init.signal?.throwIfAborted();
      throw new WireError("connect_failed", "the server cannot be reached");
    });
    if (response.ok) return response;
    throw refusal(response.status, await textOf(response, init.signal), response.headers.get("Retry-After"));
  }

  /** @param {Record<string, string>} [headers] @returns {Record<string, string>} */
  #headers(headers) {
    return this.#key === undefined ? { ...headers } : { ...headers, Authorization: `Bearer ${this.#key}` };
  }

  /** @param {Following} options */
  #retry({ signal, onStatus }) {
    return new Retry(this.#retries, signal, onStatus);
  }

  /** The events of a run to its end, whatever happens to connections. `start` asks for it from its first event; after an
   * event of the type `ready` it can be taken up at a cursor.
   * @param {Thread} thread @param {() => Promise<Response>} start @param {string} ready @param {Retry} retry
   * @returns {AsyncGenerator<WireEvent, void>} */
  async *#follow(thread, start, ready, retry) {
    let [isReady, isOver] = [false, false];
    const init = { headers: EVENTS, signal: retry.signal };
    const after = () => new URLSearchParams({ after: thread.cursor ?? "" });
    const goOn = () => this.#request(`${pathOf(thread.id)}/events?${after()}`, init);
    try {
      while (!isOver) {
        const response = await retry.run(isReady ? goOn : start);
        thread.open(isReady);
        try {
          for await (const { data, id } of framesOf(response, retry, this.#quiet)) {
            const event = data ? parsed(data) : null;
            if (data) thread.take(event);
            thread.cursor = id ?? thread.cursor;
            if (isReady && id !== undefined) retry.succeed();
            if (!isObject(event)) continue;
            isReady ||= event.type === ready;
            isOver = event.type === "RUN_FINISHED" || event.type === "RUN_ERROR";
            if (event.type === "RUN_STARTED") this.#runs.set(thread, event.runId);
            if (event.type === "RUN_ERROR" && event.code === "stopped") thread.stop();
            yield /** @type {WireEvent} */ (event);
            if (isOver) return;
          }
        } catch (error) {
          await retry.fail(error);
        }
      }
    } catch (error) {
      isOver = error instanceof WireError;
      if (error instanceof WireError) thread.fail(error.code, error.message);
      throw error;
    } finally {
      if (!isOver) thread.stop(); // who reads it has left
    }
  }
}

/** The frames of a stream. It never ends well: who knows that all has come stops reading.
 * @param {Response} response @param {Retry} retry @param {number} quiet
 * @returns {AsyncGenerator<import("./sse.js").Frame, never>} */
async function* framesOf(response, retry, quiet) {
  if (!response.body || !response.headers.get("Content-Type")?.startsWith("text/event-stream")) {
    throw new WireError("not_an_event_stream", "the server answered with something else than events", response.status);
  }
  const [frames, reader] = [new Frames(), response.body.getReader()];
  const stalled = new WireError("stalled", "the server stopped sending");
  retry.onStatus("live");
  try {
    for (;;) {
      const { done, value } = await within(reader.read(), quiet, stalled);
      if (done) throw new WireError("stream_ended", "the connection was lost");
      yield* frames.feed(value);
    }
  } catch (error) {
    retry.signal?.throwIfAborted();
    if (error instanceof FrameTooLarge) throw new WireError("frame_too_large", error.message);
    throw error instanceof WireError ? error : new WireError("stream_ended", "the connection was lost");
  } finally {
    reader.cancel().catch(() => {}); // it is closed already where it broke
  }
}

/** @param {Thread} thread @param {WireEvent[]} events */
function* taken(thread, events) {
  for (const event of events) {
    thread.take(event);
    yield event;
  }
}

/** What a file became that was sent as browsers do, with progress. @param {string} url @param {Blob} file
 * @param {Record<string, string>} headers @param {(share: number) => void} onProgress
 * @param {AbortSignal | undefined} signal @returns {Promise<any>} */
function sent(url, file, headers, onProgress, signal) {
  return new Promise((resolve, reject) => {
    const request = new XMLHttpRequest();
    const abort = () => request.abort();
    signal?.throwIfAborted();
    signal?.addEventListener("abort", abort, { once: true });
    request.upload.onprogress = ({ loaded, total }) => onProgress(total ? loaded / total : 1);
    request.onloadend = () => {
      signal?.removeEventListener("abort", abort);
      const { status, responseText } = request;
      if (signal?.aborted) reject(signal.reason);
      else if (!status) reject(new WireError("connect_failed", "the server cannot be reached"));
      else if (status >= 300) reject(refusal(status, responseText, request.getResponseHeader("Retry-After")));
      else resolve(JSON.parse(responseText));
    };
    request.open("POST", url);
    for (const [name, value] of Object.entries(headers)) request.setRequestHeader(name, value);
    request.send(file);
  });
}

/** @param {Response} response @param {AbortSignal} [signal] */
function textOf(response, signal) {
  return response.text().catch(() => {
    signal?.throwIfAborted();
    throw new WireError("stream_ended", "the connection was lost");
  });
}

/** @param {number} status @param {string} body @param {string | null} retryAfter seconds */
function refusal(status, body, retryAfter) {
  const said = parsed(body);
  const error = isObject(said) && isObject(said.error) ? said.error : {};
  const { code = "bad_status", message = `the server answered ${status}` } = error;
  return new WireError(String(code), String(message), status, 1000 * (Number(retryAfter) || 0));
}

/** JSON, or the text where it is none. @param {string} text @returns {unknown} */
function parsed(text) {
  try {
    return JSON.parse(text);
  } catch {
    return text;
  }
}

/** @param {string} threadId */
function pathOf(threadId) {
  return `/threads/${encodeURIComponent(threadId)}`;
}

/** @param {Record<string, any>} message */
function withoutShown(message) {
  return Object.fromEntries(Object.entries(message).filter(([name]) => !SHOWN.includes(name)));
}
