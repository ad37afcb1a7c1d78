// @ts-check
// What a person who looked at a citation did: `cite-review` events of the element that was looked at, each a `Review`.

/** @typedef {import("./types.js").Review} Review */

/** A reader who looked this long has read it, in milliseconds. */
const REVIEWED = 2000;

/** What was reviewed since the page was loaded, by message and key. */
const reviewed = new Set();

/** The look at one card, from when it opens until it closes. */
export class Look {
  #at = performance.now();
  #timer = setTimeout(() => this.#review(), REVIEWED);

  /** @param {EventTarget} target @param {string} messageId @param {string[]} keys What is on the card. */
  constructor(target, messageId, keys) {
    this.target = target;
    this.messageId = messageId;
    this.keys = keys;
    for (const key of keys) this.#tell(key, "popover_opened");
  }

  close() {
    clearTimeout(this.#timer);
    const dwellMs = Math.round(performance.now() - this.#at);
    for (const key of this.keys) this.#tell(key, "popover_closed", { dwellMs });
  }

  #review() {
    for (const key of this.keys) {
      const name = JSON.stringify([this.messageId, key]);
      if (reviewed.has(name)) continue;
      reviewed.add(name);
      this.#tell(key, "citation_reviewed", { dwellMs: Math.round(performance.now() - this.#at) });
    }
  }

  /** @param {string} key @param {Review["event"]} event @param {{dwellMs?: number}} [more] */
  #tell(key, event, more = {}) {
    /** @type {Review} */
    const detail = { messageId: this.messageId, key, event, at: new Date().toISOString(), ...more };
    this.target.dispatchEvent(new CustomEvent("cite-review", { detail, bubbles: true, composed: true }));
  }
}
