// What is wrong with a request, and how long to wait before it is made again.

// Milliseconds before the first attempt to come back, and at most; it doubles in between.
const FIRST_DELAY = 250;
const LONGEST_DELAY = 10_000;
// Answers that another moment may change: too slow, too much at once, a proxy without its server.
const PASSING = new Set([408, 429, 502, 503, 504]);

/** @typedef {"connecting" | "live" | "retrying" | "lost"} Status */

/** What went wrong: `code` as the server has it, `status` that of HTTP, 0 where there was no answer. */
export class WireError extends Error {
  name = "WireError";

  /** `wait` are the milliseconds that the server asks for.
   * @param {string} code @param {string} message @param {number} [status] @param {number} [wait] */
  constructor(code, message, status = 0, wait = 0) {
    super(message);
    this.code = code;
    this.status = status;
    this.wait = wait;
  }

  /** Whether it may go well the next time. */
  get isPassing() {
    return this.status === 0 ? this.code !== "frame_too_large" : PASSING.has(this.status);
  }

  toJSON() {
    return { code: this.code, message: this.message, status: this.status };
  }
}

/** Attempts that are made again, a bounded number of times in a row. */
export class Retry {
  #failed = 0;

  /** @param {number} most @param {AbortSignal | undefined} signal
   * @param {(status: Status, error?: WireError) => void} [onStatus] */
  constructor(most, signal, onStatus = () => {}) {
    this.most = most;
    this.signal = signal;
    this.onStatus = onStatus;
  }

  /** Something came: what fails from now on is the first failure again. */
  succeed() {
    this.#failed = 0;
  }

  /** Wait before the next attempt. Throws `error` where that is no use. @param {unknown} error */
  async fail(error) {
    this.signal?.throwIfAborted();
    if (!(error instanceof WireError)) throw error;
    this.#failed += 1;
    if (!error.isPassing || this.#failed > this.most) {
      this.onStatus("lost", error);
      throw error;
    }
    this.onStatus("retrying", error);
    const delay = Math.min(LONGEST_DELAY, FIRST_DELAY * 2 ** (this.#failed - 1));
    // Not all at once, when a server comes back to many clients.
    await pause(Math.max(delay * (0.5 + Math.random() / 2), Math.min(error.wait, LONGEST_DELAY)), this.signal);
  }

  /** What `work` gives in the end. @template T @param {() => Promise<T>} work @returns {Promise<T>} */
  async run(work) {
    for (;;) {
      this.onStatus("connecting");
      try {
        return await work();
      } catch (error) {
        await this.fail(error);
      }
    }
  }
}

/** @param {number} milliseconds @param {AbortSignal | undefined} signal */
function pause(milliseconds, signal) {
  return new Promise((resolve, reject) => {
    const timer = setTimeout(done, milliseconds);
    const abort = () => {
      clearTimeout(timer);
      reject(signal?.reason);
    };
    signal?.addEventListener("abort", abort, { once: true });
    function done() {
      signal?.removeEventListener("abort", abort);
      resolve(undefined);
    }
  });
}

/** `promise`, or `error` where that takes too long. @template T @param {Promise<T>} promise @param {number} milliseconds
 * @param {WireError} error @returns {Promise<T>} */
export async function within(promise, milliseconds, error) {
  /** @type {ReturnType<typeof setTimeout> | undefined} */
  let timer;
  const late = new Promise((_, reject) => {
    timer = setTimeout(reject, milliseconds, error);
  });
  try {
    return await Promise.race([promise, /** @type {Promise<never>} */ (late)]);
  } finally {
    clearTimeout(timer);
  }
}
