// A conversation in one window: its messages, and the one stream that brings more. The stream is the answer to a
// question of this window, or else everything that happens in the thread.

import { WireError } from "../client.js";
import { Thread } from "../thread.js";

/** @typedef {import("../client.js").Client} Client */
/** @typedef {import("../client.js").Following} Following */
/** @typedef {import("../types.js").WireEvent} WireEvent */

/** Tells of every `change`. */
export class Conversation extends EventTarget {
  #client;
  /** @type {AbortController | null} */
  #stream = null;
  // Whether the stream is the answer to a question of this window, and whether the server has taken that.
  #isAsking = false;
  #isTaken = true;

  /** How the stream is doing. @type {import("../retry.js").Status} */
  connection = "live";
  /** Why there is none. @type {WireError | null} */
  problem = null;

  /** @param {Client} client @param {string} id */
  constructor(client, id) {
    super();
    this.#client = client;
    this.thread = new Thread({ id });
  }

  get isRunning() {
    return this.thread.view.isLoading || (this.#isAsking && this.problem === null);
  }

  /** Whether anything was said. */
  get isEmpty() {
    return this.thread.view.messages.length === 0;
  }

  /** @param {string} text */
  ask(text) {
    return this.#run((options) => this.#client.ask(this.thread, text, options));
  }

  /** Answer again. @param {string} messageId */
  regenerate(messageId) {
    return this.#run((options) => this.#client.regenerate(this.thread, messageId, options));
  }

  /** After something went wrong: go on with what is going on, or else ask the same again. */
  again() {
    if (this.problem !== null && this.#isTaken) return this.watch();
    const question = this.thread.view.messages.findLast(({ role }) => role === "user");
    if (question) this.thread.cut(question.id);
    return this.#run((options) => this.#client.run(this.thread, options));
  }

  async stop() {
    await this.#client.stop(this.thread).catch((error) => this.#failed(error));
  }

  /** See what happens, unless that is so already. */
  async watch() {
    if (this.#stream && this.problem === null) return;
    await this.#see((options) => this.#client.watch(this.thread, options));
  }

  /** See nothing more. An answer to a question of this window is waited for, unless it is left for good.
   * @param {{forGood?: boolean}} [options] */
  leave({ forGood = false } = {}) {
    if (this.#isAsking && !forGood) return;
    this.#stream?.abort();
    this.#stream = null;
  }

  /** @param {(options: Following) => AsyncGenerator<WireEvent, void>} start */
  async #run(start) {
    [this.#isAsking, this.#isTaken] = [true, false];
    const isSeen = await this.#see(start);
    this.#isAsking = false;
    this.#changed();
    if (isSeen && !document.hidden) await this.watch();
  }

  /** Whether all of it was seen. @param {(options: Following) => AsyncGenerator<WireEvent, void>} start */
  async #see(start) {
    this.#stream?.abort();
    const stream = (this.#stream = new AbortController());
    this.problem = null;
    try {
      const events = start({ signal: stream.signal, onStatus: (status) => this.#stream === stream && this.#told(status) });
      this.#changed();
      for await (const _ of events) {
        this.#isTaken = true;
        this.#changed();
      }
      return true;
    } catch (error) {
      if (!stream.signal.aborted) this.#failed(error);
      return false;
    } finally {
      if (this.#stream === stream) this.#stream = null;
    }
  }

  /** @param {import("../retry.js").Status} status */
  #told(status) {
    this.connection = status;
    this.#changed();
  }

  /** @param {unknown} error */
  #failed(error) {
    if (!(error instanceof WireError)) throw error;
    this.problem = error;
    this.#changed();
  }

  #changed() {
    this.dispatchEvent(new Event("change"));
  }
}
