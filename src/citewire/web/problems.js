// What was wrong with what came: the first problems, and how many of which kind came after them.

import { Rows } from "./drafts.js";

/** @typedef {import("./types.js").Problem} Problem */

// Problems that are kept one by one: a peer can make as many as it likes.
const MOST = 1000;
// Characters of what is said of one, which may be foreign.
const MOST_SAID = 300;

export class Problems {
  /** @type {Rows<Problem>} */
  #rows = new Rows();
  /** @type {Map<string, number>} */
  #more = new Map();
  #left = 0;

  /** @param {string} code @param {string} path @param {string} message */
  add(code, path, message) {
    if (this.#rows.length < MOST) return this.#rows.put({ code, path, message: message.slice(0, MOST_SAID) });
    this.#left += 1;
    this.#more.set(code, (this.#more.get(code) ?? 0) + 1);
    const kinds = [...this.#more].map(([kind, count]) => `${kind} ${count}`).join(", ");
    this.#rows.put({ code: "too_many_problems", path, message: `and ${this.#left} more: ${kinds}` }, MOST);
  }

  get list() {
    return this.#rows.list;
  }
}
