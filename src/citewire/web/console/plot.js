// @ts-check
// How many verdicts there were when: stacked bars, what is wrong at the bottom, where it is compared best.

import { make } from "../dom.js";
import { say, spoken } from "../words.js";
import { ask, target, trouble } from "./api.js";
import { filters } from "./filters.js";
import { VERDICTS, button, counted, inWords, link, note, problem, table, tally } from "./parts.js";
import { go, route } from "./route.js";

/** @typedef {import("./api.js").Bucket} Bucket */

const SVG = "http://www.w3.org/2000/svg";
const HOUR = 3_600_000;
/** Milliseconds of a bar, and bars where nobody says since when. @type {Record<string, {size: number, bars: number}>} */
const SIZES = { hour: { size: HOUR, bars: 48 }, day: { size: 24 * HOUR, bars: 30 } };
const [LEAST, MOST] = [13, 400];
// Milliseconds from one look at all verdicts to the next, however fast answers come; or so many times what one takes.
const [PAUSE, SHARE] = [2000, 5];
const HIGH = 100;

export class Plot {
  #sum = make("div", { className: "sum" });
  #picture = make("div", { className: "bars" });
  #table = make("details", {}, make("summary", {}, say("plot.table")));
  #choices = Object.keys(SIZES).map((bucket) => button(say(`plot.${bucket}`), () => go({ bucket })));
  #loading = new AbortController();
  /** @type {ReturnType<typeof setTimeout> | undefined} */
  #timer;
  #asked = 0;
  #took = 0;

