// @ts-check
// <cite-answer>: an answer as it streams in, with a marker for everything it cites. Give it a `view`; or an AG-UI
// `message` and `state`; or a `salesforce` message; or `ably`, `{message, annotations}`. All look alike.

import { make } from "./dom.js";
import { paint, unpaint } from "./highlight.js";
import { CiteMarker } from "./marker.js";
import { Markdown } from "./markdown.js";
import { derivedClaim, uncited } from "./sentences.js";
import { STYLES } from "./style.js";
import { summary, worst } from "./verdict.js";
import { fromAbly, fromAgui, fromSalesforce, withDefined } from "./view.js";
import { say } from "./words.js";

/** @typedef {import("./types.js").AnswerView} AnswerView */
/** @typedef {import("./types.js").Cited} Cited */
/** @typedef {import("./types.js").Claim} Claim */
/** @typedef {import("./types.js").Verdict} Verdict */
/** @typedef {import("./markdown.js").MarkerPlace} MarkerPlace */

// Of a long text so much is drawn at once, and so long (milliseconds) in one frame: the page stays awake. Where much is
// behind, fewer and longer frames are done sooner.
const SLICE = 8192;
const BUDGET = 8;
const LONG_BUDGET = 30;
// A marker that stands further behind a claim is the marker of another one.
const FAR = 200;

/** @type {Record<Verdict, string>} */
const TINT = { verified: "good", partial: "warn", altered: "bad", missed: "bad", pending: "none", skipped: "none" };
const TINTS = [...new Set(Object.values(TINT))].flatMap((tint) => [`cite-${tint}`, `cite-${tint}-guess`]);

/** @type {AnswerView} */
const EMPTY = { id: "", text: "", status: "streaming", cited: [] };

export class CiteAnswer extends HTMLElement {
  static observedAttributes = ["streaming", "uncited"];

  /** How a view is got from what was given, and the last one. @type {() => AnswerView} */
  #read = () => EMPTY;
  #last = EMPTY;
  #message = /** @type {any} */ (null);
  #state = /** @type {any} */ (null);
  /** The same, with what the text defines itself. */
  #view = EMPTY;
  #text = make("div", { className: "text" });
  #problem = make("p", { className: "problem", part: "problem", hidden: true, role: "alert" });
  #live = make("p", { className: "unseen", role: "status" });
  #markdown = this.#started();
  /** How much of the text is with the Markdown, and whether that is all there will be. */
  #taken = 0;
  #isEnded = false;
  /** By what is in the text, and by what was put there. @type {Map<string, CiteMarker>} */
  #markers = new Map();
  /** What lines such as `[^label]: …` say. @type {Map<string, string>} */
  #defined = new Map();
  /** @type {Map<string, Cited[]>} */
  #byLabel = new Map();
  /** @type {Cited[]} */
  #toPlace = [];
  /** How many markers there were when doubt was last underlined. */
  #alarmed = 0;
  #doubted = "";
  #frame = 0;
  #drawn = Promise.withResolvers();
  /** The list of sources that goes with this answer. @type {{reveal: (key: string) => void} | null} */
  sources = null;

  constructor() {
    super();
    const root = this.attachShadow({ mode: "open" });
    root.adoptedStyleSheets = STYLES.answer;
    root.append(this.#text, this.#problem, this.#live);
    root.addEventListener("cite-active", (event) => this.#activated(/** @type {CustomEvent} */ (event)));
    root.addEventListener("cite-list", (event) => this.#listed(/** @type {CustomEvent} */ (event)));
  }

  connectedCallback() {
    this.#later();
  }

  disconnectedCallback() {
    unpaint(this);
  }

  attributeChangedCallback() {
    this.#later();
  }

  /** What is shown. */
  get view() {
    return this.#view;
  }

  set view(view) {
    this.#give(() => ({ ...EMPTY, ...view }));
  }

  /** An AG-UI message. @param {any} message */
  set message(message) {
    this.#message = message;
    this.#give(() => this.#agui());
  }

  /** The AG-UI state that goes with it. @param {any} state */
  set state(state) {
    this.#state = state;
    this.#give(() => this.#agui());
  }

  /** A Salesforce outbound message with `citationContent`. @param {any} message */
  set salesforce(message) {
    this.#give(() => fromSalesforce(message));
  }

  /** An Ably message with its annotations. @param {{message: any, annotations: any}} ably */
  set ably(ably) {
    this.#give(() => fromAbly(ably?.message, ably?.annotations));
  }

  /** Kept when all that was given is drawn. */
  get drawn() {
    return this.#drawn.promise;
  }

  /** Go to the marker of a citation. @param {string} key */
  reveal(key) {
    const marker = this.#listOfMarkers().find(({ cited }) => cited.some((one) => one.key === key));
    marker?.scrollIntoView({ block: "center" });
    marker?.focus();
    return marker !== undefined;
  }

  #agui() {
    return fromAgui(this.#message, this.#state, { streaming: this.hasAttribute("streaming") });
  }

  /** @param {() => AnswerView} read */
  #give(read) {
    this.#read = read;
    this.#later();
  }

  /** However much comes, it is drawn once a frame. */
  #later() {
    if (this.#frame || !this.isConnected) return;
    this.#drawn = renewed(this.#drawn);
    this.#frame = requestAnimationFrame(() => {
      this.#frame = 0;
      this.#draw();
    });
  }

