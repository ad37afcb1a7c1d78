// Server-sent events, from bytes that are cut anywhere: within a line break, within a character.

/** @typedef {{data: string, id: string | undefined, event: string | undefined}} Frame */

// Characters: a frame with no end in sight would have to be held in memory whole.
const LONGEST = 10 * 1024 * 1024;

export class FrameTooLarge extends Error {}

/** The frames of one response. Takes time in proportion to its bytes. */
export class Frames {
  #decoder = new TextDecoder(); // which drops a byte order mark
  #partial = ""; // the line that has not ended
  #isAfterCr = false;
  /** @type {string[]} */
  #data = [];
  #size = 0;
  /** @type {string | undefined} */
  #id;
  /** @type {string | undefined} */
  #event;

  /** The frames that end in this piece: those with data, or with an id. Throws `FrameTooLarge`.
   * @param {Uint8Array} piece */
  feed(piece) {
    let text = this.#decoder.decode(piece, { stream: true });
    if (!text) return [];
    const isAfterCr = this.#isAfterCr;
    this.#isAfterCr = text.endsWith("\r");
    if (isAfterCr && text.startsWith("\n")) text = text.slice(1); // the line has ended at the CR
    const lines = text.split(/\r\n|\n|\r/);
    lines[0] = this.#partial + lines[0];
    this.#partial = lines.pop() ?? "";
    const found = lines.flatMap((line) => this.#read(line));
    if (this.#size + this.#partial.length <= LONGEST) return found;
    throw new FrameTooLarge(`a frame of more than ${LONGEST} characters`);
  }

  /** @param {string} line @returns {Frame[]} */
  #read(line) {
    if (!line) return this.#ended();
    const [, name, value] = /** @type {RegExpExecArray} */ (/^([^:]*)(?:: ?)?(.*)$/s.exec(line));
    if (name === "data") {
      this.#data.push(value);
      this.#size += line.length;
    } else if (name === "id" && !value.includes("\0")) {
      this.#id = value;
    } else if (name === "event") {
      this.#event = value;
    }
    return [];
  }

  /** @returns {Frame[]} */
  #ended() {
    const frame = { data: this.#data.join("\n"), id: this.#id, event: this.#event };
    const isFrame = this.#data.length > 0 || this.#id !== undefined;
    this.#data = [];
    this.#size = 0;
    this.#id = this.#event = undefined;
    return isFrame ? [frame] : [];
  }
}
