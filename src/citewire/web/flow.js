// @ts-check
// The words of one block, drawn as they come. Only what could still change is read again, so a delta costs the same
// however long the block already is; what stays keeps its nodes, and with them focus, selection and an open card.

import { make } from "./dom.js";
import { BEFORE, parse } from "./inline.js";

/** @typedef {import("./inline.js").Sketch} Sketch */
/** A node as it should be: `start` is where in the source it stands, `from` and `to` where in the text at hand.
 * @typedef {{tag: string, start: number, from: number, to: number, data: string, isPlain: boolean, kids: Shape[],
 *   href?: string, label: string}} Shape */

// Of a longer text without a place to settle at, the front is settled as it is.
const LONGEST = 2048;
const CHUNK = 1024;
// A longer text node would be laid out anew as a whole for every word.
const LONGEST_NODE = 4096;

const LETTER = /\p{L}/u;
const RIGHT_TO_LEFT = /[\u0590-\u08ff\ufb1d-\ufdff\ufe70-\ufefc\u{10800}-\u{10fff}\u{1e800}-\u{1efff}]/u;

export class Flow {
  #text = "";
  #before = "";
  /** Where stretches of `#text` stand in the source. @type {{at: number, source: number}[]} */
  #stretches = [];
  /** The last node that stays; of a text node the first `#kept` characters, up to `#source`. @type {Node | null} */
  #last = null;
  #kept = 0;
  #source = 0;

  /** @param {HTMLElement} parent @param {import("./markdown.js").Page} page */
  constructor(parent, page) {
    this.parent = parent;
    this.page = page;
  }

  /** @param {string} text @param {number} source Where in the source it stands. */
  append(text, source) {
    if (!this.parent.dir) this.#direct(LETTER.exec(text)?.[0]);
    for (let at = 0; at < text.length; at += CHUNK) {
      const last = this.#stretches.at(-1);
      const goesOn = last && source + at === last.source + this.#text.length - last.at;
      if (!goesOn) this.#stretches.push({ at: this.#text.length, source: source + at });
      this.#text += text.slice(at, at + CHUNK);
      if (this.#text.length > CHUNK) this.draw();
    }
  }

  /** The first letter says which way a block runs, and what holds it and has none yet. `dir=auto` says the same, but
   * looks for it again with every word. @param {string | undefined} letter */
  #direct(letter) {
    const dir = letter && (RIGHT_TO_LEFT.test(letter) ? "rtl" : "ltr");
    if (!dir) return;
    /** @type {HTMLElement | null} */
    let node = this.parent;
    for (; node && !node.dir && node !== this.page.root; node = node.parentElement) node.dir = dir;
  }

  /** Bring what is drawn up to date; `final` where nothing follows. */
  draw(final = false) {
    const { sketches, cut } = parse(this.#text, { final, before: this.#before });
    this.#show(sketches, cut);
    while (this.#text.length > LONGEST) {
      const front = this.#text.lastIndexOf(" ", CHUNK) + 1 || CHUNK;
      this.#show(parse(this.#text.slice(0, front), { before: this.#before }).sketches, front);
      this.draw();
    }
  }

  /** Draw these, and settle what ends before `cut`. @param {Sketch[]} sketches @param {number} cut */
  #show(sketches, cut) {
    const { places } = this.page;
    places.pieces.length = places.settled;
    const shapes = this.#shapes(sketches);
    const goesOn = this.#joins(shapes[0]);
    const nodes = this.#children(this.parent, goesOn ? (this.#last?.previousSibling ?? null) : this.#last, shapes);
    shapes.forEach((shape, at) => {
      if (at || !goesOn) this.#note(shape, nodes[at]);
      const isText = nodes[at] instanceof Text;
      if (shape.to > cut && !(isText && shape.from < cut)) return;
      this.#last = nodes[at];
      this.#kept = isText ? shape.data.length - Math.max(0, shape.to - cut) : 0;
      this.#source = shape.isPlain ? shape.start + this.#kept : -1;
      places.settled = places.pieces.length;
    });
    this.#drop(cut);
  }

