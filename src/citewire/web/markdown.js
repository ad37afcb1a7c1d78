// @ts-check
// Markdown that streams in, drawn as it comes. A line is looked at once, when it is told what it is; blocks that are
// closed are never touched again. Close to CommonMark with tables and strikethrough of GFM, and different where a
// stream would make what is already drawn jump, or a model means something else:
// * no headings by underlines: `---` is always a rule;
// * no code by indentation;
// * every item of a list holds paragraphs, as whether a list is loose shows only later;
// * HTML is shown as it is written, a picture is a link, `[^id]: …` lines are taken out.

import { make } from "./dom.js";
import { Flow } from "./flow.js";
import { Places } from "./places.js";

/** @typedef {{label: string, start: number, end: number}} MarkerPlace Where a marker stands in the text. */
/** @typedef {{places: Places, marker: (place: MarkerPlace) => Node, root: Element}} Page */
/** A quote or an item of a list that is open.
 * @typedef {{kind: "quote" | "item", node: Element, indent: number, list: Element | null, mark: string}} Box */
/** @typedef {{kind: "text", node: HTMLElement, flow: Flow, first: string, at: number, lines: number}
 *   | {kind: "code", node: Element, fence: string, indent: number, lines: number}
 *   | {kind: "table", node: Element, aligns: string[]}} Leaf */

// A longer line is text.
const LONGEST_MARK = 4000;
const LONGEST_NODE = 4096;
// Nobody writes deeper, and a browser can be brought down by depth.
const DEEPEST = 32;

const BULLET = /([-+*])(?=[ \t]|$)|(\d{1,9})([.)])(?=[ \t]|$)/y;
const FENCE = /(`{3,})[^`]*$|(~{3,}).*$/y;
const HEADING = /#{1,6}(?=[ \t]|$)/y;
const RULE = /([-*_])(?:[ \t]*\1){2,}[ \t]*$/y;
const DEFINITION = /\[\^([^[\]\s]{1,200})\]:(.*)$/y;
const DELIMITER = /^[ \t]*\|?[ \t]*:?-+:?[ \t]*(?:\|[ \t]*:?-+:?[ \t]*)*\|?[ \t]*$/;
// What a line may begin with that is not yet told by its first characters.
const UNTOLD = new RegExp(
  String.raw`^(?:[ \t>]|(?:[-+*]|\d{1,9}[.)])[ \t]+)*(?:$|#{1,6}$|#{1,6}[ \t]|[-+*]$|([-*_])(?:[ \t]*\1)*[ \t]*$|\d{1,9}[.)]?$` +
    String.raw`|[-:|][-:| \t]*$|\||\x60{1,2}$|\x60{3,}[^\x60]*$|~|\[$|\[\^[^\]\s]*$|\[\^[^\]\s]+\]$|\[\^[^\]\s]+\]:)`,
);

export class Markdown {
  /** @type {Box[]} */
  #boxes = [];
  /** @type {Leaf | null} */
  #leaf = null;
  /** The line that is not complete, where it starts, and whether the leaf already takes what comes of it. */
  #line = "";
  #at = 0;
  #goesOn = false;
  /** Up to here nothing is drawn anew. */
  closed = 0;

  /** @param {Element} root @param {(place: MarkerPlace) => Node} marker
   * @param {(label: string, text: string) => void} [define] What `[^label]: text` says. */
  constructor(root, marker, define = () => {}) {
    this.define = define;
    /** @type {Page} */
    this.page = { places: new Places(), marker, root };
  }

  /** @param {string} text */
  append(text) {
    let from = 0;
    for (let to; (to = text.indexOf("\n", from)) >= 0; from = to + 1) {
      this.#take(text.slice(from, to));
      this.#endLine();
    }
    this.#take(text.slice(from));
  }

