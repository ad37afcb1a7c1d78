// The citations bridge: `state.citations[messageId]`, normalised, as @ngaf/ag-ui puts it on that message. Nothing is
// fetched, no URL is validated, nothing is deduplicated across messages. An entry that says nothing is left out.

import { isObject, same } from "./patch.js";

/** @typedef {import("./types.js").Citation} Citation */

const IDS = ["id", "refId"];
/** @type {[wanted: "title" | "url" | "snippet" | "sourceType" | "iconUrl", spellings: string[]][]} */
const SPELLINGS = [
  ["title", ["title", "name"]],
  ["url", ["url", "href", "source"]],
  ["snippet", ["snippet", "content", "excerpt"]],
  ["sourceType", ["sourceType"]],
  ["iconUrl", ["iconUrl"]],
];
const ACCEPTED = ["index", "extra", "publishedAt", ...IDS, ...SPELLINGS.flatMap(([, spellings]) => spellings)];

// Of an entry with an id of its own, what it was read as at which place: nearly all are as they were the last time.
/** @type {WeakMap<object, {place: number, citation: Citation}>} */
const KNOWN = new WeakMap();

/** The citations of a state by message id; null where it has none.
 * @param {any} state @returns {Record<string, any> | null} */
export function entriesOf(state) {
  const citations = isObject(state) && Object.hasOwn(state, "citations") ? state.citations : null;
  return isObject(citations) ? citations : null;
}

/** Whether it puts citations on a message: an empty list leaves those that are there.
 * @param {any} entry @returns {entry is any[]} */
export function isEntry(entry) {
  return Array.isArray(entry) && entry.length > 0;
}

/** The citations in `entries`, whatever spelling they have. Those that are as `before` are the same objects, and so is
 * the list. @param {any[]} entries @param {readonly any[]} before @param {(message: string) => void} report
 * @returns {readonly Citation[]} */
export function normalised(entries, before, report) {
  const taken = new Set(entries.map(ownId).filter((id) => id !== undefined));
  /** @type {Citation[]} */
  const made = [];
  entries.forEach((entry, at) => {
    const citation = citationOf(entry, at + 1, taken);
    if (citation) made.push(same(before[made.length], citation) ? before[made.length] : citation);
    else report(`citation ${at + 1} is neither a string nor an object with a field of a citation`);
  });
  const isSame = made.length === before.length && made.every((citation, at) => citation === before[at]);
  return isSame ? before : made;
}

/** @param {any} entry @param {number} place @param {Set<string>} taken @returns {Citation | null} */
function citationOf(entry, place, taken) {
  if (typeof entry === "string") return { id: freeId(place, taken), index: place, url: entry };
  if (!isObject(entry)) return null;
  const known = KNOWN.get(entry);
  if (known?.place === place) return known.citation;
  const id = ownId(entry);
  const citation = read(entry, id, place, taken);
  if (citation && id !== undefined) KNOWN.set(entry, { place, citation });
  return citation;
}

/** @param {Record<string, any>} entry @param {string | undefined} id @param {number} place @param {Set<string>} taken
 * @returns {Citation | null} */
function read(entry, id, place, taken) {
  if (!ACCEPTED.some((name) => Object.hasOwn(entry, name))) return null;
  const { index, publishedAt, extra } = entry;
  /** @type {Citation} */
  const made = { id: id ?? freeId(place, taken), index: typeof index === "number" ? index : place };
  for (const [wanted, spellings] of SPELLINGS) {
    const text = firstText(entry, spellings);
    if (text !== undefined) made[wanted] = text;
  }
  if (typeof publishedAt === "string" || typeof publishedAt === "number") made.publishedAt = publishedAt;
  if (typeof extra === "object" && extra !== null) made.extra = extra;
  return made;
}

/** @param {any} entry */
function ownId(entry) {
  return isObject(entry) ? firstText(entry, IDS) : undefined;
}

/** @param {Record<string, any>} fields @param {string[]} names @returns {string | undefined} */
function firstText(fields, names) {
  const name = names.find((each) => typeof fields[each] === "string");
  return name === undefined ? undefined : fields[name];
}

/** A made-up id is never one that is used. @param {number} number @param {Set<string>} taken */
function freeId(number, taken) {
  while (taken.has(`c${number}`)) number += 1;
  taken.add(`c${number}`);
  return `c${number}`;
}