  #draw() {
    const [before, view] = [this.#last, this.#read()];
    const isLonger = view.text.length > before.text.length;
    const goesOn = view.id === before.id && view.text.startsWith(before.text) && !(this.#isEnded && isLonger);
    if (!goesOn) this.#reset();
    this.#last = view;
    const isNew = view.cited !== before.cited || !goesOn;
    if (isNew) this.#cite(view);
    else this.#view = { ...view, cited: this.#view.cited };
    const defined = this.#defined.size;
    const isWhole = this.#takeText(view);
    const isDefined = defined !== this.#defined.size;
    if (isDefined) this.#cite(view);
    this.#place();
    if (isNew || isDefined || view.status !== before.status) this.#mark();
    this.#text.ariaBusy = String(this.#isWaiting || !isWhole);
    if (!isWhole) return this.#later();
    if (this.#alarmed !== this.#markers.size) this.#alarm();
    if (!this.#isWaiting) this.#complete(this.#view);
    this.dispatchEvent(new CustomEvent("cite-view", { detail: this.#view }));
    if (!this.#frame) this.#drawn.resolve(undefined);
  }

  #started() {
    const marker = (/** @type {MarkerPlace} */ place) =>
      this.#marker(`${place.start}/${place.label}`, { label: place.label, place });
    return new Markdown(this.#text, marker, (label, text) => this.#defined.set(label, text));
  }

  #reset() {
    unpaint(this);
    this.#text.replaceChildren();
    [this.#taken, this.#isEnded, this.#doubted] = [0, false, ""];
    this.#markers.clear();
    this.#defined.clear();
    this.#markdown = this.#started();
  }

  /** Whether all of the text is drawn. @param {AnswerView} view */
  #takeText({ text, status }) {
    const deadline = performance.now() + (text.length - this.#taken > 8 * SLICE ? LONG_BUDGET : BUDGET);
    while (this.#taken < text.length) {
      const slice = text.slice(this.#taken, this.#taken + SLICE);
      this.#markdown.append(slice);
      this.#taken += slice.length;
      if (performance.now() > deadline) break;
    }
    this.#markdown.draw();
    if (this.#taken < text.length) return false;
    if (status !== "streaming" && !this.#isEnded) {
      this.#markdown.end();
      this.#isEnded = true;
    }
    return true;
  }

  /** Whether anything may still come. */
  get #isWaiting() {
    return this.#last.status !== "complete" && this.#last.status !== "error";
  }

  /** @param {AnswerView} view */
  #cite(view) {
    const cited = withDefined(view.cited, this.#defined);
    this.#view = { ...view, cited };
    this.#byLabel = Map.groupBy(cited, ({ label }) => label);
    this.#toPlace = cited.filter(({ insertAt, claim }) => insertAt !== null || claim !== null);
  }

  /** The marker of this name. @param {string} name @param {Partial<CiteMarker>} properties */
  #marker(name, properties) {
    const known = this.#markers.get(name);
    if (known) return known;
    const marker = Object.assign(new CiteMarker(), properties, { messageId: this.#view.id });
    marker.context = () => ({ isListed: this.sources !== null, isGuess: this.#claims(marker).every(isGuess) });
    marker.waiting = this.#isWaiting;
    if (marker.place) marker.cited = this.#byLabel.get(marker.label) ?? [];
    this.#markers.set(name, marker);
    return marker;
  }

  #listOfMarkers() {
    return [...this.#markers.values()].filter(({ isConnected }) => isConnected);
  }

  /** Tell every marker what it cites. */
  #mark() {
    for (const marker of this.#markers.values()) {
      if (marker.place) marker.cited = this.#byLabel.get(marker.label) ?? [];
      marker.waiting = this.#isWaiting;
    }
    this.#alarmed = -1;
  }

  /** Underline what is in doubt. */
  #alarm() {
    this.#alarmed = this.#markers.size;
    if (!this.#view.cited.some(({ status }) => TINT[status] === "bad")) return this.#paintDoubt([]);
    const doubted = this.#listOfMarkers().filter(({ cited }) => cited.length && TINT[worst(cited).status] === "bad");
    this.#paintDoubt(doubted.flatMap((marker) => this.#claims(marker)));
  }

  /** @param {Claim[]} claims */
  #paintDoubt(claims) {
    const doubted = claims.map(({ start, end, origin }) => `${start} ${end} ${origin}`).join();
    if (doubted === this.#doubted) return;
    this.#doubted = doubted;
    this.#paint("cite-alarm", claims.filter((claim) => !isGuess(claim)));
    this.#paint("cite-alarm-guess", claims.filter(isGuess));
  }

  /** Put markers where the text has none, as soon as nothing there is drawn anew. */
  #place() {
    const end = this.#isEnded ? Infinity : this.#markdown.closed;
    /** @type {Map<string, {at: number, cited: Cited[]}>} */
    const places = new Map();
    for (const one of this.#toPlace) {
      const at = one.insertAt ?? one.claim?.end ?? 0;
      // A marker for it may yet come with the text.
      if (at > end || (one.label && (this.#isWaiting || this.#isInText(one.label)))) continue;
      const name = `${at}+${one.number}`;
      const place = places.get(name) ?? { at, cited: [] };
      place.cited.push(one);
      places.set(name, place);
    }
    for (const [name, { at, cited }] of places) {
      const marker = this.#marker(name, {});
      marker.cited = cited;
      if (!marker.isConnected) this.#markdown.page.places.insert(at, marker);
    }
  }

  /** @param {string} label */
  #isInText(label) {
    return this.#listOfMarkers().some((marker) => marker.place && marker.label === label);
  }

  /** What a marker supports: as it was said, else the sentence in front of it. @param {CiteMarker} marker @returns {Claim[]} */
  #claims(marker) {
    const said = marker.cited.map(({ claim }) => claim).filter((claim) => claim !== null);
    const { place } = marker;
    const own = place ? said.filter(({ end }) => isClose(this.#view.text, end, place.start)) : said;
    if (own.length || !place) return own;
    const guess = derivedClaim(this.#view.text, place.start);
    return guess ? [guess] : [];
  }

  /** @param {string} name @param {Claim[]} claims */
  #paint(name, claims) {
    const { places } = this.#markdown.page;
    paint(this, name, claims.map(({ start, end }) => places.range(start, end)).filter((range) => range !== null));
  }

  /** @param {CustomEvent} event */
  #activated({ target, detail }) {
    const marker = /** @type {CiteMarker} */ (target);
    for (const name of TINTS) paint(this, name, []);
    if (!detail.active || !marker.cited.length) return;
    const tint = `cite-${TINT[worst(marker.cited).status]}`;
    const claims = this.#claims(marker);
    this.#paint(tint, claims.filter((claim) => !isGuess(claim)));
    this.#paint(`${tint}-guess`, claims.filter(isGuess));
  }

  /** @param {CustomEvent} event */
  #listed({ target, detail }) {
    if (target instanceof CiteMarker) target.close();
    this.sources?.reveal(detail.key);
  }

  /** @param {AnswerView} view */
  #complete({ status, error = "", cited }) {
    this.#problem.hidden = status !== "error";
    this.#problem.textContent = status === "error" ? say("answer.failed", { error }) : "";
    const told = say("answer.complete", { summary: summary(cited) }).trim();
    if (status === "complete" && this.#live.textContent !== told) this.#live.textContent = told;
    const paragraphs = this.hasAttribute("uncited") ? [...this.#text.querySelectorAll("p")] : [];
    const starts = new Map(this.#markdown.page.places.pieces.map(({ start, node }) => [node, start]));
    const claims = cited.map(({ claim }) => claim).filter((claim) => claim !== null);
    const place = (/** @type {Text} */ node) => starts.get(node) ?? 0;
    paint(this, "cite-uncited", paragraphs.flatMap((paragraph) => [...uncited(paragraph, place, claims)]));
  }
}

/** Whether nothing but other markers and punctuation stands in between. @param {string} text @param {number} end @param {number} start */
function isClose(text, end, start) {
  return start - end >= 0 && start - end < FAR && !/[^\s\p{P}]/u.test(text.slice(end, start).replace(/\[[^[\]]*\]/g, ""));
}

/** @param {Claim} claim */
const isGuess = ({ origin }) => origin === "derived" || origin === "unknown";

/** A promise that is not kept yet. @param {PromiseWithResolvers<any>} last */
function renewed(last) {
  const next = Promise.withResolvers();
  next.promise.then(last.resolve);
  return next;
}
