// A source, page by page, with the words of a citation marked: as a picture where it has looks, else as text.
// + and - zoom, the arrows turn pages, Escape closes.

import { address, make } from "../dom.js";
import { SIGNS, word } from "../verdict.js";
import { say } from "../words.js";
import { WireError } from "../client.js";

/** @typedef {import("../client.js").Client} Client */
/** @typedef {import("../types.js").Source} Source */
/** @typedef {import("../types.js").Cited} Cited */
/** A rectangle on a page, in points from its top left. @typedef {{page: number, left: number, top: number, right: number, bottom: number}} Box */

const ZOOMS = [0.5, 0.75, 1, 1.5, 2, 3, 4];
// Pixels for a point, for a page that fills the window and for one that is larger.
const [SHARP, SHARPER] = [2, 4];
// Past this the server draws smaller than it was asked to, and boxes would be off.
const [MOST_PIXELS, MOST_SIDE] = [16_000_000, 8_192];
const LOOKS = ["pdf", "image"];
// Characters of text around the words: a page of text can be a whole book.
const AROUND = 50_000;

export class Viewer {
  #client;
  #base;
  #title = make("h2", { dir: "auto" });
  #page = make("span", { className: "page", role: "status" });
  #zoomed = make("span", { className: "zoom" });
  #told = make("p", { className: "told" });
  #body = make("div", { className: "body", tabIndex: 0 });
  #proof = make("a", { target: "_blank", rel: "noopener noreferrer" });
  #buttons = /** @type {Record<string, HTMLButtonElement>} */ ({});
  #dialog = make("dialog", { id: "viewer" });
  /** @type {Source | null} */
  #source = null;
  /** @type {Cited | null} */
  #cited = null;
  #number = 1;
  #zoom = 1;
  /** The text of the source, where it has no looks. @type {Promise<any> | null} */
  #text = null;
  #turns = 0;

