// @ts-check
// Every word that a person sees or hears, in one table. A translation is another table: `setWords(table, "de")`.

/** A text with `{names}` for values, or one for each plural form of its `{count}`, as `Intl.PluralRules` calls them.
 * @typedef {string | Partial<Record<Intl.LDMLPluralRule, string>>} Wording */

/** @type {Record<string, Wording>} */
const ENGLISH = {
  "status.verified": "Verified",
  "status.partial": "Partial",
  "status.altered": "Altered",
  "status.missed": "Not found",
  "status.pending": "Being checked",
  "status.skipped": "Not checked",
  "means.verified": "The source says this, word for word.",
  "means.partial": "The source says this, but not quite in these words.",
  "means.altered": "The source says something else here. The words that differ are marked.",
  "means.missed": "These words are not in the source.",
  "means.pending": "The quote is being looked up in its source.",
  "means.skipped": "Nobody has looked this up.",
  "count.verified": "{count} verified",
  "count.partial": "{count} partial",
  "count.altered": "{count} altered",
  "count.missed": "{count} not found",
  "count.pending": "{count} being checked",
  "count.skipped": "{count} not checked",
  "summary": "Citations",
  "answer.complete": "The answer is complete. {summary}",
  "answer.failed": "Something went wrong with this answer: {error}",
  "marker": "Citation {number}: {status}, {source}",
  "marker.waiting": "Citation {number}",
  "source.none": "no source named",
  "source.page": "{source}, page {page}",
  "page": "page {page}",
  "card": "Citation {number}",
  "card.close": "Close",
  "card.quote": "The answer quotes",
  "card.found": "The source says",
  "card.passage": "The closest passage",
  "card.no.quote": "The answer quotes nothing from this source.",
  "card.picture": "{place}, with the words marked",
  "card.picture.lost": "The picture of this place could not be loaded.",
  "card.open.page": "Open at page {page}",
  "card.open": "Open the source",
  "card.copy": "Copy quote",
  "card.copy.source": "Copy source",
  "card.copied": "Copied",
  "card.not.copied": "This page may not copy",
  "card.list": "In the list of sources",
  "card.derived": "Which words it supports is a guess.",
  "diff.answer": "the answer says",
  "diff.source": "the source says",
  "sources": "Sources",
  "sources.cited": { one: "cited once", other: "cited {count} times" },
  "sources.back": "Show citation {number} in the answer",
  "image": "Image: {alt}",
};

let table = ENGLISH;
let language = "en";
let plurals = new Intl.PluralRules(language);

/** Say these words instead of the English ones, where there are any; what is drawn later uses them.
 * @param {Record<string, Wording>} words @param {string} tongue The language of plurals and numbers, as `lang` has it. */
export function setWords(words, tongue) {
  [table, language, plurals] = [{ ...ENGLISH, ...words }, tongue, new Intl.PluralRules(tongue)];
}

/** Words of a page, beside those of the elements. @param {Record<string, Wording>} words */
export function addWords(words) {
  Object.assign(ENGLISH, words);
  table = { ...words, ...table };
}

/** The words for something. @param {string} name @param {Record<string, string | number>} [values] */
export function say(name, values = {}) {
  const wording = table[name] ?? name;
  const count = Number(values.count);
  const text = typeof wording === "string" ? wording : (wording[plurals.select(count)] ?? wording.other ?? name);
  return text.replace(/\{(\w+)\}/g, (whole, key) => (Object.hasOwn(values, key) ? shown(values[key]) : whole));
}

/** The language that is spoken. */
export const spoken = () => language;

/** @param {string | number} value */
const shown = (value) => (typeof value === "number" ? value.toLocaleString(language) : value);
