// @ts-check
// One shape for the answer of any agent: an AG-UI message with its state, a Salesforce outbound message, an Ably
// message with its annotations. Anything may be missing or of another type than it should be; no reader throws.

import { isVerdict, verdictOf } from "./verdict.js";

/** @typedef {import("./types.js").AnswerView} AnswerView */
/** @typedef {import("./types.js").Cited} Cited */
/** @typedef {import("./types.js").Claim} Claim */
/** @typedef {import("./types.js").Json} Json */

const STATUSES = ["streaming", "extracting", "verifying", "complete", "error"];
const ORIGINS = ["exact", "block", "derived", "repaired", "unknown"];
// Envelopes around staticContent differ by channel; none is deeper than this.
const DEPTH = 6;

/** @param {any} value @returns {Json} */
const object = (value) => (value !== null && typeof value === "object" && !Array.isArray(value) ? value : {});
/** @param {any} value @returns {any[]} */
const list = (value) => (Array.isArray(value) ? value : []);
/** @param {any[]} values The first text that is not empty. */
const text = (...values) => values.find((value) => typeof value === "string" && value !== "") ?? "";
/** @param {any[]} values The first page number. */
const page = (...values) => values.find((value) => Number.isSafeInteger(value) && value > 0);
/** @param {any} value */
const label = (value) => (typeof value === "number" || typeof value === "string" ? String(value) : "");

/** Whether a client posted a message that its server never said. @param {Record<string, any>} message */
export function isPosted({ metadata }) {
  return metadata?.citewire?.posted === true;
}

/** What an AG-UI message says and cites. @param {any} message @param {any} state
 * @param {{streaming?: boolean, stateKey?: string}} [options] `streaming` holds where the state does not say.
 * @returns {AnswerView} */
export function fromAgui(message, state, { streaming = false, stateKey = "deepcitation" } = {}) {
  const { id, content } = object(message);
  const own = object(object(object(object(state)[stateKey]).messages)[id]);
  const status = STATUSES.includes(own.status) ? own.status : streaming ? "streaming" : "complete";
  return {
    id: label(id),
    text: typeof content === "string" ? content : list(content).map((part) => text(object(part).text)).join(""),
    status,
    ...(status === "error" ? { error: text(own.error) } : {}),
    cited: citedBy(own, object(object(state).citations)[id]),
  };
}

/** What was read last of a record, as long as it is the same: most deltas are text.
 * @type {WeakMap<object, {listed: any, cited: Cited[]}>} */
const known = new WeakMap();

/** @param {Json} own @param {any} listed */
function citedBy(own, listed) {
  const last = known.get(own);
  if (last && last.listed === listed) return last.cited;
  const cited = numbered([...recorded(own, listed)]);
  known.set(own, { listed, cited });
  return cited;
}

/** The records of a message, then the entries of its agent that have none. @param {Json} own @param {any} listed
 * @returns {Generator<Cited>} */
function* recorded(own, listed) {
  const read = list(listed).map(entryOf);
  const entries = new Map(read.map((entry) => [entry.key || sameAs(entry.index, entry.snippet), entry]));
  const verifications = object(own.verifications);
  for (const [key, value] of Object.entries(object(own.citations))) {
    const record = object(value);
    const name = [key, sameAs(record.citationNumber, text(record.fullPhrase))].find((one) => entries.has(one)) ?? key;
    yield cite(key, record, verifications[key] ?? null, entries.get(name));
    entries.delete(name);
  }
  for (const [key, entry] of entries) {
    const ours = object(object(entry.extra).citewire);
    const record = { fullPhrase: entry.snippet, title: entry.title, url: entry.url, citewire: { claim: ours.claim } };
    const verdict = { citewire: { ...ours, status: isVerdict(ours.status) ? ours.status : "skipped" } };
    yield cite(entry.key || entry.id || key, record, verdict, entry);
  }
}

/** What an entry that the agent wrote and its record have in common. @param {any} number @param {string} quote */
const sameAs = (number, quote) => JSON.stringify([label(number), quote]);

/** An entry as @ngaf/ag-ui reads it, in any of its spellings; one of ours has a key, and that as its id where the text
 * has no label for it. @param {any} raw @param {number} at */
