// @ts-check
// A thread as its user saw it, now or after any step of its history, with who looked at its citations.

import { make } from "../dom.js";
import { isVerdict } from "../verdict.js";
import { isPosted } from "../view.js";
import { say } from "../words.js";
import { ask, part, target, trouble } from "./api.js";
import { button, chip, clock, link, note, problem, table, unseen } from "./parts.js";
import { go, route } from "./route.js";

/** @typedef {import("./api.js").OnRecord} OnRecord */
/** @typedef {import("./api.js").Look} Look */
/** @typedef {import("./api.js").Step} Step */

// Milliseconds: while dragging through a history, only the end of each move is shown.
const SETTLE = 80;

export class Past {
  #time = make("input", { type: "range", min: "0", step: "1", ariaLabel: say("past.time") });
  #said = make("output", { className: "note" });
  #buttons = {
    first: button("⇤", () => this.#step(0), { ariaLabel: say("past.first"), title: say("past.first") }),
    before: button("◀", () => this.#step(this.#at - 1), { ariaLabel: say("past.before"), title: say("past.before") }),
    after: button("▶", () => this.#step(this.#at + 1), { ariaLabel: say("past.after"), title: say("past.after") }),
    now: button(say("past.now"), () => this.#step(this.#steps.length - 1)),
  };
  #head = make("div", { className: "head" });
  #stepper = this.#made();
  #talk = make("div", { className: "talk" });
  #record = make("section", { className: "record" });
  #trouble = make("div");
  /** By message. @type {Map<string, {node: HTMLElement, give: (message: any, state: any, isOpen: boolean) => void}>} */
  #messages = new Map();
  /** @type {Step[]} */
  #steps = [];
  /** @type {OnRecord[]} */
  #citations = [];
  #thread = "";
  #at = 0;
  #loading = new AbortController();
  /** @type {ReturnType<typeof setTimeout> | undefined} */
  #timer;

  constructor() {
    this.#time.addEventListener("input", () => this.#step(Number(this.#time.value)));
    this.node = make("section", { className: "past", ariaLabel: say("past.chosen") });
    this.draw();
  }

  #made() {
    const { first, before, after, now } = this.#buttons;
    const moves = make("div", { className: "moves" }, first, before, this.#time, after, now);
    return make("div", { className: "stepper", role: "group", ariaLabel: say("past.time") }, moves, this.#said);
  }

  /** Show what the address says. */
  draw() {
    const { thread, at } = route();
    this.node.classList.toggle("open", Boolean(thread));
    if (!thread) {
      this.#thread = "";
      this.node.replaceChildren(make("p", { className: "note pick" }, say("past.pick")));
    } else if (thread !== this.#thread) {
      this.#open(thread);
    } else if (this.#steps.length && Number(at || this.#steps.at(-1)?.n) !== this.#steps[this.#at].n) {
      this.#seek(at);
      this.#show();
    } else {
      this.#choose();
    }
  }

  /** There is more in a thread. @param {string} thread */
  async changed(thread) {
    if (thread === this.#thread) await this.#load();
  }

  /** @param {string} thread */
  #open(thread) {
    this.#thread = thread;
    this.#steps = [];
    this.#messages.clear();
    this.#talk.replaceChildren();
    this.#record.replaceChildren();
    this.#said.textContent = say("loading");
    const back = link({ thread: "", answer: "", at: "" }, { className: "back" }, `← ${say("past.back")}`);
    this.#head.replaceChildren(back, make("h2", { dir: "auto" }, `${say("past.thread")} ${thread}`));
    this.node.replaceChildren(this.#head, this.#stepper, this.#trouble, this.#talk, this.#record);
    this.#load();
  }

  async #load() {
    const thread = this.#thread;
    try {
      const record = await ask(`threads/${part(thread)}/record`);
      if (thread !== this.#thread) return;
      this.#steps = record.steps;
      this.#citations = record.citations;
      this.#seek(route().at);
      await this.#show();
    } catch (error) {
      if (thread === this.#thread) this.#fail(error);
    }
  }

  /** @param {any} error */
  #fail(error) {
    this.#said.textContent = "";
    const isGone = error?.status === 404;
    this.#trouble.replaceChildren(problem(isGone ? say("past.gone") : trouble(error), isGone ? undefined : () => this.#load()));
  }

  /** Be at the last step that is not after a row. @param {string} at */
  #seek(at) {
    const last = this.#steps.length - 1;
    const found = at ? this.#steps.findLastIndex(({ n }) => n <= Number(at)) : last;
    this.#at = Math.max(0, found);
    this.#time.max = String(last);
  }

  /** Go to a step; the last is now, and stays now as more comes. @param {number} to */
  #step(to) {
    if (!this.#steps[to]) return;
    this.#at = to;
    this.#tell();
    clearTimeout(this.#timer);
    this.#timer = setTimeout(() => {
      go({ at: to === this.#steps.length - 1 ? "" : String(this.#steps[to].n) }, { quietly: true });
      this.#show();
    }, SETTLE);
  }

  #tell() {
    const step = this.#steps[this.#at];
    const last = this.#steps.length - 1;
    const name = say(`step.${step.what}`);
    const what = name.startsWith("step.") ? step.what : name;
    const words = say("past.step", { time: clock(step.at), what, step: this.#at + 1, steps: this.#steps.length });
    this.#said.textContent = words;
    this.#time.value = String(this.#at);
    this.#time.setAttribute("aria-valuetext", words);
    const { first, before, after, now } = this.#buttons;
    // A focused button stays, so that keyboard users keep their place.
    for (const one of [first, before]) one.ariaDisabled = String(this.#at === 0);
    for (const one of [after, now]) one.ariaDisabled = String(this.#at === last);
  }

  async #show() {
    this.#loading.abort();
    const { signal } = (this.#loading = new AbortController());
    const { n } = this.#steps[this.#at];
    const at = this.#at === this.#steps.length - 1 ? undefined : n;
    this.#tell();
    try {
      const view = await ask(target(`threads/${part(this.#thread)}`, { at }), { signal });
      this.#trouble.replaceChildren(...(view.error ? [problem(say("past.failed", { error: String(view.error) }))] : []));
      this.#draw(view);
    } catch (error) {
      if (!signal.aborted) this.#fail(error);
    }
  }

  /** @param {any} view */
  #draw(view) {
    const shown = view.messages.filter((/** @type {any} */ one) => one.role === "user" || (one.role === "assistant" && one.content));
    const ids = new Set(shown.map((/** @type {any} */ { id }) => String(id)));
    for (const [id, { node }] of this.#messages) {
      if (ids.has(id)) continue;
      node.remove();
      this.#messages.delete(id);
    }
    shown.forEach((/** @type {any} */ message, /** @type {number} */ at) => {
      const id = String(message.id);
      const known = this.#messages.get(id) ?? bubble(message, `past-${at}-${id.length}`);
      this.#messages.set(id, known);
      if (this.#talk.children[at] !== known.node) this.#talk.insertBefore(known.node, this.#talk.children[at] ?? null);
      known.give(message, view.state, view.status === "running" && at === shown.length - 1);
    });
    if (!shown.length) this.#talk.replaceChildren(make("p", { className: "note" }, say("past.empty")));
    else for (const node of this.#talk.querySelectorAll(":scope > p")) node.remove();
    this.#choose();
  }

  /** Mark the answer that was asked for, and say what is on record about it. */
  #choose() {
    const answers = [...this.#messages].filter(([, { node }]) => node.classList.contains("assistant")).map(([id]) => id);
    const wanted = route().answer || (answers.at(-1) ?? "");
    for (const [id, { node }] of this.#messages) node.classList.toggle("chosen", id === wanted && answers.length > 1);
    const n = this.#steps[this.#at]?.n ?? 0;
    const own = this.#citations.filter((one) => one.message === wanted && Number(/** @type {any} */ (one).n) <= n);
    if (!own.length) return this.#record.replaceChildren();
    const columns = [say("past.citation"), say("past.verdict"), say("past.seen")];
    const rows = make("tbody", {}, ...own.map(recorded));
    this.#record.replaceChildren(make("h3", {}, say("past.record")), table(say("past.record"), columns, rows));
  }
}

/** A message. @param {any} message @param {string} name */
function bubble(message, name) {
  if (message.role === "user") {
    const text = make("p", { dir: "auto" });
    const node = make("article", { className: "user" }, unseen("h3", say("past.asked")), text);
    return { node, give: (/** @type {any} */ given) => void (text.textContent = said(given.content)) };
  }
  const answer = /** @type {any} */ (document.createElement("cite-answer"));
  answer.id = name;
  const [summary, sources] = ["cite-summary", "cite-sources"].map((tag) => {
    const node = document.createElement(tag);
    node.setAttribute("for", name);
    return node;
  });
  const posted = note(say("past.posted"));
  const node = make("article", { className: "assistant" }, unseen("h3", say("past.answered")), posted, answer, summary, sources);
  /** @param {any} given @param {any} state @param {boolean} isOpen */
  const give = (given, state, isOpen) => {
    posted.hidden = !isPosted(given);
    answer.toggleAttribute("streaming", isOpen);
    Object.assign(answer, { message: given, state });
  };
  return { node, give };
}

/** What was said, in text or in parts. @param {any} content */
function said(content) {
  if (!Array.isArray(content)) return typeof content === "string" ? content : "";
  return content.map((each) => String(each?.text ?? "")).join("");
}

/** @param {OnRecord} one */
function recorded(one) {
  const { cites, verdict } = one;
  const number = cites.citationNumber ? `[${cites.citationNumber}] ` : "";
  const source = verdict?.source ?? cites.title ?? cites.attachmentId ?? cites.url ?? "";
  const place = verdict?.page ? say("source.page", { source: String(source), page: verdict.page }) : String(source);
  const quote = make("p", { dir: "auto" }, number, make("q", {}, one.quote));
  const times = [say("past.cited", { time: clock(one.at) }), ...[...one.earlier, ...(verdict ? [verdict] : [])].map(judged)];
  const looks = one.reviews.length ? one.reviews.map(looked) : [say("past.nobody")];
  const cells = [[quote, note(place)], [chip(verdict ? verdict.status : "pending"), ...times.map((text) => note(text))]];
  return make("tr", {}, ...[...cells, looks.map((text) => note(text))].map((cell) => make("td", {}, ...cell)));
}

/** @param {import("./api.js").Judged} verdict */
const judged = ({ status, at }) =>
  say("past.judged", { status: isVerdict(status) ? say(`status.${status}`) : String(status), time: clock(at) });

/** @param {Look} look */
function looked({ who, event, at, dwellMs }) {
  const seconds = Math.round((dwellMs ?? 0) / 100) / 10;
  const values = { who: who || say("review.somebody"), time: clock(at), event: String(event), seconds };
  const words = say(`review.${event}`, values);
  return words.startsWith("review.") ? say("review.other", values) : words;
}
