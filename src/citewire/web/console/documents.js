// @ts-check
// The sources, and of one of them who cites it: as highlights on its pages, and as a list that leads to the answers.

import { make } from "../dom.js";
import { rank } from "../verdict.js";
import { say } from "../words.js";
import { ask, part, target, trouble } from "./api.js";
import { button, chip, link, note, problem, unseen, when } from "./parts.js";
import { shape } from "./plot.js";
import { go, route } from "./route.js";

/** @typedef {import("./api.js").Mention} Mention */
/** @typedef {import("../types.js").Source} Source */
/** Citations of the same words. @typedef {{first: Mention, all: Mention[], id: string}} Group */

const PICTURED = ["pdf", "image"];
// Pixels for a point.
const SCALE = 1.5;

export class Documents {
  #names = make("ul", { className: "names" });
  #sheet = make("section", { className: "sheet" });
  #trouble = make("div");
  /** @type {Map<string, Source>} */
  #sources = new Map();
  #shown = "";
  #next = "";
  /** @type {Mention[]} */
  #mentions = [];
  /** The size of each page with something on it. @type {Map<number, {width: number, height: number}>} */
  #sizes = new Map();

  constructor() {
    const parts = [unseen("h2", say("docs")), this.#trouble, this.#names];
    const list = make("nav", { className: "list", ariaLabel: say("docs") }, ...parts);
    this.node = make("div", { className: "columns documents" }, list, this.#sheet);
  }

  /** Show what the address says. */
  async draw() {
    const { document: chosen } = route();
    this.#sheet.classList.toggle("open", Boolean(chosen));
    if (!this.#sources.size) await this.#load();
    this.#list();
    if (!chosen) {
      this.#shown = "";
      this.#sheet.replaceChildren(make("p", { className: "note pick" }, say("docs.pick")));
    } else if (chosen !== this.#shown) {
      await this.#open(chosen);
    } else {
      this.#page();
    }
  }

  async #load() {
    try {
      let after = "";
      do {
        const page = await ask(target("sources", { after }));
        for (const source of page.sources) this.#sources.set(source.id, source);
        after = page.next ?? "";
      } while (after && this.#sources.size < 5000);
      this.#trouble.replaceChildren();
    } catch (error) {
      this.#trouble.replaceChildren(problem(trouble(error), () => this.draw()));
    }
  }

  #list() {
    const { document: chosen } = route();
    const entries = [...this.#sources.values()].map((source) => {
      const about = [source.kind ?? "", source.pages ? say("docs.pages", { count: source.pages }) : ""].filter(Boolean).join(" · ");
      const said = [make("span", { dir: "auto" }, source.name), make("span", { className: "note" }, about)];
      const node = link({ document: source.id, page: "" }, { className: "name" }, ...said);
      if (source.id === chosen) node.setAttribute("aria-current", "true");
      return make("li", {}, node);
    });
    this.#names.replaceChildren(...(entries.length ? entries : [make("li", { className: "note" }, say("docs.none"))]));
  }

  /** @param {string} id */
  async #open(id) {
    [this.#shown, this.#next, this.#mentions] = [id, "", []];
    this.#sizes.clear();
    this.#sheet.replaceChildren(note(say("loading")));
    await this.#more();
  }

  async #more() {
    const id = this.#shown;
    try {
      const page = await ask(target(`sources/${part(id)}/citations`, { after: this.#next }));
      if (id !== this.#shown) return;
      this.#mentions.push(...page.citations);
      this.#next = page.next ?? "";
      for (const { number, width, height } of page.pages) this.#sizes.set(number, { width, height });
      this.#page();
    } catch (error) {
      if (id !== this.#shown) return;
      const isGone = /** @type {any} */ (error)?.status === 404;
      this.#sheet.replaceChildren(this.#back(), problem(isGone ? say("docs.gone") : trouble(error)));
    }
  }

  #back() {
    return link({ document: "", page: "" }, { className: "back" }, `← ${say("docs.back")}`);
  }

  #page() {
    const source = this.#sources.get(this.#shown);
    const name = source?.name ?? "";
    const count = this.#mentions.length;
    const about = count ? say(this.#next ? "docs.cited.yet" : "docs.cited", { count }) : say("docs.uncited");
    const filtered = link({ view: "", document: "", page: "", source: name }, {}, say("docs.filter"));
    const more = this.#next ? [button(say("docs.more"), () => this.#more(), { className: "more" })] : [];
    const groups = grouped(this.#mentions);
    const hasLooks = source && PICTURED.includes(source.kind ?? "");
    const leaf = hasLooks ? [make("div", { className: "leaf" }, ...this.#picture(source, groups))] : [];
    this.#sheet.replaceChildren(
      this.#back(), make("h2", { dir: "auto" }, name),
      note(about, ...(count ? [" · ", filtered] : [])),
      ...(source?.reason ? [problem(say("docs.failed", { reason: source.reason }))] : []),
      make("div", { className: "body" }, ...leaf, make("div", {}, this.#cited(groups), ...more)),
    );
  }

  /** @param {Source} source @param {Group[]} groups @returns {Node[]} */
  #picture(source, groups) {
    const pages = source.pages ?? 1;
    const first = Math.min(...this.#sizes.keys(), pages);
    const page = Math.min(pages, Math.max(1, Number(route().page) || first));
    const size = this.#sizes.get(page);
    const src = target(`sources/${part(source.id)}/pages/${page}.webp`, { scale: SCALE });
    const image = make("img", { alt: say("docs.picture", { page, source: source.name }), src });
    const figure = make("figure", {}, image);
    image.addEventListener("error", () => figure.replaceChildren(make("figcaption", { className: "note" }, say("docs.lost"))));
    if (size) {
      Object.assign(image, { width: Math.round(size.width * SCALE), height: Math.round(size.height * SCALE) });
      figure.append(this.#marks(groups, page, size));
    }
    /** @param {number} to @param {string} sign @param {string} words */
    const turn = (to, sign, words) => {
      const named = { ariaLabel: say(words), title: say(words), disabled: to < 1 || to > pages };
      return button(sign, () => go({ page: String(to) }, { quietly: true }), named);
    };
    const number = make("span", { role: "status" }, say("docs.page", { page, pages }));
    const turning = [turn(page - 1, "◀", "docs.before"), number, turn(page + 1, "▶", "docs.after")];
    return pages > 1 ? [make("p", { className: "turning" }, ...turning), figure] : [figure];
  }

  /** What is cited on a page, over its picture.
   * @param {Group[]} groups @param {number} page @param {{width: number, height: number}} size */
  #marks(groups, page, { width, height }) {
    const svg = shape("svg", { viewBox: `0 0 ${width} ${height}`, class: "marks" });
    for (const { first, all, id } of groups) {
      const boxes = first.boxes.filter((box) => box.page === page);
      if (!boxes.length) continue;
      const words = say("docs.mark", { status: say(`status.${first.status}`), quote: first.quote, count: all.length });
      const mark = shape("a", { href: `#${id}`, "aria-label": words, class: first.status, "data-mark": id });
      const title = shape("title");
      title.textContent = words;
      mark.append(title, ...boxes.map(around));
      mark.addEventListener("click", (event) => {
        event.preventDefault();
        this.#sheet.querySelector(`#${id}`)?.scrollIntoView({ block: "nearest" });
        /** @type {HTMLElement | null} */ (this.#sheet.querySelector(`#${id} a[data-answer]`))?.focus();
      });
      this.#twins(mark, `#${id}`);
      svg.append(mark);
    }
    return svg;
  }

  /** Who cites it. @param {Group[]} groups */
  #cited(groups) {
    return make("ol", { className: "mentions" }, ...groups.map(({ first, all, id }) => {
      const { page, isCurrent, quote, status } = first;
      const place = page ? [" ", link({ page: String(page) }, { className: "note" }, say("page", { page }))] : [];
      const answers = all.map((one) => make("li", {}, answerLink(one), " ", when(one.at, { dateStyle: "medium" })));
      const said = [make("q", { dir: "auto" }, quote), make("ul", { className: "note" }, ...answers)];
      const entry = make("li", { id }, chip(status), ...place, ...said, ...(isCurrent ? [] : [note(say("docs.old"))]));
      this.#twins(entry, `[data-mark="${id}"]`);
      return entry;
    }));
  }

  /** What is pointed at here lights up there. @param {Element} node @param {string} other */
  #twins(node, other) {
    const light = (/** @type {boolean} */ isOn) => this.#sheet.querySelector(other)?.classList.toggle("active", isOn);
    for (const event of ["mouseenter", "focusin"]) node.addEventListener(event, () => light(true));
    for (const event of ["mouseleave", "focusout"]) node.addEventListener(event, () => light(false));
  }
}

/** A box with a little room around it. @param {Mention["boxes"][number]} box */
const around = ({ left, top, right, bottom }) =>
  shape("rect", { x: left - 1, y: top - 1, width: right - left + 2, height: bottom - top + 2, rx: 2 });

/** Citations of the same words, in the order of the pages; the worst first where they are on the same.
 * @param {Mention[]} mentions @returns {Group[]} */
function grouped(mentions) {
  const found = Map.groupBy(mentions, ({ page, quote, status, isCurrent }) => JSON.stringify([page, quote, status, isCurrent]));
  const groups = [...found.values()].map((all, at) => ({ first: all[0], all, id: `words-${at}` }));
  return groups.sort(({ first: one }, { first: two }) => (one.page ?? 0) - (two.page ?? 0) || badness(one) - badness(two));
}

/** @param {Mention} mention */
const badness = ({ status }) => rank({ status: /** @type {any} */ (status) });

/** @param {Mention} mention */
function answerLink({ threadId: thread, messageId: answer }) {
  const changes = { view: "", document: "", page: "", thread, answer, at: "" };
  const node = link(changes, { dir: "auto" }, say("list.thread", { thread }));
  node.dataset.answer = answer;
  return node;
}
