// What became of the citations of a message, out of the state that an AG-UI agent shares.

import { isObject } from "../patch.js";

const NONE = Object.freeze({});
const NO_COUNTS = Object.freeze({ total: 0, verified: 0, partial: 0, missed: 0, altered: 0, pending: 0, skipped: 0 });
const STATUSES = ["streaming", "extracting", "verifying", "complete", "error"];
// For every message that nothing is known of: nothing is to come.
const UNKNOWN = read({});

/** What was read of a record, so that the same one gives the same object wherever it is asked for.
 * @type {WeakMap<object, ReturnType<typeof read>>} */
const known = new WeakMap();

/** @param {Record<string, any>} record @returns {import("./index.js").MessageCitations} */
function read({ citations, verifications, status, summary, error }) {
  return Object.freeze({
    citations: isObject(citations) ? citations : NONE,
    verifications: isObject(verifications) ? verifications : NONE,
    status: STATUSES.includes(status) ? status : "complete",
    summary: isObject(summary) ? { ...NO_COUNTS, ...summary } : NO_COUNTS,
    ...(typeof error === "string" && { error }),
  });
}

/** A member of foreign data, which may be no object at all. @param {unknown} value @param {string} name */
const member = (value, name) => (isObject(value) && Object.hasOwn(value, name) ? value[name] : undefined);

/** @type {typeof import("./index.js").useCitations} */
export function useCitations({ agUiState, messageId, stateKey = "deepcitation" }) {
  const record = member(member(member(agUiState, stateKey), "messages"), messageId);
  if (!isObject(record)) return UNKNOWN;
  const found = known.get(record) ?? read(record);
  known.set(record, found);
  return found;
}