  constructor() {
    const choose = make("div", { className: "choice", role: "group", ariaLabel: say("plot.bucket") }, ...this.#choices);
    const head = make("div", { className: "head" }, make("h2", {}, say("plot")), this.#sum, choose);
    this.node = make("section", { className: "plot" }, head, this.#picture, this.#table);
  }

  /** Look again, soon. */
  refresh() {
    clearTimeout(this.#timer);
    this.#timer = setTimeout(() => this.load(), Math.max(0, this.#asked + Math.max(PAUSE, SHARE * this.#took) - Date.now()));
  }

  /** Look again. */
  async load() {
    this.#loading.abort();
    const { signal } = (this.#loading = new AbortController());
    this.#asked = Date.now();
    const kind = route().bucket === "hour" ? "hour" : "day";
    this.#choices.forEach((choice, at) => (choice.ariaPressed = String(Object.keys(SIZES)[at] === kind)));
    const { first, last } = span(kind);
    /** @type {Map<number, Bucket>} */
    const buckets = new Map();
    let cursor = "";
    try {
      do {
        const query = { ...filters(), bucket: kind, since: new Date(first).toISOString(), cursor };
        const page = await ask(target("verdicts", query), { signal });
        for (const bucket of page.buckets) add(buckets, bucket);
        cursor = page.next ?? "";
        // The first time it grows as it comes; later that would only flicker.
        if (!cursor || this.#took === 0) this.#draw(kind, first, last, buckets);
      } while (cursor);
      this.#took = Date.now() - this.#asked;
    } catch (error) {
      if (!signal.aborted) this.#picture.replaceChildren(problem(trouble(error), () => this.load()));
    }
  }

  /** @param {string} kind @param {number} first @param {number} last @param {Map<number, Bucket>} buckets */
  #draw(kind, first, last, buckets) {
    const { size } = SIZES[kind];
    // Where nobody says since when, it need not be empty for long.
    if (!filters().since) first = Math.max(first, Math.min(...buckets.keys(), last - LEAST * size));
    const times = Array.from({ length: Math.round((last - first) / size) + 1 }, (_, at) => first + at * size);
    const bars = times.map((at) => buckets.get(at) ?? { at: new Date(at).toISOString(), answers: 0, verdicts: {} });
    /** @type {Record<string, number>} */
    const all = {};
    for (const { verdicts } of bars) for (const { status, count } of counted(verdicts)) all[status] = (all[status] ?? 0) + count;
    const total = sum(all);
    this.#sum.replaceChildren(total ? tally(all) : note(say("plot.none")));
    this.#table.hidden = this.#picture.hidden = !total;
    if (!total) return;
    const [from, to] = [label(bars[0].at, kind), label(bars[bars.length - 1].at, kind)];
    const svg = drawn(bars, kind);
    svg.setAttribute("aria-label", say("plot.describe", { count: total, first: from, last: to, summary: inWords(all) }));
    const most = say("plot.most", { count: Math.max(...bars.map(({ verdicts }) => sum(verdicts))) });
    const axis = [from, most, to].map((text) => make("span", {}, text));
    this.#picture.replaceChildren(svg, make("p", { className: "axis", ariaHidden: "true" }, ...axis));
    this.#tabulate(bars, kind);
  }

  /** @param {Bucket[]} bars @param {string} kind */
  #tabulate(bars, kind) {
    const columns = [say("plot.when"), say("plot.answers"), ...VERDICTS.map((status) => say(`status.${status}`))];
    const rows = bars.filter(({ answers }) => answers).map((bar) => {
      const cells = [bar.answers, ...VERDICTS.map((status) => bar.verdicts[status] ?? 0)];
      const at = make("th", { scope: "row" }, link(within(bar, kind), {}, label(bar.at, kind)));
      return make("tr", {}, at, ...cells.map((count) => make("td", {}, String(count))));
    });
    const shown = table(say("plot"), columns, make("tbody", {}, ...rows));
    this.#table.replaceChildren(make("summary", {}, say("plot.table")), shown);
  }
}

/** @param {Bucket[]} bars @param {string} kind */
function drawn(bars, kind) {
  const most = Math.max(1, ...bars.map(({ verdicts }) => sum(verdicts)));
  const svg = shape("svg", { viewBox: `0 0 ${bars.length} ${HIGH}`, preserveAspectRatio: "none", role: "img" });
  bars.forEach((bar, at) => {
    const group = shape("g", { class: "bar" });
    let top = HIGH;
    for (const { status, count } of counted(bar.verdicts)) {
      const height = (count / most) * HIGH;
      top -= height;
      group.append(shape("rect", { class: status, x: at + 0.1, y: top, width: 0.8, height }));
    }
    if (top < HIGH) {
      const title = shape("title");
      title.textContent = say("plot.bar", { when: label(bar.at, kind), summary: inWords(bar.verdicts) });
      group.append(title, shape("rect", { class: "all", x: at, y: 0, width: 1, height: HIGH }));
      // By keyboard the table has the same.
      group.addEventListener("click", () => go(within(bar, kind)));
    }
    svg.append(group);
  });
  return svg;
}

/** @param {string} name @param {Record<string, string | number>} [attributes] */
export function shape(name, attributes = {}) {
  const node = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, String(value));
  return node;
}

/** The filters that leave what is in a bar. @param {Bucket} bar @param {string} kind */
function within({ at }, kind) {
  const begin = new Date(at).getTime();
  return { since: new Date(begin).toISOString(), until: new Date(begin + SIZES[kind].size).toISOString() };
}

/** The first and the last bar. @param {string} kind */
function span(kind) {
  const { since, until } = filters();
  const { size, bars } = SIZES[kind];
  const end = Date.parse(until) - 1 || Date.now();
  const begin = Date.parse(since) || end - (bars - 1) * size;
  const last = Math.floor(end / size) * size;
  return { first: Math.min(last, Math.max(Math.floor(begin / size) * size, last - (MOST - 1) * size)), last };
}

/** @param {Map<number, Bucket>} buckets @param {Bucket} bucket */
function add(buckets, bucket) {
  const at = Date.parse(bucket.at);
  const known = buckets.get(at);
  const verdicts = { ...known?.verdicts };
  for (const { status, count } of counted(bucket.verdicts)) verdicts[status] = (verdicts[status] ?? 0) + count;
  buckets.set(at, { at: bucket.at, answers: bucket.answers + (known?.answers ?? 0), verdicts });
}

/** @param {Record<string, number>} verdicts */
const sum = (verdicts) => counted(verdicts).reduce((all, { count }) => all + count, 0);

/** When a bar begins. The bars are those of UTC. @param {string} at @param {string} kind */
function label(at, kind) {
  const more = kind === "hour" ? { hour: /** @type {const} */ ("2-digit"), minute: /** @type {const} */ ("2-digit") } : {};
  return new Date(at).toLocaleString(spoken(), { timeZone: "UTC", day: "numeric", month: "short", ...more });
}
