// @ts-check
// Small parts that several views are made of.

import { make } from "../dom.js";
import { SIGNS, isVerdict } from "../verdict.js";
import { say, spoken } from "../words.js";
import { linked } from "./route.js";

/** @typedef {import("../types.js").Verdict} Verdict */

/** The verdicts, the worst first. */
export const VERDICTS = /** @type {Verdict[]} */ (Object.keys(SIGNS));

/** A link to something that the console shows. @param {Record<string, string>} changes @param {Record<string, any>} properties
 * @param {(Node | string)[]} content */
export function link(changes, properties, ...content) {
  const node = make("a", { href: linked(changes), ...properties }, ...content);
  node.toggleAttribute("data-route", true);
  return node;
}

/** @param {string} text @param {() => void} onClick @param {Record<string, any>} [properties] */
export const button = (text, onClick, properties = {}) =>
  make("button", { type: "button", onclick: onClick, ...properties }, text);

/** Something said in passing. @param {(Node | string)[]} content */
export const note = (...content) => make("p", { className: "note" }, ...content);

/** A heading that only screen readers need. @param {"h2" | "h3"} level @param {string} text */
export const unseen = (level, text) => make(level, { className: "unseen" }, text);

/** A table that scrolls by itself where it is too wide. @param {string} label @param {string[]} columns @param {Node} rows */
export function table(label, columns, rows) {
  const head = make("tr", {}, ...columns.map((text) => make("th", { scope: "col" }, text)));
  const made = make("table", {}, make("thead", {}, head), rows);
  return make("div", { className: "wide", tabIndex: 0, role: "region", ariaLabel: label }, made);
}

/** How often there is which verdict, the worst first. @param {Record<string, number>} verdicts */
export const counted = (verdicts) =>
  VERDICTS.filter((status) => Number(verdicts[status]) > 0).map((status) => ({ status, count: Number(verdicts[status]) }));

/** The same in words. @param {Record<string, number>} verdicts */
export const inWords = (verdicts) =>
  counted(verdicts).map(({ status, count }) => say(`count.${status}`, { count })).join(" · ");

/** The same as a list. @param {Record<string, number>} verdicts */
export function tally(verdicts) {
  const list = make("ul", { className: "tally", ariaLabel: say("summary") });
  for (const { status, count } of counted(verdicts)) {
    const sign = make("span", { ariaHidden: "true" }, `${SIGNS[status]} `);
    list.append(make("li", { className: status }, sign, say(`count.${status}`, { count })));
  }
  return list;
}

/** A verdict with its sign. @param {unknown} status */
export function chip(status) {
  const known = isVerdict(status) ? status : "skipped";
  return make("span", { className: `chip ${known}` }, `${SIGNS[known]} ${say(`status.${known}`)}`);
}

/** A time for people. @param {string | null} at @param {Intl.DateTimeFormatOptions} [options] */
export function when(at, options = { dateStyle: "medium", timeStyle: "short" }) {
  const date = new Date(at ?? NaN);
  if (Number.isNaN(date.getTime())) return make("span");
  const node = make("time", { dateTime: date.toISOString(), title: date.toISOString() });
  node.textContent = date.toLocaleString(spoken(), options);
  return node;
}

/** The time of day, to the millisecond. @param {string} at */
export function clock(at) {
  const date = new Date(at);
  if (Number.isNaN(date.getTime())) return "";
  return date.toLocaleString(spoken(), {
    day: "numeric", month: "short", hour: "2-digit", minute: "2-digit", second: "2-digit", fractionalSecondDigits: 3,
  });
}

/** Something that went wrong. @param {string} text @param {() => void} [again] */
export function problem(text, again) {
  const node = make("div", { className: "problem", role: "alert" }, make("p", {}, text));
  if (again) node.append(button(say("again"), again));
  return node;
}
