// @ts-check
// Sentences of an answer: the one in front of a marker, and those that nothing is cited for.

/** @typedef {import("./types.js").Claim} Claim */

// So far back a sentence is looked for.
const BACK = 1000;
// What begins a new line of thought: a blank line, an item, a heading, a quote, a cell; and the marker before.
const BREAK = /\n\s*\n|\n\s*(?:[-*+]|\d+[.)]|#{1,6}|>)\s|\||\[(?:\^[^[\]\s]+|\d[\d, ]*)\]/g;
const segmenter = new Intl.Segmenter(undefined, { granularity: "sentence" });

/** What a marker at `at` most likely supports: the sentence, or the part of it, in front. @param {string} text
 * @param {number} at @returns {Claim | null} */
export function derivedClaim(text, at) {
  const from = Math.max(0, at - BACK);
  // Markers may stand in a row, and behind the full stop.
  const front = text.slice(from, at).replace(/(?:\s*\[(?:\^[^[\]\s]+|\d[\d, ]*)\])*\s*$/, "");
  const end = from + front.length;
  const cut = [...front.matchAll(BREAK)].at(-1);
  const start = cut ? cut.index + cut[0].length : 0;
  const last = [...segmenter.segment(front.slice(start))].at(-1);
  if (!last || !/[\p{L}\p{N}]/u.test(last.segment)) return null;
  const skipped = last.segment.search(/[\p{L}\p{N}"“(]/u);
  return { start: from + start + last.index + skipped, end, origin: "derived" };
}

/** The sentences of a paragraph with at least three words that have no marker and no claim, as ranges.
 * @param {Element} paragraph @param {(node: Text) => number} place Where in the text of the answer a node starts.
 * @param {Claim[]} claims */
export function* uncited(paragraph, place, claims) {
  const { text, nodes, markers } = flat(paragraph);
  for (const { segment, index } of segmenter.segment(text)) {
    const end = index + segment.trimEnd().length;
    if (!/(?:[\p{L}\p{N}]+[^\p{L}\p{N}]+){2}[\p{L}\p{N}]/u.test(segment)) continue;
    if (markers.some((at) => at > index && at <= index + segment.length)) continue;
    const range = rangeOf(nodes, index, end);
    const from = place(/** @type {Text} */ (range.startContainer)) + range.startOffset;
    const to = place(/** @type {Text} */ (range.endContainer)) + range.endOffset;
    if (!claims.some((claim) => claim.start < to && claim.end > from)) yield range;
  }
}

/** The text of a paragraph, its nodes, and where in it markers stand: behind the last word before them.
 * @param {Element} paragraph */
function flat(paragraph) {
  let text = "";
  /** @type {{at: number, node: Text}[]} */
  const nodes = [];
  /** @type {number[]} */
  const markers = [];
  const walker = document.createTreeWalker(paragraph, NodeFilter.SHOW_TEXT | NodeFilter.SHOW_ELEMENT);
  for (let node; (node = walker.nextNode()); ) {
    if (node instanceof Text) {
      nodes.push({ at: text.length, node });
      text += node.data;
    } else if (/** @type {Element} */ (node).localName === "cite-marker") markers.push(text.trimEnd().length);
  }
  return { text, nodes, markers };
}

/** @param {{at: number, node: Text}[]} nodes @param {number} start @param {number} end */
function rangeOf(nodes, start, end) {
  const range = document.createRange();
  const first = /** @type {{at: number, node: Text}} */ (nodes.findLast(({ at }) => at <= start));
  const last = /** @type {{at: number, node: Text}} */ (nodes.findLast(({ at }) => at < end));
  range.setStart(first.node, start - first.at);
  range.setEnd(last.node, end - last.at);
  return range;
}
