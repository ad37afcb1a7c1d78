// What grows while it is streamed: messages and tool calls. Text is appended to, which is a rope in every engine, so
// that a delta costs the same however long the text is; what is shown is made when it is read, and only anew where
// something changed.

/** @typedef {import("./types.js").Json} Json */

/** A JSON object whose texts still grow. */
export class Draft {
  /** @type {Json} */
  #texts = {};
  // Texts that may hold half of a surrogate pair.
  #ragged = new Set();
  /** @type {any} */
  #made;
  /** What it is found by where it stands. @type {string | number} */
  key = 0;

  /** @param {Json} fields */
  constructor(fields) {
    this.fields = fields;
  }

  /** Append to a text, which starts with the string that stands there now, if one does.
   * @param {string} name @param {string} piece */
  extend(name, piece) {
    const start = this.fields[name];
    const before = this.#texts[name] ?? (typeof start === "string" ? start : "");
    if (!piece.isWellFormed() || (this.#texts[name] === undefined && !before.isWellFormed())) this.#ragged.add(name);
    this.#texts[name] = before + piece;
    this.#made = undefined;
  }

  /** @param {string} name @param {any} value */
  put(name, value) {
    this.fields = { ...this.fields, [name]: value };
    delete this.#texts[name];
    this.#made = undefined;
  }

  /** Whether there is anything under this name. @param {string} name */
  has(name) {
    return this.#texts[name] !== undefined || (this.fields[name] ?? null) !== null;
  }

  touch() {
    this.#made = undefined;
  }

  /** The object as it is now. */
  get value() {
    return (this.#made ??= this.make());
  }

  /** @returns {any} */
  make() {
    const made = { ...this.fields };
    for (const [name, text] of Object.entries(this.#texts)) {
      made[name] = this.#ragged.has(name) ? text.toWellFormed() : text;
    }
    return made;
  }
}

/** A message. */
export class MessageDraft extends Draft {
  /** Text that follows content in blocks is a block behind them. */
  make() {
    const made = super.make();
    const blocks = this.fields.content;
    if (!Array.isArray(blocks) || made.content === blocks) return made;
    return { ...made, content: [...blocks, { type: "text", text: made.content }] };
  }
}

/** Drafts in order, each found by its key: its id, unless that is another's before it, or no string.
 * @template {Draft} D */
export class Drafts {
  /** @type {D[]} */
  rows = [];
  /** @type {Map<string | number, number>} */
  #places = new Map();
  #unnamed = 0;
  /** @type {readonly any[] | undefined} */
  #list;

  /** Hold these instead. @param {Iterable<D>} drafts */
  reset(drafts) {
    this.rows = [];
    this.#places.clear();
    for (const draft of drafts) this.add(draft);
    this.#list = undefined;
  }

  /** @param {D} draft */
  add(draft) {
    const { id } = draft.fields;
    draft.key = typeof id === "string" && !this.#places.has(id) ? id : ++this.#unnamed;
    this.#places.set(draft.key, this.rows.length);
    this.rows.push(draft);
    this.#list = undefined;
    return draft;
  }

  /** @param {string} key */
  has(key) {
    return this.#places.has(key);
  }

  /** Where the draft with this key stands. @param {string} key */
  place(key) {
    return this.#places.get(key);
  }

  /** The draft with this key, to read. @param {string} key @returns {D | undefined} */
  find(key) {
    const place = this.#places.get(key);
    return place === undefined ? undefined : this.rows[place];
  }

  /** The draft with this key, to change. @param {string} key */
  edit(key) {
    const draft = this.find(key);
    if (draft) this.#list = undefined;
    return draft;
  }

  /** Keep the first so many. @param {number} length */
  cut(length) {
    for (const { key } of this.rows.splice(length)) this.#places.delete(key);
    this.#list = undefined;
  }

  /** The objects as they are now; the same list until one changes. */
  get list() {
    return (this.#list ??= this.rows.map((draft) => draft.value));
  }
}

/** A list that is only appended to. @template T */
export class Rows {
  /** @type {T[]} */
  #rows = [];
  /** @type {readonly T[] | undefined} */
  #list;

  get length() {
    return this.#rows.length;
  }

  /** @param {T} row @param {number} [at] where it takes the place of another */
  put(row, at = this.#rows.length) {
    this.#rows[at] = row;
    this.#list = undefined;
  }

  /** Drop all but the last so many. @param {number} length */
  keep(length) {
    this.#rows = this.#rows.slice(-length);
  }

  /** The rows as they are now; the same list until one changes. */
  get list() {
    return (this.#list ??= this.#rows.slice());
  }
}
