// @ts-check
// The six verdicts: what a verification record says, which is worse, and how each is written.

import { say } from "./words.js";

/** @typedef {import("./types.js").Verdict} Verdict */

/** The worst first. Each has a sign, so that no verdict is told by colour alone.
 * @type {Record<Verdict, string>} */
export const SIGNS = { altered: "≠", missed: "✗", partial: "≈", skipped: "–", pending: "…", verified: "✓" };
const WORST_FIRST = /** @type {Verdict[]} */ (Object.keys(SIGNS));

/** What the published words mean; a word that nobody knows is no verdict. @type {Record<string, Verdict>} */
const PUBLISHED = {
  found: "verified",
  found_phrase_missed_anchor_text: "verified",
  partial_text_found: "partial",
  found_anchor_text_only: "partial",
  found_on_other_page: "partial",
  found_on_other_line: "partial",
  first_word_found: "partial",
  not_found: "missed",
  pending: "pending",
  loading: "pending",
};

/** Ours where there is one, else what the published word means. @param {any} record @returns {Verdict} */
export function verdictOf(record) {
  const word = record?.citewire?.status ?? record?.status ?? record?.searchState?.status;
  if (word === undefined || word === null) return "pending";
  return isVerdict(word) ? word : Object.hasOwn(PUBLISHED, word) ? PUBLISHED[word] : "skipped";
}

/** @param {any} word @returns {word is Verdict} */
export const isVerdict = (word) => typeof word === "string" && Object.hasOwn(SIGNS, word);

/** 0 is the worst. @param {{status: Verdict}} cited */
export const rank = ({ status }) => WORST_FIRST.indexOf(status);

/** The worst of some. @template {{status: Verdict}} T @param {T[]} cited @returns {T} */
export const worst = (cited) => cited.reduce((one, other) => (rank(other) < rank(one) ? other : one));

/** @param {Verdict} status */
export const word = (status) => say(`status.${status}`);

/** How many there are of each verdict, the worst first, none of those that do not occur.
 * @param {{status: Verdict}[]} cited */
export function counts(cited) {
  return WORST_FIRST.map((status) => ({ status, count: cited.filter((one) => one.status === status).length })).filter(
    ({ count }) => count,
  );
}

/** The same in words. @param {{status: Verdict}[]} cited */
export const summary = (cited) => counts(cited).map(({ status, count }) => say(`count.${status}`, { count })).join(" · ");
