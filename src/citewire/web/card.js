// @ts-check
// <cite-card>: what became of a citation, and the proof. A popover of its marker, or a card of its own.

import { wordDiff } from "./diff.js";
import { address, make, pictureAddress } from "./dom.js";
import { STYLES } from "./style.js";
import { SIGNS, word } from "./verdict.js";
import { say } from "./words.js";

/** @typedef {import("./types.js").Cited} Cited */

// A longer quote is looked up by its first and last words.
const FRAGMENT = 60;

export class CiteCard extends HTMLElement {
  /** @type {Cited[]} */
  #cited = [];
  #isListed = false;
  #isGuess = false;

  constructor() {
    super();
    const root = this.attachShadow({ mode: "open" });
    root.adoptedStyleSheets = STYLES.card;
    root.addEventListener("click", (event) => this.#clicked(event));
    // Of a picture that fails only its node hears.
    root.addEventListener("error", (event) => lost(event.target), true);
  }

  connectedCallback() {
    this.setAttribute("role", "dialog");
    // Its words are those of the page, whatever the answer around its marker is written in.
    this.dir = getComputedStyle(document.documentElement).direction;
    this.tabIndex = -1;
  }

  /** What one marker cites: mostly one, several where they share its number. */
  get cited() {
    return this.#cited;
  }

  set cited(cited) {
    this.show({ cited });
  }

  /** `isListed`: there is a list of sources to go to. `isGuess`: which words the citation supports is not known.
   * @param {{cited: Cited[], isListed?: boolean, isGuess?: boolean}} shown */
  show({ cited, isListed = false, isGuess = false }) {
    const isSame = cited.length === this.#cited.length && cited.every((one, at) => one === this.#cited[at]);
    if (isSame && isListed === this.#isListed && isGuess === this.#isGuess) return;
    [this.#cited, this.#isListed, this.#isGuess] = [cited, isListed, isGuess];
    const root = /** @type {ShadowRoot} */ (this.shadowRoot);
    const focused = root.activeElement;
    const at = focused ? [...root.querySelectorAll(focused.localName)].indexOf(focused) : -1;
    this.setAttribute("aria-label", say("card", { number: cited[0]?.number ?? "" }));
    root.replaceChildren(...cited.map((one, nth) => this.#section(one, nth)));
    // What had the focus was made anew.
    if (focused) /** @type {HTMLElement} */ (root.querySelectorAll(focused.localName)[at] ?? this).focus();
  }

  /** @param {Cited} cited @param {number} nth */
  #section(cited, nth) {
    const { status, number } = cited;
    const close = make("button", { type: "button", className: "close", title: say("card.close") }, "✕");
    close.setAttribute("aria-label", say("card.close"));
    const sign = make("span", { className: "sign", ariaHidden: "true" }, SIGNS[status]);
    const title = make("p", { className: "status" }, sign, word(status));
    const header = make("header", {}, title, make("span", {}, `[${number}]`));
    if (!nth && this.popover) header.append(close);
    const guess = this.#isGuess ? [note(say("card.derived"))] : [];
    const body = make("div", { className: "body" }, ...told(cited), ...guess, this.#actions(cited));
    return make("section", { className: status }, header, body);
  }

  /** @param {Cited} cited */
  #actions(cited) {
    const actions = make("div", { className: "actions" });
    const href = proofOf(cited);
    const page = cited.source.page;
    if (href) {
      const text = page ? say("card.open.page", { page }) : say("card.open");
      actions.append(make("a", { className: "open", href, target: "_blank", rel: "noopener noreferrer" }, text));
    }
    const button = { type: "button", value: cited.key };
    const copied = say(cited.quote ? "card.copy" : "card.copy.source");
    actions.append(make("button", { ...button, className: "copy" }, copied));
    if (this.#isListed) actions.append(make("button", { ...button, className: "list" }, say("card.list")));
    return actions;
  }

  /** @param {Event} event */
  #clicked(event) {
    const button = event.target instanceof Element ? event.target.closest("button") : null;
    const cited = this.#cited.find(({ key }) => key === button?.value);
    if (button?.className === "close") this.hidePopover();
    else if (cited && button?.className === "copy") copy(cited, button);
    else if (cited) {
      const detail = { key: cited.key };
      this.dispatchEvent(new CustomEvent("cite-list", { detail, bubbles: true, composed: true }));
    }
  }
}

/** Everything there is to say, in the order in which it matters. @param {Cited} cited @returns {Node[]} */
function told(cited) {
  const { status, verification, source } = cited;
  const ours = verification?.citewire ?? {};
  const page = source.page ? [" ", make("span", { className: "page" }, say("page", { page: source.page }))] : [];
  const means = say(`means.${status}`);
  const isPlain = status === "verified" || status === "pending" || isSame(text(ours.reason), means);
  const reason = isPlain ? "" : text(ours.reason);
  const warnings = Array.isArray(ours.warnings) ? ours.warnings.filter((one) => typeof one === "string") : [];
  const src = pictureAddress(verification?.evidence?.src);
  const alt = say("card.picture", { place: placeOf(cited) });
  return [
    make("p", { className: "source" }, make("bdi", {}, source.title || say("source.none")), ...page),
    make("p", { className: "means" }, means),
    ...quoted(cited),
    ...(src ? [make("img", { src, alt })] : []),
    ...(reason ? [note(reason, "reason")] : []),
    ...(warnings.length ? [make("ul", { className: "note" }, ...warnings.map((one) => make("li", { dir: "auto" }, one)))] : []),
  ];
}

/** @param {any} value */
const text = (value) => (typeof value === "string" ? value : "");

/** @param {string} one @param {string} other */
const isSame = (one, other) => one.localeCompare(other, undefined, { sensitivity: "base", ignorePunctuation: true }) === 0;

/** @param {string} words @param {string} [name] */
const note = (words, name = "") => make("p", { className: `note ${name}`, dir: "auto" }, words);

/** The quote, and how the source differs where it does. @param {Cited} cited */
function quoted({ quote, status, verification }) {
  const found = text(verification?.verifiedMatchSnippet) || text(verification?.matchSnippet);
  const passage = text(verification?.citewire?.context?.text);
  if (!quote && !passage) return [note(say("card.no.quote"))];
  const differs = found && (status === "altered" || status === "partial");
  const parts = differs ? wordDiff(quote, found) : null;
  if (parts) return [make("blockquote", {}, make("p", { dir: "auto" }, ...parts.flatMap(marked)))];
  const rows = { "card.quote": quote, "card.found": differs ? found : "", "card.passage": passage };
  return [make("blockquote", {}, ...Object.entries(rows).flatMap(labelled))];
}

/** @param {[string, string]} row */
function labelled([name, words]) {
  return words ? [make("span", { className: "label" }, say(name)), make("p", { dir: "auto" }, words)] : [];
}

/** A part of a comparison; who cannot see the strokes hears whose words they are. @param {import("./diff.js").Part} part */
function marked({ kind, text: words }) {
  if (kind === "same") return [words, " "];
  const whose = say(kind === "quote" ? "diff.answer" : "diff.source");
  const heard = make("span", { className: "unseen" }, `(${whose}) `);
  return [make(kind === "quote" ? "del" : "ins", { title: whose }, heard, words), " "];
}

/** @param {Cited} cited */
export function placeOf({ source }) {
  const name = source.title || say("source.none");
  return source.page ? say("source.page", { source: name, page: source.page }) : name;
}

/** Where a person can see it: the proof of the server, else the page of the source, at the words. @param {Cited} cited */
export function proofOf({ verification, source, quote }) {
  const proof = address(verification?.citewire?.proof);
  const url = source.url ? address(source.url) : null;
  if (proof || !url || url.includes("#")) return proof ?? url;
  if (/\.pdf(?:\?|$)/i.test(url)) return source.page ? `${url}#page=${source.page}` : url;
  const words = text(verification?.verifiedMatchSnippet) || quote;
  return words ? `${url}#:~:text=${fragment(words)}` : url;
}

/** @param {string} words */
function fragment(words) {
  const coded = (/** @type {string} */ part) => encodeURIComponent(part.toWellFormed().trim()).replaceAll("-", "%2D");
  if (words.length <= 2 * FRAGMENT) return coded(words);
  return [words.slice(0, FRAGMENT).replace(/\S*$/, ""), words.slice(-FRAGMENT).replace(/^\S*/, "")].map(coded).join(",");
}

/** @param {Cited} cited @param {HTMLButtonElement} button */
async function copy(cited, button) {
  const lines = [cited.quote && `“${cited.quote}”`, `— ${placeOf(cited)}`, proofOf(cited)];
  // Not every page may.
  const done = await navigator.clipboard?.writeText(lines.filter(Boolean).join("\n")).then(() => true, () => false);
  button.textContent = say(done ? "card.copied" : "card.not.copied");
  button.role = "status";
}

/** @param {EventTarget | null} image */
function lost(image) {
  if (image instanceof HTMLImageElement) image.replaceWith(note(say("card.picture.lost")));
}
