// @ts-check
// <cite-sources>: what an answer cites, by source, under the numbers of its markers. The worst comes first, once the
// answer is complete; until then everything stays where it is.

import { placeOf, proofOf } from "./card.js";
import { address, make } from "./dom.js";
import { Linked } from "./linked.js";
import { STYLES } from "./style.js";
import { SIGNS, rank, word, worst } from "./verdict.js";
import { say } from "./words.js";

/** @typedef {import("./types.js").AnswerView} AnswerView */
/** @typedef {import("./types.js").Cited} Cited */

export class CiteSources extends Linked {
  #heading = make("h2", { hidden: true });
  #list = make("ul");
  /** Entries by key, and what each was made of. @type {Map<string, {of: string, node: HTMLElement}>} */
  #entries = new Map();
  /** Groups by source, and the entries in each. @type {Map<string, {entries: HTMLElement[], node: HTMLElement}>} */
  #groups = new Map();
  /** @type {Cited[] | null} */
  #cited = null;
  #isSorted = false;

  constructor() {
    super();
    const root = this.attachShadow({ mode: "open" });
    root.adoptedStyleSheets = STYLES.sources;
    root.append(this.#heading, this.#list);
    root.addEventListener("click", (event) => {
      const button = event.target instanceof Element ? event.target.closest("button") : null;
      if (button) this.answer?.reveal(button.value);
    });
  }

  /** @override @param {import("./answer.js").CiteAnswer | null} answer @param {boolean} isLinked */
  link(answer, isLinked) {
    if (answer) answer.sources = isLinked ? this : null;
  }

  /** @override @param {AnswerView | null} view */
  draw(view) {
    const cited = view?.cited ?? [];
    const isSorted = view?.status === "complete" || view?.status === "error";
    if (cited === this.#cited && isSorted === this.#isSorted) return;
    [this.#cited, this.#isSorted] = [cited, isSorted];
    const root = /** @type {ShadowRoot} */ (this.shadowRoot);
    const focused = /** @type {HTMLElement | null} */ (root.activeElement);
    const sorted = cited.toSorted(isSorted ? byRank : byNumber);
    const groups = [...Map.groupBy(sorted, (one) => one.source.id || placeOf(one))].map((group) => this.#group(...group));
    this.#heading.textContent = say("sources");
    this.#heading.hidden = cited.length === 0;
    if (!isSame(groups, [...this.#list.children])) this.#list.replaceChildren(...groups);
    if (focused?.isConnected) focused.focus();
  }

  /** Go to the entry of a citation. @param {string} key */
  reveal(key) {
    const node = this.#entries.get(key)?.node;
    node?.scrollIntoView({ block: "center" });
    node?.focus();
  }

  /** What of the list did not change stays as it is. @param {string} id @param {Cited[]} group */
  #group(id, group) {
    const entries = group.map((one) => this.#entry(one));
    const known = this.#groups.get(id);
    if (known && isSame(entries, known.entries)) return known.node;
    const { source, status } = worst(group);
    const href = source.url ? address(source.url) : null;
    const words = make("bdi", {}, source.title || say("source.none"));
    const name = href ? make("a", { href, target: "_blank", rel: "noopener noreferrer" }, words) : words;
    const times = make("span", { className: "times" }, ` · ${say("sources.cited", { count: group.length })}`);
    const title = make("p", { className: "name" }, name, times);
    const node = make("li", { className: `group ${status}` }, title, make("ul", {}, ...entries));
    this.#groups.set(id, { entries, node });
    return node;
  }

  /** @param {Cited} cited */
  #entry(cited) {
    const ours = cited.verification?.citewire;
    const href = proofOf(cited);
    const of = JSON.stringify([cited.number, cited.status, cited.quote, cited.source, ours?.reason, href]);
    const known = this.#entries.get(cited.key);
    if (known?.of === of) return known.node;
    const node = make("li", { className: `entry ${cited.status}`, tabIndex: -1 }, ...this.#line(cited, href));
    this.#entries.set(cited.key, { of, node });
    return node;
  }

  /** @param {Cited} cited @param {string | null} href @returns {Node[]} */
  #line({ key, number, status, source, quote, verification }, href) {
    const sign = make("span", { className: "sign", ariaHidden: "true" }, SIGNS[status]);
    const back = make("button", { type: "button", className: `chip ${status}`, value: key }, String(number), sign);
    back.ariaLabel = say("sources.back", { number });
    const where = source.page ? say("page", { page: source.page }) : "";
    const reason = status === "verified" || status === "pending" ? "" : verification?.citewire?.reason;
    const link = { href, target: "_blank", rel: "noopener noreferrer" };
    const open = href ? make("a", link, where || say("card.open")) : make("span", { className: "where" }, where);
    return [
      back,
      make("p", {}, make("span", { className: "word" }, word(status)), " "),
      ...(quote ? [make("q", { dir: "auto" }, quote), new Text(" ")] : []),
      open,
      ...(typeof reason === "string" && reason ? [make("span", { className: "reason", dir: "auto" }, reason)] : []),
    ];
  }
}

/** @param {Element[]} one @param {Element[]} other */
const isSame = (one, other) => one.length === other.length && one.every((node, at) => node === other[at]);

/** @param {Cited} one @param {Cited} other */
const byNumber = (one, other) => String(one.number).localeCompare(String(other.number), "en", { numeric: true });

/** @param {Cited} one @param {Cited} other */
const byRank = (one, other) => rank(one) - rank(other) || byNumber(one, other);