  /** Bring what is drawn up to date. */
  draw() {
    if (this.#leaf?.kind === "text" && !isHeld(this.#leaf)) this.#leaf.flow.draw();
  }

  /** Nothing follows. */
  end() {
    if (this.#line) this.#endLine();
    this.#close(0);
  }

  /** @param {string} text */
  #take(text) {
    this.#line += text;
    if (!this.#goesOn) {
      if (!this.#line) return;
      if (this.#isTold()) this.#read(this.#line);
      else if (this.#line.length > LONGEST_MARK && !this.#isHolding) this.#text(this.#line, 0, this.#boxes.length);
      else return;
      this.#goesOn = true;
    } else if (this.#leaf?.kind === "text") this.#leaf.flow.append(text, this.#at + this.#line.length - text.length);
    else if (this.#leaf?.kind === "code") this.#write(this.#leaf, text, this.#at + this.#line.length - text.length);
    // What went on is not needed again, only how long it was.
    this.#at += this.#line.length;
    this.#line = "";
  }

  #endLine() {
    if (!this.#goesOn) this.#read(this.#line.replace(/\r$/, ""));
    this.#at += this.#line.length + 1;
    [this.#line, this.#goesOn] = ["", false];
  }

  /** Whether the line shows what it is, and the rest of it cannot change that. */
  #isTold() {
    if (this.#leaf?.kind === "code") return !/^[ \t>]*(?:`*|~*)[ \t]*\r?$/.test(this.#line);
    return !this.#isHolding && !UNTOLD.test(this.#line);
  }

  /** Whether lines are only taken when they are complete. */
  get #isHolding() {
    return this.#leaf?.kind === "table";
  }

  /** A line, as far as it is there. @param {string} line */
  #read(line) {
    let { pos, depth } = this.#matched(line);
    const leaf = this.#leaf;
    if (leaf?.kind === "code" && depth === this.#boxes.length) return this.#codeLine(leaf, line, pos);
    if (/^[ \t]*$/.test(line.slice(pos))) return this.#blank(depth);
    ({ pos, depth } = this.#opened(line, pos, depth));
    const { columns, next } = indent(line, pos);
    if (this.#isBlock(line, columns, next, depth)) return;
    const isLast = depth === this.#boxes.length;
    if (this.#leaf?.kind === "table" && isLast) return this.#row(this.#leaf, "td", line, next);
    if (this.#leaf?.kind === "text" && isLast && this.#isTable(this.#leaf, line, next)) return;
    this.#text(line, next, depth);
  }

  /** How far the open boxes go on in this line, and how many do. @param {string} line */
  #matched(line) {
    let [pos, depth] = [0, 0];
    for (; depth < this.#boxes.length; depth++) {
      const box = this.#boxes[depth];
      const { columns, next } = indent(line, pos);
      if (box.kind === "quote") {
        if (columns > 3 || line[next] !== ">") break;
        pos = next + (/[ \t]/.test(line[next + 1] ?? "") ? 2 : 1);
      } else {
        if (next < line.length && columns < box.indent) break;
        pos = skip(line, pos, box.indent);
      }
    }
    return { pos, depth };
  }

  /** @param {number} depth */
  #blank(depth) {
    const quote = this.#boxes.findIndex((box, at) => at >= depth && box.kind === "quote");
    this.#close(quote < 0 ? this.#boxes.length : quote);
  }

  /** Open the quotes and items that this line begins. @param {string} line @param {number} pos @param {number} depth */
  #opened(line, pos, depth) {
    while (depth < DEEPEST) {
      const { columns, next } = indent(line, pos);
      if (line[next] === ">" && columns < 4) {
        pos = next + (/[ \t]/.test(line[next + 1] ?? "") ? 2 : 1);
        this.#open(depth++, { kind: "quote", node: make("blockquote"), indent: 0, list: null, mark: ">" });
        continue;
      }
      const bullet = matchAt(BULLET, line, next);
      if (!bullet || matchAt(RULE, line, next) || !this.#mayOpen(bullet, line, next, depth)) return { pos, depth };
      const mark = bullet[1] ?? bullet[3];
      const behind = indent(line, next + bullet[0].length);
      const isEmpty = behind.next === line.length;
      const gap = isEmpty || behind.columns > 4 ? 1 : behind.columns;
      const before = this.#boxes[depth];
      const list = before?.kind === "item" && before.mark === mark ? before.list : newList(bullet);
      this.#open(depth++, { kind: "item", node: make("li"), indent: columns + bullet[0].length + gap, list, mark });
      pos = isEmpty ? line.length : skip(line, next + bullet[0].length, gap);
    }
    return { pos, depth };
  }

  /** Whether a mark begins an item here; in the middle of a paragraph not every one does. @param {RegExpExecArray} bullet
   * @param {string} line @param {number} next @param {number} depth */
  #mayOpen(bullet, line, next, depth) {
    if (this.#leaf?.kind !== "text" || this.#boxes[depth]?.kind === "item") return true;
    return /\S/.test(line.slice(next + bullet[0].length)) && (bullet[2] ?? "1") === "1";
  }

  /** @param {number} depth @param {Box} box */
  #open(depth, box) {
    this.#close(depth);
    const parent = this.#boxes.at(-1)?.node ?? this.page.root;
    if (box.list) {
      if (!box.list.parentNode) parent.append(box.list);
      box.list.append(box.node);
    } else parent.append(box.node);
    this.#boxes.push(box);
  }

  /** Whether what is neither text nor table began. @param {string} line @param {number} columns @param {number} next
   * @param {number} depth */
  #isBlock(line, columns, next, depth) {
    const fence = matchAt(FENCE, line, next);
    const heading = matchAt(HEADING, line, next);
    const definition = matchAt(DEFINITION, line, next);
    if (fence) this.#code(fence[1] ?? fence[2], columns, line.slice(next), depth);
    else if (heading) this.#heading(heading[0].length, line, next, depth);
    else if (matchAt(RULE, line, next)) this.#add(depth, make("hr"));
    else if (definition) this.define(definition[1], definition[2].trim());
    else return false;
    return true;
  }

  /** @template {Element} T @param {number} depth @param {T} node */
  #add(depth, node) {
    this.#close(depth);
    (this.#boxes.at(-1)?.node ?? this.page.root).append(node);
    return node;
  }

  /** @param {number} level @param {string} line @param {number} next @param {number} depth */
  #heading(level, line, next, depth) {
    const node = this.#add(depth, make(/** @type {"h1"} */ (`h${level}`)));
    const start = indent(line, next + level).next;
    let end = line.trimEnd().length;
    while (end > start && line[end - 1] === "#") end--;
    // Marks at the end belong to the heading only behind a space.
    if (end > start && !/[ \t]/.test(line[end - 1])) end = line.trimEnd().length;
    fill(node, line.slice(start, end).trimEnd(), this.#at + start, this.page);
  }

  /** @param {string} fence @param {number} columns @param {string} line @param {number} depth */
  #code(fence, columns, line, depth) {
    const code = make("code");
    const language = line.slice(fence.length).trim().split(/\s/)[0];
    const pre = make("pre", { tabIndex: 0, dir: "ltr" }, code);
    if (language) pre.dataset.language = language;
    this.#add(depth, pre);
    this.#leaf = { kind: "code", node: code, fence, indent: columns, lines: 0 };
  }

  /** @param {Extract<Leaf, {kind: "code"}>} leaf @param {string} line @param {number} pos */
  #codeLine(leaf, line, pos) {
    const { columns, next } = indent(line, pos);
    const rest = line.slice(next).trimEnd();
    const isFence = rest.length >= leaf.fence.length && rest === leaf.fence[0].repeat(rest.length);
    if (columns < 4 && isFence) return this.#close(this.#boxes.length);
    const start = skip(line, pos, Math.min(leaf.indent, columns));
    if (leaf.lines++) this.#write(leaf, "\n", this.#at - 1);
    this.#write(leaf, line.slice(start), this.#at + start);
  }

  /** @param {Extract<Leaf, {kind: "code"}>} leaf @param {string} text @param {number} source */
  #write({ node }, text, source) {
    const { places } = this.page;
    const last = places.pieces.at(-1);
    const goesOn = last && last.node === node.lastChild && last.start + last.node.data.length === source;
    if (goesOn && last.node.data.length < LONGEST_NODE) return last.node.appendData(text);
    const piece = { start: source, node: new Text(text) };
    node.append(piece.node);
    places.pieces.push(piece);
    places.settled = places.pieces.length;
  }

  /** @param {string} line @param {number} next @param {number} depth */
  #text(line, next, depth) {
    if (next >= line.length) return;
    if (this.#leaf?.kind !== "text") {
      const node = this.#add(depth, make("p"));
      const flow = new Flow(node, this.page);
      this.#leaf = { kind: "text", node, flow, first: line.slice(next), at: this.#at + next, lines: 0 };
    } else this.#leaf.flow.append("\n", this.#at - 1);
    this.#leaf.lines++;
    this.#leaf.flow.append(line.slice(next), this.#at + next);
  }

  /** Whether this line makes the one before it the head of a table. @param {Extract<Leaf, {kind: "text"}>} leaf
   * @param {string} line @param {number} next */
  #isTable(leaf, line, next) {
    const text = line.slice(next);
    if (leaf.lines !== 1 || !leaf.first.includes("|") || !DELIMITER.test(text)) return false;
    const marks = cells(text);
    if (marks.length !== cells(leaf.first).length) return false;
    const { places } = this.page;
    while (places.pieces.length && places.pieces[places.pieces.length - 1].start >= leaf.at) places.pieces.pop();
    places.settled = places.pieces.length;
    const table = make("table");
    leaf.node.replaceWith(make("div", { className: "table", tabIndex: 0 }, table));
    const aligns = marks.map(({ text: mark }) => (mark.endsWith(":") ? (mark.startsWith(":") ? "center" : "end") : ""));
    this.#leaf = { kind: "table", node: table, aligns };
    const head = make("thead");
    table.append(head);
    this.#fillRow(head, aligns, "th", cells(leaf.first), leaf.at);
    return true;
  }

  /** @param {Extract<Leaf, {kind: "table"}>} leaf @param {"td"} tag @param {string} line @param {number} next */
  #row(leaf, tag, line, next) {
    const body = leaf.node.querySelector("tbody") ?? leaf.node.appendChild(make("tbody"));
    this.#fillRow(body, leaf.aligns, tag, cells(line.slice(next)), this.#at + next);
  }