function entryOf(raw, at) {
  const given = typeof raw === "string" ? { url: raw } : object(raw);
  const key = text(object(object(given.extra).citewire).key);
  const id = label(given.id ?? given.refId);
  return {
    key,
    id: id === key ? "" : id,
    index: given.index ?? at + 1,
    title: text(given.title, given.name),
    url: text(given.url, given.href, given.source),
    snippet: text(given.snippet, given.content, given.excerpt),
    extra: given.extra,
  };
}

/** @param {string} key @param {Json} citation @param {any} verification @param {Json} [entry] @returns {Cited} */
function cite(key, citation, verification, entry = {}) {
  const checked = object(verification);
  const ours = object(checked.citewire);
  const url = text(citation.url, entry.url);
  const id = text(citation.attachmentId, checked.attachmentId, url, ours.source, citation.title, entry.title);
  const printed = label(citation.citationNumber);
  return {
    key,
    label: text(entry.id) || printed,
    number: printed || label(entry.index),
    status: verdictOf(verification),
    citation,
    verification: verification === null ? null : checked,
    source: {
      id,
      title: text(ours.source, checked.label, citation.title, entry.title, url, id),
      url,
      page: page(ours.page, object(checked.document).verifiedPageNumber, citation.pageNumber),
      kind: text(citation.type),
    },
    quote: text(citation.fullPhrase, entry.snippet, citation.anchorText),
    claim: claimOf(object(citation.citewire).claim),
    insertAt: null,
  };
}

/** @param {any} given @returns {Claim | null} */
function claimOf(given) {
  const { start, end, origin } = object(given);
  if (!Number.isSafeInteger(start) || !Number.isSafeInteger(end) || start < 0 || end <= start) return null;
  return { start, end, origin: ORIGINS.includes(origin) ? origin : "unknown" };
}

/** Give a number that is still free to those that have none, and the number as label to those without a label.
 * @param {Cited[]} cited */
function numbered(cited) {
  const taken = new Set(cited.map(({ number }) => String(number)));
  let next = 1;
  return cited.map((one) => {
    if (one.number !== "") return one.label ? one : { ...one, label: String(one.number) };
    while (taken.has(String(next))) next++;
    const number = String(next++);
    return { ...one, number, label: one.label || number };
  });
}

/** What is cited, and what the text itself defines (`[^label]: …`) that nothing else tells of.
 * @param {Cited[]} cited @param {Map<string, string>} definitions */
export function withDefined(cited, definitions) {
  const labels = new Set(cited.map((one) => one.label));
  const more = [...definitions].filter(([name]) => !labels.has(name)).map(([name, said]) => {
    const [whole, linked = "", url = ""] = /\[([^[\]]*)\]\((https?:[^\s()]+)\)|<?https?:[^\s<>]+>?/.exec(said) ?? [""];
    const [before, after = ""] = whole ? said.split(whole, 2) : [said];
    const record = { title: text(linked, before.trim()), url: url || whole.replace(/[<>]/g, ""), fullPhrase: after.trim() };
    return cite(`^${name}`, record, { citewire: { status: "skipped" } }, { id: name });
  });
  return more.length ? numbered([...cited, ...more]) : cited;
}

/** What a Salesforce outbound message with `citationContent` says and cites. One source keeps one number.
 * @param {any} message @returns {AnswerView} */
export function fromSalesforce(message) {
  const content = staticContent(message, 0) ?? {};
  const said = text(content.text);
  const cited = list(object(content.citationContent).citations).flatMap((raw, at) => {
    const reference = object(object(raw).citedReference);
    const url = text(object(reference.link).url);
    const source = { id: text(reference.recordId, url), title: text(reference.label, url), url, kind: "web" };
    const details = object(object(raw).citedDetails);
    const uses = list(details.inlineMetadata);
    const places = (uses.length ? uses : [{}]).map(salesforceUse);
    return places.map((place, n) => placed(`${at}.${n}`, at + 1, source, said, place, "exact"));
  });
  return { id: text(object(message).id, object(message).messageId), text: said, status: "complete", cited };
}

/** @param {any} value @param {number} depth @returns {Json | null} */
function staticContent(value, depth) {
  if (value === null || typeof value !== "object" || depth > DEPTH) return null;
  if (typeof value.staticContent?.text === "string") return value.staticContent;
  for (const inner of Object.values(value)) {
    const found = staticContent(inner, depth + 1);
    if (found) return found;
  }
  return null;
}

