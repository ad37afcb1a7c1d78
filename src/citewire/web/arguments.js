// The arguments of a tool call while they are streamed: fragments of one JSON text, as the best value so far.
// Each fragment is looked at once. What is read is the text up to where it makes sense, closed: the half of a
// string is shown, the half of a number is not.

import { isObject, kept, TooDeep } from "./patch.js";

const MARKS = /["{}[\],:]/g;
// Within a string: its end, or an escape that is not at an end and may be cut off.
const IN_STRING = /"|\\(?:u[0-9a-fA-F]{0,4}|[^]|$)/g;
// An escape that goes on, or the first half of a surrogate pair.
const CUT_ESCAPE = /^\\(?:u(?:[0-9a-fA-F]{0,3}|[dD][89abAB][0-9a-fA-F]{2}))?$/;
const ESCAPE_LENGTH = "\\ud83d".length;

/** The arguments of one call. With `seed`, each fragment is taken for the whole, as @ngaf/ag-ui does. */
export class Arguments {
  #seed;
  #text = "";
  #length = 0; // of what was looked at
  #safe = 0; // where the text, closed, is whole
  /** The brackets that will close it, outermost first. @type {string[]} */
  #closers = [];
  #root = ""; // the bracket that closes the outermost one
  #isString = false;
  #isKey = false;
  #carry = ""; // an escape that was cut
  /** @type {Record<string, any> | undefined} */
  #made = {};

  /** @param {boolean} seed */
  constructor(seed) {
    this.#seed = seed;
  }

  /** Go on with a fragment; an object by itself replaces an object that is whole. @param {string} fragment */
  feed(fragment) {
    if (this.#seed) {
      this.#made = objectIn(fragment) ?? {};
      return;
    }
    if (this.#root === "}" && !this.#closers.length && !this.#isString) {
      if (!objectIn(fragment)) return; // nothing more belongs to it
      this.#text = this.#carry = this.#root = "";
      this.#length = this.#safe = 0;
      this.#isKey = false;
    }
    this.#text += fragment;
    this.#made = undefined;
    this.#lookAt(this.#carry + fragment);
  }

  /** The best value so far; `{}` where there is no object. */
  get value() {
    return (this.#made ??= objectIn(this.#closed()) ?? {});
  }

  #closed() {
    const closers = this.#closers.toReversed().join("");
    if (!this.#isString || this.#isKey) return this.#text.slice(0, this.#safe) + closers;
    return `${this.#text.slice(0, this.#text.length - this.#carry.length)}"${closers}`;
  }

  /** Note what the new text opens and closes. @param {string} text starts with what was carried over */
  #lookAt(text) {
    const start = this.#length - this.#carry.length;
    this.#carry = "";
    let half = -1; // where the first half of a surrogate pair was escaped, right before
    for (let at = 0; at < text.length; ) {
      const marks = this.#isString ? IN_STRING : MARKS;
      marks.lastIndex = at;
      const mark = marks.exec(text);
      if (!mark) break;
      at = mark.index + mark[0].length;
      if (!this.#isString) {
        this.#mark(mark[0], start + mark.index);
      } else if (mark[0] === '"') {
        this.#isString = false;
        if (!this.#isKey) this.#safe = start + at;
      } else if (at === text.length && CUT_ESCAPE.test(mark[0])) {
        const follows = half >= 0 && mark.index === half + ESCAPE_LENGTH;
        this.#carry = text.slice(follows ? half : mark.index);
      } else {
        half = CUT_ESCAPE.test(mark[0]) ? mark.index : -1;
      }
    }
    this.#length = start + text.length;
  }

  /** @param {string} mark @param {number} at */
  #mark(mark, at) {
    if (mark === '"') {
      this.#isString = true;
    } else if (mark === "{" || mark === "[") {
      const closer = mark === "{" ? "}" : "]";
      if (!this.#closers.length) this.#root = closer;
      this.#closers.push(closer);
      this.#isKey = mark === "{";
      this.#safe = at + 1;
    } else if (mark === "}" || mark === "]") {
      this.#closers.pop();
      this.#isKey = false;
      this.#safe = at + 1;
    } else if (mark === ",") {
      this.#safe = at;
      this.#isKey = this.#closers.at(-1) === "}";
    } else {
      this.#isKey = false;
    }
  }
}

/** @param {string} text @returns {Record<string, any> | undefined} */
function objectIn(text) {
  try {
    const value = JSON.parse(text);
    return isObject(value) ? mended(kept(value)) : undefined;
  } catch (error) {
    if (error instanceof SyntaxError || error instanceof TooDeep) return undefined;
    throw error;
  }
}

/** A value in which a half of a surrogate pair without its other half is U+FFFD. @param {any} value @returns {any} */
function mended(value) {
  if (typeof value === "string") return value.toWellFormed();
  if (Array.isArray(value)) return value.map(mended);
  if (!isObject(value)) return value;
  return Object.fromEntries(Object.entries(value).map(([name, inner]) => [name.toWellFormed(), mended(inner)]));
}