  /** @param {Element} parent @param {string[]} aligns @param {"td" | "th"} tag @param {{text: string, at: number}[]} row
   * @param {number} source */
  #fillRow(parent, aligns, tag, row, source) {
    const line = make("tr");
    parent.append(line);
    aligns.forEach((align, at) => {
      const cell = make(tag, { className: align });
      line.append(cell);
      if (row[at]?.text) fill(cell, row[at].text, source + row[at].at, this.page);
    });
  }

  /** Close the leaf, and the boxes from `depth` on. @param {number} depth */
  #close(depth) {
    if (this.#leaf?.kind === "text") this.#leaf.flow.draw(true);
    this.#leaf = null;
    this.#boxes.length = depth;
    this.closed = this.#at;
  }
}

/** What may be the head of a table is not shown before the next line tells. @param {Extract<Leaf, {kind: "text"}>} leaf */
const isHeld = ({ first, lines }) => first.startsWith("|") && lines === 1;

/** @param {RegExpExecArray} bullet */
function newList([, , number]) {
  if (number === undefined) return make("ul");
  const list = make("ol");
  if (number !== "1") list.start = Number(number);
  return list;
}

/** @param {HTMLElement} node @param {string} text @param {number} source @param {Page} page */
function fill(node, text, source, page) {
  const flow = new Flow(node, page);
  flow.append(text, source);
  flow.draw(true);
}

