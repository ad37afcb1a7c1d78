// The sources: all that the server has, and those that this window adds, with how far they are. Files come by a button,
// by drag and drop or from the clipboard, addresses from a field or the clipboard.

import { WireError } from "../client.js";
import { make } from "../dom.js";
import { say } from "../words.js";

/** @typedef {import("../client.js").Client} Client */
/** @typedef {import("../types.js").Source} Source */
/** What this window adds. `share` is how much of it was sent.
 * @typedef {{name: string, key: string, id?: string, share?: number, error?: string}} Added */

// Entries of the list: nobody reads more, and a server may have thousands.
const MOST = 100;

/** Tells that a source is to be shown by an `open` event. */
export class Shelf extends EventTarget {
  #client;
  #list = by("sources");
  #tray = by("tray");
  #input = /** @type {HTMLInputElement} */ (by("files"));
  /** @type {Map<string, Source>} */
  #sources = new Map();
  /** @type {Set<Added>} */
  #added = new Set();
  #count = 0;
  #isDue = false;

  /** @param {Client} client */
  constructor(client) {
    super();
    this.#client = client;
    for (const name of ["add", "attach"]) by(name).addEventListener("click", () => this.#input.click());
    this.#input.addEventListener("change", () => {
      this.addFiles([...(this.#input.files ?? [])]);
      this.#input.value = "";
    });
    this.#list.addEventListener("click", ({ target }) => {
      const source = this.#sources.get(target instanceof Element ? (target.closest("button")?.value ?? "") : "");
      if (source) this.dispatchEvent(new CustomEvent("open", { detail: source }));
    });
    this.#tray.addEventListener("click", ({ target }) => target instanceof HTMLButtonElement && this.#dismiss(target));
    by("fetch").addEventListener("submit", (event) => {
      event.preventDefault();
      const field = /** @type {HTMLInputElement} */ (by("url"));
      this.addUrl(field.value);
      field.value = "";
    });
    this.#takeDrops();
    addEventListener("paste", (event) => this.#pasted(event));
    this.#draw();
  }

  /** @param {string | undefined} sha256 */
  bySha256(sha256) {
    return [...this.#sources.values()].find((source) => sha256 && source.sha256 === sha256 && source.state === "ready");
  }

  /** Follow what the server has. @param {import("../client.js").Following} options */
  async follow(options) {
    for await (const { event, data } of this.#client.sourceEvents(options)) {
      if (event === "snapshot") this.#sources = new Map(data.sources.map((/** @type {Source} */ source) => [source.id, source]));
      else if (event === "source") this.#sources.set(data.id, data);
      else if (event === "removed") this.#sources.delete(data.id);
      this.#later();
    }
  }

  /** @param {File[]} files */
  addFiles(files) {
    for (const file of files) {
      const added = { name: file.name, key: String(++this.#count), share: 0 };
      const onProgress = (/** @type {number} */ share) => this.#tell(added, { share });
      this.#add(added, this.#client.upload(file, { onProgress }));
    }
  }

  /** @param {string} url */
  addUrl(url) {
    this.#add({ name: url, key: String(++this.#count) }, this.#client.addUrl(url));
  }

  /** What was added and is in use needs no more words. */
  tidy() {
    for (const added of this.#added) if (this.#sources.get(added.id ?? "")?.state === "ready") this.#added.delete(added);
    this.#later();
  }

  /** @param {Added} added @param {Promise<Source>} adding */
  async #add(added, adding) {
    this.#added.add(added);
    this.#later();
    try {
      const source = await adding;
      // Events may have told of it, and of more than this.
      if (!this.#sources.has(source.id)) this.#sources.set(source.id, source);
      this.#tell(added, { id: source.id });
    } catch (error) {
      if (!(error instanceof WireError)) throw error;
      this.#tell(added, { error: error.message });
    }
  }

  /** @param {Added} added @param {Partial<Added>} more */
  #tell(added, more) {
    Object.assign(added, more);
    this.#later();
  }

  #later() {
    if (!this.#isDue) requestAnimationFrame(() => this.#draw());
    this.#isDue = true;
  }

  #draw() {
    this.#isDue = false;
    const sources = [...this.#sources.values()].sort((one, other) => one.name.localeCompare(other.name, undefined, { numeric: true }));
    by("count").textContent = sources.length ? sources.length.toLocaleString() : "";
    const shown = sources.slice(0, MOST).map(entry);
    const more = sources.length - shown.length;
    if (more) shown.push(make("li", { className: "faint" }, say("shelf.more", { count: more })));
    redrawn(this.#list, shown.length ? shown : [make("li", { className: "faint" }, say("shelf.none"))]);
    redrawn(this.#tray, [...this.#added].map((added) => this.#progress(added)));
  }

  /** @param {Added} added */
  #progress(added) {
    const source = this.#sources.get(added.id ?? "");
    const isFailed = added.error !== undefined || source?.state === "failed";
    const isReady = source?.state === "ready";
    const bar = make("progress", { max: 1 });
    if (!source && added.share !== undefined && added.share < 1) bar.value = added.share;
    bar.ariaLabel = added.name;
    const dismiss = make("button", { type: "button", className: "plain", value: added.key }, "✕");
    dismiss.ariaLabel = say("tray.dismiss", { name: added.name });
    const told = make("span", { className: isFailed ? "bad" : "faint", dir: "auto" }, stateOf(added, source));
    const item = make("li", {}, make("bdi", { className: "name", title: added.name }, added.name), told);
    item.append(...(isFailed || isReady ? [dismiss] : [bar]));
    return item;
  }

  /** @param {Element | null} button */
  #dismiss(button) {
    for (const added of this.#added) if (added.key === button?.getAttribute("value")) this.#added.delete(added);
    this.#later();
    by("question").focus();
  }

  #takeDrops() {
    const target = by("drop");
    const isFile = (/** @type {DragEvent} */ { dataTransfer }) => dataTransfer?.types.includes("Files") ?? false;
    addEventListener("dragenter", (event) => (target.hidden = !isFile(event)));
    addEventListener("dragover", (event) => isFile(event) && event.preventDefault());
    addEventListener("dragleave", ({ relatedTarget }) => (target.hidden ||= relatedTarget === null));
    addEventListener("drop", (event) => {
      target.hidden = true;
      if (!isFile(event)) return;
      event.preventDefault();
      this.addFiles([...(event.dataTransfer?.files ?? [])]);
    });
  }

  /** @param {ClipboardEvent} event */
  #pasted(event) {
    const files = [...(event.clipboardData?.files ?? [])];
    const text = event.clipboardData?.getData("text/plain").trim() ?? "";
    if (files.length) this.addFiles(files);
    else if (!isAddress(text) || isWritten(event.target)) return;
    else this.addUrl(text);
    event.preventDefault();
  }
}

/** A list with these entries; one that is the same stays, and so does the focus in it. @param {HTMLElement} list @param {HTMLElement[]} entries */
function redrawn(list, entries) {
  const known = [...list.children];
  entries.forEach((entry, at) => {
    if (!known[at]) list.append(entry);
    else if (!known[at].isEqualNode(entry)) known[at].replaceWith(entry);
  });
  for (const node of known.slice(entries.length)) node.remove();
}

/** Whether a person is writing there: then text belongs to what is written, but for an address alone in the question.
 * @param {EventTarget | null} target */
function isWritten(target) {
  if (target instanceof HTMLTextAreaElement) return target.value !== "";
  return target instanceof HTMLInputElement;
}

/** @param {string} text */
const isAddress = (text) => /^https?:\/\/\S+$/i.test(text) && URL.canParse(text);

/** @param {Source} source */
function entry(source) {
  const { id, name, state, pages, reason } = source;
  const properties = { type: "button", className: "plain name", value: id, title: name, disabled: state !== "ready" };
  const open = make("button", properties, make("bdi", {}, name));
  const ready = pages && pages > 1 ? say("shelf.pages", { count: pages }) : "";
  const told = state === "ready" ? ready : say(`source.${state}`, { reason: reason ?? "" });
  return make("li", { className: state }, open, make("span", { className: state === "failed" ? "bad" : "faint", dir: "auto" }, told));
}

/** @param {Added} added @param {Source | undefined} source */
function stateOf({ share, error }, source) {
  if (error !== undefined) return say("source.failed", { reason: error });
  if (source) return say(`source.${source.state}`, { reason: source.reason ?? "" });
  if (share === undefined) return say("source.fetching");
  return say("source.sending", { percent: share.toLocaleString(undefined, { style: "percent" }) });
}

/** @param {string} id */
const by = (id) => /** @type {HTMLElement} */ (document.getElementById(id));