  /** Let the last text node go on with the first shape, if there is one, where they are one stretch of the source.
   * @param {Shape | undefined} first */
  #joins(first) {
    if (!(this.#last instanceof Text)) return false;
    const kept = this.#last.data.slice(0, this.#kept);
    const fits = first?.isPlain && first.start === this.#source && this.#kept < LONGEST_NODE;
    if (fits) Object.assign(first, { start: this.#source - this.#kept, data: kept + first.data });
    else setText(this.#last, kept);
    return fits ?? false;
  }

  /** @param {Sketch[]} sketches @returns {Shape[]} */
  #shapes(sketches) {
    /** @type {Shape[]} */
    const shapes = [];
    for (const sketch of sketches) {
      for (const shape of this.#shape(sketch)) {
        const last = shapes.at(-1);
        if (last?.isPlain && shape.isPlain && last.start + last.data.length === shape.start) {
          last.data += shape.data;
          last.to = shape.to;
        } else shapes.push(shape);
      }
    }
    return shapes;
  }

  /** @param {Sketch} sketch @returns {Shape[]} */
  #shape({ tag, from, to, kids = [], skip = 0, text, href, labels = [] }) {
    const start = this.#sourceAt(from);
    const whole = { tag, from, to, start, data: text ?? "", isPlain: false, label: "", href, kids: this.#shapes(kids) };
    if (tag === "cite-marker") return labels.map((label) => ({ ...whole, label }));
    if (tag !== "#text" || text !== undefined) return [whole];
    const ends = [...this.#stretches.map(({ at }) => at).filter((at) => at > from + skip && at < to), to];
    return ends.map((end, n) => {
      const first = n ? ends[n - 1] : from + skip;
      const data = this.#text.slice(first, end);
      return { ...whole, from: n ? first : from, to: end, start: this.#sourceAt(first), data, isPlain: true };
    });
  }

  /** @param {number} at */
  #sourceAt(at) {
    const stretch = this.#stretches.findLast((one) => one.at <= at) ?? this.#stretches[0];
    return stretch.source + at - stretch.at;
  }

  /** The nodes of these shapes, behind `after`; those that fit stay. @param {Node} parent @param {Node | null} after
   * @param {Shape[]} shapes */
  #children(parent, after, shapes) {
    let old = after ? after.nextSibling : parent.firstChild;
    const nodes = shapes.map((shape) => {
      const node = old && isLike(old, shape) ? old : this.#create(shape);
      if (node === old) old = old.nextSibling;
      else parent.insertBefore(node, old);
      if (node instanceof Text) setText(node, shape.data);
      else if (node instanceof HTMLAnchorElement && shape.href) node.href = shape.href;
      if (shape.kids.length) this.#children(node, null, shape.kids);
      return node;
    });
    while (old) {
      const gone = old;
      old = old.nextSibling;
      gone.parentNode?.removeChild(gone);
    }
    return nodes;
  }

  /** @param {Shape} shape @returns {Node} */
  #create({ tag, data, start, from, to, label }) {
    if (tag === "#text") return new Text(data);
    if (tag === "cite-marker") return this.page.marker({ label, start, end: start + to - from });
    return tag === "a" ? make("a", { target: "_blank", rel: "noopener noreferrer" }) : document.createElement(tag);
  }

  /** Remember where the text of a node stands. @param {Shape} shape @param {Node} node */
  #note(shape, node) {
    if (node instanceof Text) {
      const isShort = shape.data.length <= shape.to - shape.from;
      if (shape.isPlain || isShort) this.page.places.pieces.push({ start: shape.start, node });
    } else shape.kids.forEach((kid, at) => this.#note(kid, node.childNodes[at]));
  }

  /** @param {number} cut */
  #drop(cut) {
    if (!cut) return;
    const source = this.#sourceAt(cut);
    const left = this.#stretches.filter(({ at }) => at > cut).map((one) => ({ ...one, at: one.at - cut }));
    this.#stretches = cut < this.#text.length ? [{ at: 0, source }, ...left] : [];
    this.#before = (this.#before + this.#text.slice(0, cut)).slice(-BEFORE);
    this.#text = this.#text.slice(cut);
  }
}

/** @param {Node} node @param {Shape} shape */
function isLike(node, { tag, start, label }) {
  if (tag !== "cite-marker") return node.nodeName.toLowerCase() === tag;
  const { place } = /** @type {any} */ (node);
  return place?.start === start && place.label === label;
}

/** Change only what differs, at the end: a selection further up stays. @param {Text} node @param {string} data */
function setText(node, data) {
  const old = node.data;
  if (old === data) return;
  let same = data.startsWith(old) ? old.length : 0;
  while (same < old.length && old[same] === data[same]) same++;
  node.replaceData(same, old.length - same, data.slice(same));
}