/** @param {any} use */
function salesforceUse(use) {
  const { citedLocationOffset: insertAt, claim } = object(use);
  const { claimStartOffset: start, claimEndOffset: end } = object(claim);
  return { start, end, insertAt: insertAt ?? end };
}

/** A citation at a place in a text without markers. Offsets that do not fit the text are no place.
 * @param {string} key @param {number} number @param {Cited["source"]} source @param {string} said
 * @param {{start: any, end: any, insertAt: any}} place @param {Claim["origin"]} origin @param {Json} [citation]
 * @param {any} [verification] @returns {Cited} */
function placed(key, number, source, said, { start, end, insertAt }, origin, citation = {}, verification = null) {
  const claim = claimOf({ start, end, origin });
  const fits = Number.isSafeInteger(insertAt) && insertAt >= 0 && insertAt <= said.length;
  return {
    key,
    // No marker in the text is theirs.
    label: "",
    number: String(number),
    status: verification ? verdictOf(verification) : "skipped",
    citation: { title: source.title, url: source.url, ...citation },
    verification,
    source,
    quote: text(citation.fullPhrase),
    claim: claim && claim.end <= said.length ? claim : null,
    insertAt: fits ? insertAt : null,
  };
}

/** What an Ably message says, and what annotations on it cite: `citations:*`, and `verdicts:*` on those.
 * @param {any} message @param {any} annotations @returns {AnswerView} */
export function fromAbly(message, annotations) {
  const { serial, data, extras } = object(message);
  const { messageId, status } = object(object(extras).headers);
  const said = text(data);
  const live = standing(list(annotations).map(object));
  const verdicts = new Map(live.filter(({ type }) => isType(type, "verdicts")).map((one) => [dataOf(one).key, one]));
  const numbers = new Map();
  const cited = live.filter(({ type }) => isType(type, "citations")).map((one, at) => {
    const given = dataOf(one);
    const url = text(given.url);
    const title = text(given.title, one.name, url);
    const source = { id: text(url, one.name), title, url, page: page(given.page), kind: "web" };
    if (!numbers.has(source.id)) numbers.set(source.id, numbers.size + 1);
    const key = text(given.key) || label(one.serial ?? one.id) || String(at);
    const citation = { fullPhrase: text(given.snippet), pageNumber: source.page };
    const verdict = given.key ? verdictIn(verdicts.get(given.key)) : null;
    return placed(key, numbers.get(source.id), source, said, ablyPlace(given, said), "exact", citation, verdict);
  });
  return { id: text(messageId, serial), text: said, status: STATUSES.includes(status) ? status : "complete", cited };
}

/** @param {Json} given @param {string} said */
function ablyPlace(given, said) {
  const start = inUtf16(said, given.startOffset ?? given.startIndex, given.unit);
  const end = inUtf16(said, given.endOffset ?? given.endIndex, given.unit);
  return { start, end, insertAt: claimOf({ start, end }) && end };
}

/** The name of the annotation is the verdict. @param {Json | undefined} annotation */
function verdictIn(annotation) {
  if (!annotation) return null;
  const said = dataOf(annotation);
  return { ...said, citewire: { ...object(said.citewire), status: annotation.name } };
}

/** Those that were not deleted: a delete takes what its client has under a type and a name. @param {Json[]} annotations */
function standing(annotations) {
  const gone = new Map();
  const place = (/** @type {Json} */ one) => JSON.stringify([one.type, one.name, one.clientId]);
  annotations.forEach((one, at) => isDelete(one) && gone.set(place(one), at));
  return annotations.filter((one, at) => !isDelete(one) && !(gone.get(place(one)) > at));
}

/** @param {Json} one */
const isDelete = ({ action }) => action === 1 || action === "annotation.delete";
/** @param {any} type @param {string} namespace */
const isType = (type, namespace) => typeof type === "string" && type.startsWith(`${namespace}:`);

/** @param {Json} annotation */
function dataOf({ data }) {
  if (typeof data !== "string") return object(data);
  try {
    return object(JSON.parse(data));
  } catch {
    return {};
  }
}

/** @param {string} said @param {any} offset @param {any} unit */
function inUtf16(said, offset, unit) {
  if (!Number.isSafeInteger(offset) || unit === undefined || unit === "utf16") return offset;
  if (unit === "codepoints") return Array.from(said).slice(0, offset).join("").length;
  if (unit !== "utf8") return undefined;
  return new TextDecoder().decode(new TextEncoder().encode(said).subarray(0, offset)).length;
}
