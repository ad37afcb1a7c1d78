// @ts-check
// Two texts, word by word. Case, quotation marks and punctuation are no difference: the server has judged them harmless.

/** @typedef {{kind: "same" | "quote" | "source", text: string}} Part */

// So many words are compared; of longer texts nobody reads a comparison.
const MOST = 400;

/** What both say, what only the quote says and what only the source says, in order; null where they are too long.
 * @param {string} quote @param {string} source @returns {Part[] | null} */
export function wordDiff(quote, source) {
  const [one, other] = [quote, source].map((text) => text.match(/\S+/g) ?? []);
  if (one.length > MOST || other.length > MOST) return null;
  const [ours, theirs] = [one.map(plain), other.map(plain)];
  const lengths = table(ours, theirs);
  /** @type {Part[]} */
  const parts = [];
  let [a, b] = [0, 0];
  while (a < one.length || b < other.length) {
    if (a < one.length && b < other.length && ours[a] === theirs[b]) (push(parts, "same", one[a++]), b++);
    else if (b >= other.length || (a < one.length && lengths[a + 1][b] >= lengths[a][b + 1])) push(parts, "quote", one[a++]);
    else push(parts, "source", other[b++]);
  }
  return parts;
}

const AROUND = /^[\p{Pi}\p{Pf}\p{Ps}"'`*_]+|[\p{Pi}\p{Pf}\p{Pe}"'`*_.,;:]+$/gu;

/** @param {string} word */
const plain = (word) => word.normalize("NFKC").toLowerCase().replace(AROUND, "");

/** How many words the rests have in common. @param {string[]} one @param {string[]} other */
function table(one, other) {
  const lengths = Array.from({ length: one.length + 1 }, () => new Uint16Array(other.length + 1));
  for (let a = one.length - 1; a >= 0; a--) {
    for (let b = other.length - 1; b >= 0; b--) {
      lengths[a][b] = one[a] === other[b] ? lengths[a + 1][b + 1] + 1 : Math.max(lengths[a + 1][b], lengths[a][b + 1]);
    }
  }
  return lengths;
}

/** @param {Part[]} parts @param {Part["kind"]} kind @param {string} word*/
function push(parts, kind, word) {
  const last = parts.at(-1);
  if (last?.kind === kind) last.text += ` ${word}`;
  else parts.push({ kind, text: word });
}