  /** @param {Client} client @param {string} base Where the server is. */
  constructor(client, base) {
    this.#client = client;
    this.#base = base;
    const button = (/** @type {string} */ name, /** @type {string} */ sign, /** @type {() => void} */ onclick) => {
      const made = make("button", { type: "button", className: "plain", onclick, title: say(`viewer.${name}`) }, sign);
      made.ariaLabel = say(`viewer.${name}`);
      return (this.#buttons[name] = made);
    };
    const bar = make("div", { className: "bar" },
      button("before", "‹", () => this.#turn(-1)), this.#page, button("after", "›", () => this.#turn(1)),
      button("smaller", "−", () => this.#scale(-1)), this.#zoomed, button("larger", "+", () => this.#scale(1)),
    );
    const close = button("close", "✕", () => this.#dialog.close());
    this.#proof.textContent = say("viewer.proof");
    this.#dialog.append(make("header", {}, this.#title, bar, close), this.#told, this.#body);
    this.#dialog.addEventListener("keydown", (event) => this.#pressed(event));
    // The picture of a large page is let go of.
    this.#dialog.addEventListener("close", () => this.#body.replaceChildren());
    document.body.append(this.#dialog);
  }

  /** Show a source, at what is cited of it. @param {Source} source @param {Cited | null} [cited] */
  open(source, cited = null) {
    [this.#source, this.#cited, this.#text, this.#zoom] = [source, cited, null, 1];
    this.#number = Math.min(Math.max(boxesOf(cited)[0]?.page ?? cited?.source.page ?? 1, 1), this.#pages);
    this.#title.textContent = source.title && source.title !== source.name ? `${source.title} (${source.name})` : source.name;
    this.#dialog.setAttribute("aria-label", source.name);
    this.#tellVerdict();
    if (!this.#dialog.open) this.#dialog.showModal();
    this.#body.focus();
    this.#show();
  }

  #tellVerdict() {
    const cited = this.#cited;
    this.#told.hidden = cited === null;
    this.#told.className = `told ${cited?.status ?? ""}`;
    const proof = address(cited?.verification?.citewire?.proof);
    this.#proof.hidden = proof === null;
    if (proof) this.#proof.href = proof;
    if (!cited) return;
    const sign = make("b", { dir: "auto" }, `${SIGNS[cited.status]} ${word(cited.status)}`);
    this.#told.replaceChildren(sign, " ", make("q", { dir: "auto" }, cited.quote), " ", this.#proof);
  }

  get #pages() {
    return this.#source?.pages ?? 1;
  }

  get #hasLooks() {
    return LOOKS.includes(this.#source?.kind ?? "");
  }

  /** @param {number} by */
  #turn(by) {
    const number = this.#number + by;
    if (number < 1 || number > this.#pages) return;
    this.#number = number;
    this.#show();
  }

  /** @param {number} by */
  #scale(by) {
    const at = ZOOMS.indexOf(this.#zoom) + by;
    if (at < 0 || at >= ZOOMS.length) return;
    const wasSharper = this.#isSharper;
    this.#zoom = ZOOMS[at];
    if (this.#hasLooks && wasSharper !== this.#isSharper) this.#show();
    else this.#drawBar();
    this.#reveal();
  }

  get #isSharper() {
    return this.#zoom * devicePixelRatio > 2;
  }

  #drawBar() {
    const [page, pages, zoom] = [this.#number, this.#pages, this.#zoom];
    this.#page.textContent = say("viewer.page", { page, pages });
    this.#zoomed.textContent = zoom.toLocaleString(undefined, { style: "percent" });
    this.#buttons.before.disabled = page <= 1;
    this.#buttons.after.disabled = page >= pages;
    this.#buttons.smaller.disabled = zoom === ZOOMS[0];
    this.#buttons.larger.disabled = zoom === ZOOMS.at(-1);
    this.#body.style.setProperty("--zoom", String(zoom));
  }

  async #show() {
    const turn = ++this.#turns;
    this.#drawBar();
    this.#body.ariaBusy = "true";
    if (!this.#body.firstChild) this.#body.replaceChildren(make("p", { className: "note" }, say("viewer.loading")));
    const drawn = await (this.#hasLooks ? this.#picture() : this.#words()).catch((error) => {
      if (!(error instanceof WireError)) throw error;
      return make("p", { className: "note" }, say("viewer.lost", { reason: error.message }));
    });
    if (turn !== this.#turns) return; // another page was asked for since
    this.#body.replaceChildren(drawn);
    this.#body.ariaBusy = "false";
    this.#reveal();
  }

  #reveal() {
    const mark = this.#body.querySelector("mark");
    if (mark) mark.scrollIntoView({ block: "center", inline: "center" });
    else this.#body.scrollTop = 0;
  }

  async #picture() {
    let scale = this.#isSharper ? SHARPER : SHARP;
    let image = await this.#drawn(scale);
    while (scale > 0.1 && isCut(image)) image = await this.#drawn((scale = Math.max(scale / 2, 0.1)));
    const figure = make("figure", {}, image);
    for (const { page, left, top, right, bottom } of boxesOf(this.#cited)) {
      if (page !== this.#number) continue;
      const [across, down] = [(100 * scale) / image.naturalWidth, (100 * scale) / image.naturalHeight];
      const mark = make("mark");
      Object.assign(mark.style, {
        left: `${left * across}%`, top: `${top * down}%`, width: `${(right - left) * across}%`, height: `${(bottom - top) * down}%`,
      });
      figure.append(mark);
    }
    return figure;
  }

  /** @param {number} scale @returns {Promise<HTMLImageElement>} */
  async #drawn(scale) {
    const path = `/sources/${encodeURIComponent(this.#source?.id ?? "")}/pages/${this.#number}.avif?scale=${scale}`;
    const alt = say("viewer.picture", { page: this.#number, source: this.#source?.name ?? "" });
    const image = make("img", { src: `${this.#base}${path}`, alt });
    try {
      await image.decode();
    } catch {
      // An image does not say what was wrong with it.
      await this.#client.json(`/sources/${encodeURIComponent(this.#source?.id ?? "")}`);
      throw new WireError("bad_picture", "it could not be drawn");
    }
    return image;
  }

  async #words() {
    const path = `/sources/${encodeURIComponent(this.#source?.id ?? "")}/text`;
    this.#text ??= this.#client.json(path);
    const { text, pages, sha256 } = await this.#text;
    const { start, end } = pages.find((/** @type {any} */ one) => one.number === this.#number) ?? { start: 0, end: Infinity };
    const ours = this.#cited?.verification?.citewire ?? {};
    const isKnown = ours.sha256 === sha256 && Number.isSafeInteger(ours.start) && Number.isSafeInteger(ours.end);
    const isHere = isKnown && ours.start >= start && ours.start < end;
    const [from, to] = isHere ? [ours.start, ours.end] : [start, start];
    const [before, marked, after] = cut(text, [Math.max(start, from - AROUND), from, to, Math.min(end, to + AROUND)]);
    return make("div", { className: "words", dir: "auto" }, before, ...(marked ? [make("mark", {}, marked)] : []), after);
  }

  /** @param {KeyboardEvent} event */
  #pressed(event) {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const isBackwards = this.#dialog.matches(":dir(rtl)") ? 1 : -1;
    const acts = /** @type {Record<string, () => void>} */ ({
      "+": () => this.#scale(1), "=": () => this.#scale(1), "-": () => this.#scale(-1),
      ArrowLeft: () => this.#turn(isBackwards), ArrowRight: () => this.#turn(-isBackwards),
    });
    const act = Object.hasOwn(acts, event.key) ? acts[event.key] : null;
    // A page that is wider than the window is moved by the arrows.
    if (!act || (event.key.startsWith("Arrow") && this.#body.scrollWidth > this.#body.clientWidth + 1)) return;
    event.preventDefault();
    act();
  }
}

/** What is there between these places, in code points. @param {string} text @param {number[]} places In order. */
function cut(text, places) {
  /** @type {number[]} */
  const found = [];
  let [point, unit] = [0, 0];
  for (const place of places) {
    while (point < place && unit < text.length) {
      unit += /** @type {number} */ (text.codePointAt(unit)) > 0xffff ? 2 : 1;
      point += 1;
    }
    found.push(unit);
  }
  return found.slice(1).map((end, at) => text.slice(found[at], end));
}

/** @param {HTMLImageElement} image */
function isCut({ naturalWidth, naturalHeight }) {
  return naturalWidth * naturalHeight > 0.99 * MOST_PIXELS || Math.max(naturalWidth, naturalHeight) > 0.99 * MOST_SIDE;
}

/** @param {Cited | null} cited @returns {Box[]} */
function boxesOf(cited) {
  const boxes = cited?.verification?.citewire?.boxes;
  const isBox = (/** @type {any} */ box) => [box?.page, box?.left, box?.top, box?.right, box?.bottom].every(Number.isFinite);
  return Array.isArray(boxes) ? boxes.filter(isBox) : [];
}
