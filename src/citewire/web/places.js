// @ts-check
// Where in the drawn answer a place of its text is. Each text node holds an unbroken stretch of the text, so a node and
// where it starts say it all; what Markdown takes away (marks, escapes) falls between two nodes.

/** @typedef {{start: number, node: Text}} Piece */

// Nothing else may stand in these, and a button in a link could not be pressed.
const CLOSED = new Set(["A", "CODE", "PRE"]);
const INLINE = new Set([...CLOSED, "EM", "STRONG", "DEL"]);

/** @param {string} data @param {number} at */
const splitsPair = (data, at) => /^[\uD800-\uDBFF][\uDC00-\uDFFF]/.test(data.slice(at - 1, at + 1));

export class Places {
  /** In order. Those before `settled` stay as they are. @type {Piece[]} */
  pieces = [];
  settled = 0;

  /** The range from `start` to `end`, without what is not shown at its ends; null where nothing of it is.
   * @param {number} start @param {number} end */
  range(start, end) {
    const from = this.#first((piece) => piece.start + piece.node.data.length > start);
    const to = this.#first((piece) => piece.start >= end) - 1;
    if (from > to || to < 0) return null;
    const [first, last] = [this.pieces[from], this.pieces[to]];
    const range = document.createRange();
    range.setStart(first.node, Math.max(0, start - first.start));
    range.setEnd(last.node, Math.min(last.node.data.length, end - last.start));
    return range;
  }

  /** Put a node into the drawn answer, behind the character before `at`. @param {number} at @param {Node} node */
  insert(at, node) {
    const index = Math.max(0, this.#first((piece) => piece.start >= at) - 1);
    const piece = this.pieces[index];
    if (!piece) return;
    let inside = Math.max(0, at - piece.start);
    if (splitsPair(piece.node.data, inside)) inside++;
    /** @type {Node} */
    let before = piece.node;
    if (inside < piece.node.data.length && !isClosed(before)) {
      const rest = piece.node.splitText(inside);
      this.pieces.splice(index + 1, 0, { start: piece.start + inside, node: rest });
      this.settled++;
    } else while (before.parentElement && INLINE.has(before.parentElement.tagName)) before = before.parentElement;
    // Those that belong to one place stand in the order in which they came.
    while (before.nextSibling?.nodeName === "CITE-MARKER") before = before.nextSibling;
    before.parentNode?.insertBefore(node, before.nextSibling);
  }

  /** The first piece of which `isPast` holds; it holds of all that follow. @param {(piece: Piece) => boolean} isPast */
  #first(isPast) {
    let [low, high] = [0, this.pieces.length];
    while (low < high) {
      const middle = (low + high) >> 1;
      if (isPast(this.pieces[middle])) high = middle;
      else low = middle + 1;
    }
    return low;
  }
}

/** @param {Node} node */
const isClosed = (node) => node.parentElement?.closest([...CLOSED].join()) != null;
