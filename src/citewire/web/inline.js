// @ts-check
// What stands within a block: emphasis, code, links, citation markers, read from a text that may still grow.

import { webAddress } from "./dom.js";
import { say } from "./words.js";

/** A node to draw, and its place in the text that was read. Of a text node the first `skip` characters are not shown, or
 * `text` is instead. @typedef {{tag: string, from: number, to: number, kids?: Sketch[], skip?: number, text?: string,
 *   href?: string, labels?: string[]}} Sketch */
/** A run of `*`, `_` or `~` that may open or close emphasis. @typedef {Sketch & {mark: string, opens: boolean, closes: boolean}} Run */

// How far behind an opening mark its end is waited for, and how far it is drawn as if that had come.
const WAIT = 1000;
const HOPE = 240;
const LONGEST_TAIL = 600;

const SPECIAL = /[\\`[!<&*_~\n]|https?:\/\/|www\./gi;
const TAIL = /(?:[\\`*_~!<[]+|&#?\w{0,8}|<[a-z]{1,8}:[^\s<>]{0,500})$/i;
const NUMBERS = /\[(\d{1,6}(?: ?, ?\d{1,6})*)\](?!\()/y;
const NOTE = /\[\^([^[\]\s]{1,200})\]/y;
const BIT = String.raw`(?:[^\s()<>\\]|\\.)*`;
const TITLE = String.raw`(?:\s+(?:"[^"]*"|'[^']*'))?`;
const TARGET = new RegExp(String.raw`\(\s*(?:<([^<>\n]*)>|(${BIT}(?:\(${BIT}\)${BIT})*))${TITLE}\s*\)`, "y");
const ANGLED = /<(https?:\/\/[^\s<>]+)>/iy;
const BARE = /(?:https?:\/\/|www\.)[^\s<>"`[\]]+/iy;
const ENTITY = /&(?:#(\d{1,7})|#x([\da-f]{1,6})|(amp|lt|gt|quot|apos|nbsp));/iy;
const NAMED = /** @type {Record<string, string>} */ ({ amp: "&", lt: "<", gt: ">", quot: '"', apos: "'", nbsp: "\u00a0" });
const PUNCTUATION = /[\p{P}\p{S}]/u;
// Between two words, or behind a character of a script that does not part them.
const GAP = /^(?:\s\S|[\u2e80-\ud7ff\uf900-\uffef])/;
const ESCAPABLE = /[!-/:-@[-`{-~]/;

// A bracket behind such a word, or in front of such characters, is an index and no marker.
export const BEFORE = 48;
const CODE_WORD = /(?:^|[^\w$])(?:\w*_\w*|\$[A-Za-z]\w*|[a-z]|[a-z]{2,}[A-Z]\w*|arr|array|args|argv|buf|lst|tmp|vec)$/;
const CODE_AFTER = /(?:\[\d+\])*(?:\.[a-z_]|[ ]?(?:[-+*/|&^%]?=|==)|\(|[ ]?[-+]{2})/y;
const YEAR = /^(?:(?:1[5-9]|20|21)\d\d|0+)$/;

/** @param {RegExp} pattern @param {string} text @param {number} at */
function match(pattern, text, at) {
  pattern.lastIndex = at;
  return pattern.exec(text);
}

/** The sketches of `text`. Where it may still grow (`final` is false), what cannot be told yet is left out at the end, and
 * `cut` is a place up to which nothing changes any more. @param {string} text @param {{final?: boolean, before?: string}} [options] */
export function parse(text, { final = true, before = "" } = {}) {
  return new Reading(text, final, before).read();
}

class Reading {
  /** @param {string} text @param {boolean} final @param {string} before What stands in front of the text. */
  constructor(text, final, before) {
    this.text = text;
    this.final = final;
    this.before = before;
    // A mark at the very end may go on.
    const held = final ? 0 : (TAIL.exec(text.slice(-LONGEST_TAIL))?.[0].length ?? 0);
    this.end = text.length - held;
    this.stable = this.end;
    this.code = codeSpans(text);
    this.brackets = pairs(text, this.code);
  }

  read() {
    const sketches = this.#within(0, this.end, false);
    return { sketches, cut: this.final ? this.text.length : lastGap(sketches, this.text, this.stable) };
  }

  /** @param {number} from @param {number} to @param {boolean} inLink @returns {Sketch[]} */
  #within(from, to, inLink) {
    /** @type {(Sketch | Run)[]} */
    const items = [];
    let [at, start] = [from, from];
    for (let found; (found = match(SPECIAL, this.text, at)) && found.index < to; ) {
      const item = this.#at(found.index, found[0], to, inLink);
      if (item === "wait") {
        this.stable = Math.min(this.stable, found.index);
        to = found.index;
        break;
      }
      at = item ? item.to : found.index + 1;
      if (!item) continue;
      if (start < item.from) items.push(words(start, item.from));
      items.push(item);
      start = at;
    }
    if (start < to) items.push(words(start, to));
    return this.#emphasised(items, to);
  }

  /** What starts here: null where it is nothing but its characters. @param {number} at @param {string} special
   * @param {number} to @param {boolean} inLink @returns {Sketch | Run | "wait" | null} */
  #at(at, special, to, inLink) {
    const { text } = this;
    switch (special) {
      case "\\":
        if (text[at + 1] === "\n") return { tag: "br", from: at, to: at + 2 };
        return ESCAPABLE.test(text[at + 1] ?? "") ? { tag: "#text", from: at, to: at + 2, skip: 1 } : null;
      case "\n":
        return at > 1 && text[at - 1] === " " && text[at - 2] === " " ? { tag: "br", from: at, to: at + 1 } : null;
      case "`":
        return this.#code(at, to);
      case "[":
        return inLink ? null : this.#bracket(at, at);
      case "!":
        return text[at + 1] === "[" && !inLink ? this.#bracket(at, at + 1) : null;
      case "<":
        return inLink ? null : link(match(ANGLED, text, at), at);
      case "&":
        return entity(match(ENTITY, text, at), at);
      case "*":
      case "_":
      case "~":
        return this.#run(at, special);
      default:
        return inLink || /\w/.test(text[at - 1] ?? this.before.at(-1) ?? " ") ? null : bare(text, at);
    }
  }

  /** @param {number} at @param {number} to @returns {Sketch | null} */
  #code(at, to) {
    const span = this.code.get(at);
    if (span && span.to <= to) return { tag: "code", from: at, to: span.to, kids: [words(span.inner, span.innerTo)] };
    const length = run(this.text, at);
    const literal = { tag: "#text", from: at, to: at + length };
    if (this.final || to - at > WAIT) return literal;
    this.stable = Math.min(this.stable, at);
    return to - at > HOPE ? literal : { tag: "code", from: at, to, kids: [words(at + length, to)] };
  }

  /** A marker or a link; `open` is where its bracket is. @param {number} at @param {number} open
   * @returns {Sketch | "wait" | null} */
  #bracket(at, open) {
    const { text } = this;
    const marker = at === open ? this.#marker(open) : null;
    if (marker) return !this.final && marker.to === text.length ? "wait" : marker;
    const close = this.brackets.get(open);
    if (close === undefined) return !this.final && text.length - open < HOPE * 2 ? "wait" : null;
    if (close + 1 === text.length) return this.final ? null : "wait";
    if (text[close + 1] !== "(") return null;
    const target = match(TARGET, text, close + 1);
    if (!target) return !this.final && text.length - close < WAIT && isOpen(text, close + 1) ? "wait" : null;
    const href = webAddress((target[1] ?? target[2]).replace(/\\([!-/:-@[-`{-~])/g, "$1"));
    if (!href) return null;
    const to = close + 1 + target[0].length;
    const alt = { tag: "#text", from: open + 1, to: close, text: say("image", { alt: text.slice(open + 1, close) }) };
    return { tag: "a", from: at, to, href, kids: at < open ? [alt] : this.#within(open + 1, close, true) };
  }

  /** @param {number} at @returns {Sketch | null} */
  #marker(at) {
    const note = match(NOTE, this.text, at);
    if (note) return { tag: "cite-marker", from: at, to: at + note[0].length, labels: [note[1]] };
    const numbers = match(NUMBERS, this.text, at);
    if (!numbers || this.#isIndex(at, at + numbers[0].length, numbers[1])) return null;
    return { tag: "cite-marker", from: at, to: at + numbers[0].length, labels: [...new Set(numbers[1].split(/ ?, ?/))] };
  }

  /** Whether numbers in brackets are an index, a list of numbers or a year. @param {number} from @param {number} to
   * @param {string} numbers */
  #isIndex(from, to, numbers) {
    const front = (from < BEFORE ? this.before : "") + this.text.slice(Math.max(0, from - BEFORE), from);
    if (YEAR.test(numbers) || /(?:=\s*|\[|\w\()$/.test(front)) return true;
    if (this.text[to] === ":" && /(?:^|\n) {0,3}$/.test(front)) return true;
    return /[\w$]$/.test(front) && (CODE_WORD.test(front) || match(CODE_AFTER, this.text, to) !== null);
  }

  /** @param {number} at @param {string} mark @returns {Sketch | Run} */
  #run(at, mark) {
    const length = run(this.text, at);
    const [left, right] = [this.text[at - 1] ?? this.before.at(-1) ?? " ", this.text[at + length] ?? " "];
    const plain = { tag: "#text", from: at, to: at + length };
    if (mark === "~" && length !== 2) return plain;
    const opens = !/\s/.test(right) && (!PUNCTUATION.test(right) || /\s/.test(left) || PUNCTUATION.test(left));
    const closes = !/\s/.test(left) && (!PUNCTUATION.test(left) || /\s/.test(right) || PUNCTUATION.test(right));
    const strict = mark === "_";
    return {
      ...plain,
      mark,
      opens: opens && (!strict || !closes || PUNCTUATION.test(left)),
      closes: closes && (!strict || !opens || PUNCTUATION.test(right)),
    };
  }

  /** Pair the runs, as CommonMark does. @param {(Sketch | Run)[]} items @param {number} to */
  #emphasised(items, to) {
    for (let at = 0; at < items.length; at++) {
      const closer = items[at];
      if (!isRun(closer) || !closer.closes) continue;
      const open = items.findLastIndex((item, index) => index < at && isRun(item) && fits(item, closer));
      if (open < 0) continue;
      const opener = items[open];
      const size = Math.min(2, opener.to - opener.from, closer.to - closer.from);
      const node = wrapped(closer.mark, size, opener.to - size, closer.from + size, items.slice(open + 1, at));
      opener.to -= size;
      closer.from += size;
      const left = [opener, node, closer].filter((item) => item.from < item.to);
      items.splice(open, at - open + 1, ...left);
      at = open + left.indexOf(node);
    }
    return this.final ? items.map(settledRun) : this.#hoped(items, to);
  }

  /** Draw what is still open as if it ended here. @param {(Sketch | Run)[]} items @param {number} to */
  #hoped(items, to) {
    for (let at = items.length - 1; at >= 0; at--) {
      const item = items[at];
      if (!isRun(item) || !item.opens || to - item.from > WAIT) continue;
      this.stable = Math.min(this.stable, item.from);
      if (to - item.from > HOPE || /\w/.test(this.text[item.from - 1] ?? "")) continue;
      const size = Math.min(2, item.to - item.from);
      items.splice(at, items.length, wrapped(item.mark, size, item.from, to, items.slice(at + 1)));
    }
    return items.map(settledRun);
  }
}

/** @param {number} from @param {number} to @returns {Sketch} */
const words = (from, to) => ({ tag: "#text", from, to });

/** @param {Sketch | Run} item @returns {item is Run} */
const isRun = (item) => "mark" in item;

/** @param {Sketch | Run} item */
const settledRun = (item) => (isRun(item) ? words(item.from, item.to) : item);

/** @param {string} mark @param {number} size @param {number} from @param {number} to @param {(Sketch | Run)[]} kids @returns {Sketch} */
function wrapped(mark, size, from, to, kids) {
  return { tag: mark === "~" ? "del" : size === 2 ? "strong" : "em", from, to, kids: kids.map(settledRun) };
}

/** Whether two runs belong together. @param {Run} opener @param {Run} closer */
function fits(opener, closer) {
  if (!opener.opens || opener.mark !== closer.mark) return false;
  const [one, other] = [opener.to - opener.from, closer.to - closer.from];
  return !((opener.closes || closer.opens) && (one + other) % 3 === 0 && (one % 3 || other % 3));
}

/** Whether the parenthesis at `at` has yet to be closed. @param {string} text @param {number} at */
function isOpen(text, at) {
  let depth = 0;
  for (; at < text.length && text[at] !== "\n"; at++) {
    if (text[at] === "(") depth++;
    else if (text[at] === ")" && --depth === 0) return false;
  }
  return at === text.length;
}

/** How often the character at `at` stands there. @param {string} text @param {number} at */
function run(text, at) {
  let to = at;
  while (text[to] === text[at]) to++;
  return to - at;
}

/** Where code is: runs of backticks that are closed by one of the same length. @param {string} text */
function codeSpans(text) {
  const runs = [...text.matchAll(/`+/g)].map(({ index, 0: { length } }) => ({ at: index, length }));
  /** @type {Map<number, number[]>} */
  const later = new Map();
  for (let n = runs.length - 1; n >= 0; n--) {
    const same = later.get(runs[n].length);
    if (same) same.push(n);
    else later.set(runs[n].length, [n]);
  }
  /** @type {Map<number, {to: number, inner: number, innerTo: number}>} */
  const spans = new Map();
  for (let n = 0; n < runs.length; n++) {
    const escaped = /(?:^|[^\\])(?:\\\\)*\\$/.test(text.slice(Math.max(0, runs[n].at - BEFORE), runs[n].at));
    const [at, length] = escaped ? [runs[n].at + 1, runs[n].length - 1] : [runs[n].at, runs[n].length];
    const same = later.get(length) ?? [];
    while (same.length && same[same.length - 1] <= n) same.pop();
    const close = length ? same.at(-1) : undefined;
    if (close === undefined) continue;
    const inner = text.slice(at + length, runs[close].at);
    const padded = /^\s[^]*\S[^]*\s$/.test(inner) ? 1 : 0;
    spans.set(at, { to: runs[close].at + length, inner: at + length + padded, innerTo: runs[close].at - padded });
    n = close;
  }
  return spans;
}

/** Which bracket closes which, outside of code. @param {string} text @param {Map<number, {to: number}>} code */
function pairs(text, code) {
  /** @type {Map<number, number>} */
  const found = new Map();
  /** @type {number[]} */
  const open = [];
  for (let at = 0; at < text.length; at++) {
    const mark = text[at];
    if (mark === "\\") at++;
    else if (mark === "`") at = (code.get(at)?.to ?? at + run(text, at)) - 1;
    else if (mark === "[") open.push(at);
    else if (mark === "]" && open.length) found.set(/** @type {number} */ (open.pop()), at);
  }
  return found;
}

/** @param {RegExpExecArray | null} found @param {number} at @returns {Sketch | null} */
function link(found, at) {
  const href = found && webAddress(found[1]);
  if (!href) return null;
  const to = at + found[0].length;
  return { tag: "a", from: at, to, href, kids: [words(at + 1, to - 1)] };
}

/** An address in the text, without what ends the sentence around it. @param {string} text @param {number} at @returns {Sketch | null} */
function bare(text, at) {
  let shown = match(BARE, text, at)?.[0].replace(/[?!.,:;*_~'"]+$/, "") ?? "";
  while (shown.endsWith(")") && shown.split(")").length > shown.split("(").length) shown = shown.slice(0, -1);
  const href = /[^/]\.[^.]|localhost/.test(shown) ? webAddress(/^www/i.test(shown) ? `https://${shown}` : shown) : null;
  return href ? { tag: "a", from: at, to: at + shown.length, href, kids: [words(at, at + shown.length)] } : null;
}

/** @param {RegExpExecArray | null} found @param {number} at @returns {Sketch | null} */
function entity(found, at) {
  if (!found) return null;
  const code = found[1] ? Number(found[1]) : parseInt(found[2], 16);
  const named = found[3] && NAMED[found[3].toLowerCase()];
  const text = named || (code > 0 && code < 0x110000 ? String.fromCodePoint(code) : "\ufffd");
  return { tag: "#text", from: at, to: at + found[0].length, text };
}

/** The last gap before `limit` that nothing encloses. @param {Sketch[]} sketches @param {string} text
 * @param {number} limit */
function lastGap(sketches, text, limit) {
  for (const { tag, from, to, text: other } of sketches.toReversed()) {
    if (tag !== "#text" || other !== undefined || from >= limit) continue;
    for (let at = Math.min(to, limit) - 1; at >= from; at--) {
      if (at + 1 < text.length && GAP.test(text.slice(at, at + 2))) return at + 1;
    }
  }
  return 0;
}
