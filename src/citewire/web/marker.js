// @ts-check
// <cite-marker>: the number of a citation and its verdict. Opens the card; while it is looked at, says so by `cite-active`.

import { CiteCard, placeOf } from "./card.js";
import { make } from "./dom.js";
import { Look } from "./reviews.js";
import { STYLES } from "./style.js";
import { SIGNS, word, worst } from "./verdict.js";
import { say } from "./words.js";

/** @typedef {import("./types.js").Cited} Cited */

// Milliseconds: passing over opens nothing, and the way from the marker to its card may lead outside of both.
const OPEN_AFTER = 120;
const CLOSE_AFTER = 250;

export class CiteMarker extends HTMLElement {
  /** @type {Cited[]} */
  #cited = [];
  #isWaiting = false;
  #button = make("button", { type: "button" });
  #plain = make("span");
  /** @type {CiteCard | null} */
  #card = null;
  /** @type {Look | null} */
  #look = null;
  #timer = 0;
  #isPinned = false;
  #isActive = false;

  /** Where it stands in the text of the answer. @type {import("./markdown.js").MarkerPlace | null} */
  place = null;
  /** What the text says where it stands. */
  label = "";
  messageId = "";
  /** Whether there is a list of sources to go to, and whether its claim is a guess: asked when the card opens.
   * @type {() => {isListed?: boolean, isGuess?: boolean}} */
  context = () => ({});

  constructor() {
    super();
    const root = this.attachShadow({ mode: "open", delegatesFocus: true });
    root.adoptedStyleSheets = STYLES.marker;
    this.#button.setAttribute("aria-haspopup", "dialog");
    this.#button.setAttribute("aria-expanded", "false");
    root.append(this.#button, this.#plain);
    this.#button.addEventListener("click", (event) => this.#clicked(event));
    this.addEventListener("pointerenter", (event) => this.#later(event, OPEN_AFTER, () => this.open()));
    this.addEventListener("pointerleave", (event) => this.#later(event, CLOSE_AFTER, () => this.#leave()));
    for (const name of ["focusin", "focusout"]) this.addEventListener(name, () => this.#tell());
  }

  connectedCallback() {
    this.#draw();
  }

  disconnectedCallback() {
    clearTimeout(this.#timer);
    this.#closed();
  }

  /** All that is cited by this number. */
  get cited() {
    return this.#cited;
  }

  set cited(cited) {
    if (cited.length === this.#cited.length && cited.every((one, at) => one === this.#cited[at])) return;
    this.#cited = cited;
    if (this.isConnected) this.#draw();
  }

  /** Whether what it cites may still come. */
  get waiting() {
    return this.#isWaiting;
  }

  set waiting(isWaiting) {
    if (isWaiting === this.#isWaiting) return;
    this.#isWaiting = isWaiting;
    if (this.isConnected) this.#draw();
  }

  #draw() {
    const one = this.#cited.length ? worst(this.#cited) : null;
    const number = String(one?.number ?? (/^\d+$/.test(this.label) ? this.label : ""));
    this.#plain.hidden = one !== null || this.#isWaiting;
    this.#plain.textContent = this.#plain.hidden ? "" : /^\d+$/.test(this.label) ? `[${this.label}]` : `[^${this.label}]`;
    this.#button.hidden = !this.#plain.hidden;
    this.#button.disabled = one === null;
    const status = one?.status ?? "pending";
    this.#button.className = `chip ${status}`;
    this.#button.replaceChildren(number, make("span", { className: "sign", ariaHidden: "true" }, SIGNS[status]));
    const source = one && placeOf(one);
    this.#button.ariaLabel = source ? say("marker", { number, status: word(status), source }) : say("marker.waiting", { number });
    if (this.isOpen) this.#card?.show({ cited: this.#cited, ...this.context() });
  }

  get isOpen() {
    return this.#look !== null;
  }

  /** Show the card. */
  open() {
    if (this.isOpen || !this.#cited.length || !this.isConnected) return;
    const card = this.#cardOf();
    card.show({ cited: this.#cited, ...this.context() });
    this.#button.popoverTargetElement = card;
    card.showPopover({ source: this.#button });
    this.#button.setAttribute("aria-expanded", "true");
    this.#look = new Look(this, this.messageId, this.#cited.map(({ key }) => key));
    this.#tell();
  }

  /** Close it. */
  close() {
    if (this.isOpen) this.#card?.hidePopover();
  }

  #cardOf() {
    if (this.#card) return this.#card;
    const card = new CiteCard();
    card.popover = "auto";
    card.addEventListener("beforetoggle", ({ newState }) => newState === "closed" && this.#closed());
    this.shadowRoot?.append(card);
    return (this.#card = card);
  }

  #closed() {
    if (!this.#look) return;
    this.#look.close();
    [this.#look, this.#isPinned] = [null, false];
    // From now on a press beside the card is none on its marker.
    this.#button.popoverTargetElement = null;
    this.#button.setAttribute("aria-expanded", "false");
    if (this.#card?.matches(":focus-within")) this.#button.focus();
    queueMicrotask(() => this.#tell());
  }

  /** @param {MouseEvent} event */
  #clicked(event) {
    event.preventDefault();
    clearTimeout(this.#timer);
    if (this.#isPinned) return this.close();
    this.open();
    this.#isPinned = true;
    // Opened by keyboard: move the focus into the card.
    if (event.detail === 0) this.#card?.focus();
  }

  #leave() {
    if (!this.#isPinned && !this.#card?.matches(":focus-within")) this.close();
  }

  /** A finger does not hover. @param {PointerEvent} event @param {number} delay @param {() => void} act */
  #later({ pointerType }, delay, act) {
    this.#tell();
    if (pointerType === "touch") return;
    clearTimeout(this.#timer);
    this.#timer = setTimeout(act, delay);
  }

  #tell() {
    const isActive = this.isOpen || this.matches(":hover, :focus-within");
    if (isActive === this.#isActive) return;
    this.#isActive = isActive;
    this.dispatchEvent(new CustomEvent("cite-active", { detail: { active: isActive }, bubbles: true, composed: true }));
  }
}