/** @param {RegExp} pattern @param {string} line @param {number} at */
function matchAt(pattern, line, at) {
  pattern.lastIndex = at;
  return pattern.exec(line);
}

/** How far the text behind `pos` is indented, a tab as four, and where it starts. @param {string} line @param {number} pos */
function indent(line, pos) {
  let columns = 0;
  let next = pos;
  for (; line[next] === " " || line[next] === "\t"; next++) columns += line[next] === "\t" ? 4 : 1;
  return { columns, next };
}

/** The place behind so many columns of white space. @param {string} line @param {number} pos @param {number} columns */
function skip(line, pos, columns) {
  while (columns > 0 && (line[pos] === " " || line[pos] === "\t")) columns -= line[pos++] === "\t" ? 4 : 1;
  return pos;
}

/** The cells of a row, and where each stands. @param {string} row */
function cells(row) {
  /** @type {{text: string, at: number}[]} */
  const found = [];
  let start = /^[ \t]*\|?/.exec(row)?.[0].length ?? 0;
  for (let at = start; at <= row.length; at++) {
    if (row[at] === "\\") at++;
    else if (at === row.length ? row.slice(start).trim() : row[at] === "|") {
      const raw = row.slice(start, at);
      found.push({ text: raw.trim(), at: start + raw.length - raw.trimStart().length });
      start = at + 1;
    }
  }
  return found;
}
