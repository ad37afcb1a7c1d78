// @ts-check
// The list of answers by thread, the latest news first. It goes on by itself as answers come and verdicts change.

import { make } from "../dom.js";
import { say } from "../words.js";
import { ask, target, trouble } from "./api.js";
import { filters } from "./filters.js";
import { VERDICTS, button, link, problem, tally, unseen, when } from "./parts.js";
import { FILTERS, route } from "./route.js";

/** @typedef {import("./api.js").Answer} Answer */
/** @typedef {import("./api.js").ThreadAnswers} ThreadAnswers */

const PAGE = 25;
// Threads in the list that live news may add; who stays for days does not get a longer and longer page.
const MOST = 500;
// Requests that look for answers which fit, before the person is asked whether to go on.
const LOOKS = 10;

export class Answers {
  #list = make("ol", { className: "threads", ariaLabel: say("list") });
  #note = make("p", { className: "note", role: "status" });
  #trouble = make("div");
  #more = button(say("list.more"), () => this.#load(false), { className: "more", hidden: true });
  /** @type {Map<string, {data: ThreadAnswers, node: HTMLElement}>} */
  #threads = new Map();
  #next = "";
  #loading = new AbortController();
  /** @type {EventSource | null} */
  #stream = null;
  /** @param {(threads: ThreadAnswers[], areNews: boolean) => void} seen @param {(words: string, isLive: boolean) => void} live */
  constructor(seen, live) {
    this.#seen = seen;
    this.#live = live;
    const parts = [unseen("h2", say("list")), this.#trouble, this.#list, this.#note, this.#more];
    this.node = make("section", { className: "list" }, ...parts);
  }

  #seen;
  #live;

  /** Begin anew, with what the filters say. */
  open() {
    this.close();
    const stream = (this.#stream = new EventSource(target("answers/events", filters())));
    // The first comes at once, another after an interruption, or when so much happened that some was left out.
    stream.addEventListener("reset", () => {
      this.#live(say("live.on"), true);
      this.#load(true);
    });
    stream.addEventListener("thread", (event) => this.#changed(JSON.parse(event.data)));
    stream.onerror = () => {
      this.#live(say("live.off"), false);
      if (stream.readyState === EventSource.CLOSED) this.#load(true);
    };
  }

  /** Follow no longer. */
  close() {
    this.#stream?.close();
    this.#loading.abort();
  }

  /** Mark the answer that is shown. */
  choose() {
    for (const { data, node } of this.#threads.values()) this.#mark(data, node);
  }

  /** @param {boolean} anew */
  async #load(anew) {
    this.#loading.abort();
    const { signal } = (this.#loading = new AbortController());
    this.#more.hidden = true;
    this.#trouble.replaceChildren();
    if (anew) this.#next = "";
    try {
      await this.#look(anew, signal);
    } catch (error) {
      if (signal.aborted) return;
      this.#note.textContent = "";
      this.#trouble.replaceChildren(problem(trouble(error), () => this.open()));
    }
  }

  /** @param {boolean} anew @param {AbortSignal} signal */
  async #look(anew, signal) {
    /** @type {Set<string>} */
    const found = new Set();
    for (let looks = 0; looks < LOOKS && (looks === 0 || (this.#next && found.size < PAGE)); looks++) {
      if (looks || !this.#threads.size) this.#note.textContent = say(looks ? "list.looking" : "loading");
      const page = await ask(target("answers", { ...filters(), cursor: this.#next, limit: PAGE }), { signal });
      this.#next = page.next ?? "";
      for (const thread of page.threads) {
        found.add(thread.threadId);
        this.#put(thread, false);
      }
      this.#seen(page.threads, false);
    }
    if (anew) for (const name of [...this.#threads.keys()]) if (!found.has(name)) this.#drop(name);
    this.#said();
  }

  #said() {
    this.#more.hidden = !this.#next;
    const isFiltered = FILTERS.some((name) => route()[name]);
    this.#note.textContent = this.#threads.size || this.#next ? "" : say(isFiltered ? "list.none" : "list.empty");
  }

  /** @param {ThreadAnswers} thread */
  #changed(thread) {
    const before = this.#threads.get(thread.threadId)?.data;
    if (thread.answers.length) this.#put(thread, true);
    else this.#drop(thread.threadId);
    this.#said();
    const last = this.#list.lastElementChild;
    if (this.#threads.size > MOST && last instanceof HTMLElement) this.#drop(last.dataset.thread ?? "");
    if (JSON.stringify(before?.answers) === JSON.stringify(thread.answers)) return;
    this.#live(say("live.news", { count: 1 }), true);
    this.#seen([thread], true);
  }

  /** @param {string} name */
  #drop(name) {
    this.#threads.get(name)?.node.remove();
    this.#threads.delete(name);
  }

  /** Show a thread in its place. @param {ThreadAnswers} data @param {boolean} isNews */
  #put(data, isNews) {
    const known = this.#threads.get(data.threadId);
    if (known && JSON.stringify(known.data) === JSON.stringify(data)) return;
    const node = known?.node ?? make("li", { className: "thread" });
    node.dataset.thread = data.threadId;
    node.classList.toggle("news", isNews);
    this.#fill(node, data);
    this.#threads.set(data.threadId, { data, node });
    const others = /** @type {HTMLElement[]} */ ([...this.#list.children]).filter((one) => one !== node);
    const before = others.find((one) => this.#time(one) < (data.updatedAt ?? "")) ?? null;
    // Entries in the right place are not moved, so that readers keep their place and focus.
    if (!node.isConnected || node.nextElementSibling !== before) this.#list.insertBefore(node, before);
  }

  /** When there was news last. @param {HTMLElement} node */
  #time(node) {
    return this.#threads.get(node.dataset.thread ?? "")?.data.updatedAt ?? "";
  }

  /** @param {HTMLElement} node @param {ThreadAnswers} data */
  #fill(node, data) {
    const focused = document.activeElement;
    const hadFocus = focused instanceof HTMLElement && node.contains(focused) ? focused.dataset.answer : undefined;
    const more = data.more ? [make("li", { className: "note" }, say("list.hidden", { count: data.more }))] : [];
    node.replaceChildren(
      make("h3", { dir: "auto" }, say("list.thread", { thread: data.threadId })),
      make("ol", {}, ...data.answers.map((answer) => entry(data.threadId, answer)), ...more),
    );
    this.#mark(data, node);
    if (hadFocus !== undefined) for (const one of links(node)) if (one.dataset.answer === hadFocus) one.focus();
  }

  /** @param {ThreadAnswers} data @param {HTMLElement} node */
  #mark(data, node) {
    const { thread, answer } = route();
    for (const one of links(node)) {
      const isChosen = thread === data.threadId && (answer || data.answers[0].messageId) === one.dataset.answer;
      if (isChosen) one.setAttribute("aria-current", "true");
      else one.removeAttribute("aria-current");
    }
  }
}

/** @param {HTMLElement} node @returns {NodeListOf<HTMLElement>} */
const links = (node) => node.querySelectorAll("a[data-answer]");

/** @param {string} threadId @param {Answer} answer */
function entry(threadId, answer) {
  const worst = VERDICTS.find((status) => answer.verdicts[status]) ?? "";
  const said = make("span", { className: "said", dir: "auto" }, plain(answer.text) || say("list.nothing"));
  const verdicts = worst ? tally(answer.verdicts) : make("span", { className: "note" }, say("list.uncited"));
  const sources = answer.sources.length ? [" · ", answer.sources.join(", ")] : [];
  const about = make("span", { className: "about" }, answer.agent, " · ", when(answer.at), ...sources);
  const node = link({ thread: threadId, answer: answer.messageId, at: "" }, { className: `answer ${worst}` }, said, verdicts, about);
  node.dataset.answer = answer.messageId;
  return make("li", {}, node);
}

/** The words without what mostly marks them up. @param {string} text */
const plain = (text) => text.replace(/\*\*|__|`|^[#>]+ /gm, "").replace(/\s+/g, " ").trim();
