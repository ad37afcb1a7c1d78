// @ts-check
// Ranges of drawn text that stand out, without a node being changed for it. Where a browser cannot, nothing stands out.

/** The ranges of each owner, by the name of the highlight. @type {Map<string, Map<object, Range[]>>} */
const painted = new Map();

/** Let these ranges of `owner` stand out under a name, and none of its others.
 * @param {object} owner @param {string} name @param {Range[]} ranges */
export function paint(owner, name, ranges) {
  if (!("highlights" in CSS)) return;
  const owners = painted.get(name) ?? new Map();
  const before = owners.get(owner) ?? [];
  if (!before.length && !ranges.length) return;
  painted.set(name, owners);
  const highlight = CSS.highlights.get(name) ?? new Highlight();
  for (const range of before) highlight.delete(range);
  for (const range of ranges) highlight.add(range);
  CSS.highlights.set(name, highlight);
  if (ranges.length) owners.set(owner, ranges);
  else owners.delete(owner);
}

/** Let nothing of `owner` stand out any more. @param {object} owner */
export function unpaint(owner) {
  for (const name of painted.keys()) paint(owner, name, []);
}
