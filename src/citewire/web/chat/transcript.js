// What was said, question by question: each with what the agent did for it, folded, and its answers. Nothing that is
// shown is made anew unless it has changed.

import { make } from "../dom.js";
import { isPosted } from "../view.js";
import { say } from "../words.js";
import { Work } from "./work.js";

/** @typedef {import("../types.js").View} View */
/** @typedef {import("../types.js").Message} Message */
/** @typedef {import("../answer.js").CiteAnswer} CiteAnswer */

const UNCITED = "citewire.uncited";

/** Asks for an answer again by an `again` event with the id of its message. */
export class Transcript {
  #node;
  /** @type {Map<string, Turn>} */
  #turns = new Map();
  /** Which question each tool call belongs to. @type {Map<string, string>} */
  #askers = new Map();

  /** @param {HTMLElement} node */
  constructor(node) {
    this.#node = node;
    // The list has to be seen before one can go to an entry in it.
    node.addEventListener("cite-list", ({ target }) => open(target), true);
    node.addEventListener("click", (event) => this.#clicked(event));
  }

  clear() {
    this.#turns.clear();
    this.#askers.clear();
    this.#node.replaceChildren();
  }

  /** @param {View} view @param {boolean} isRunning */
  draw({ messages, toolCalls, state }, isRunning) {
    const groups = turnsOf(messages);
    const last = groups.at(-1)?.id ?? "";
    for (const { id } of toolCalls) if (!this.#askers.has(id)) this.#askers.set(id, last);
    const gone = new Set(this.#turns.keys());
    groups.forEach((group, at) => {
      gone.delete(group.id);
      const turn = this.#turns.get(group.id) ?? new Turn();
      this.#turns.set(group.id, turn);
      const calls = toolCalls.filter(({ id }) => this.#askers.get(id) === group.id);
      turn.draw(group.messages, calls, state, isRunning && group.id === last);
      turn.isLast = group.id === last && !isRunning;
      if (this.#node.children[at] !== turn.node) this.#node.insertBefore(turn.node, this.#node.children[at] ?? null);
    });
    for (const id of gone) {
      this.#turns.get(id)?.node.remove();
      this.#turns.delete(id);
    }
    this.#node.ariaBusy = String(isRunning);
  }

  /** @param {Event} event */
  #clicked({ target }) {
    const button = target instanceof Element ? target.closest("button") : null;
    if (button?.className === "again") this.#node.dispatchEvent(new CustomEvent("again", { detail: button.value }));
    if (button?.className === "uncited") this.#markUncited(button.ariaPressed !== "true");
  }

  /** @param {boolean} isMarked */
  #markUncited(isMarked) {
    sessionStorage.setItem(UNCITED, String(isMarked));
    for (const answer of this.#node.querySelectorAll("cite-answer")) answer.toggleAttribute("uncited", isMarked);
    for (const button of this.#node.querySelectorAll("button.uncited")) button.ariaPressed = String(isMarked);
  }
}

/** A question and what follows it. */
class Turn {
  node = make("article");
  #question = make("div", { className: "question", dir: "auto" });
  #work = new Work();
  #waiting = make("p", { className: "waiting" }, say("chat.waiting"));
  /** @type {Map<string, Answer>} */
  #answers = new Map();

  constructor() {
    const title = make("h2", { className: "unseen" }, say("chat.you"));
    this.node.append(title, this.#question, this.#work.node, this.#waiting);
  }

  /** @param {Message[]} messages @param {readonly import("../types.js").ToolCall[]} calls @param {any} state @param {boolean} isRunning */
  draw(messages, calls, state, isRunning) {
    const asked = messages.filter(({ role }) => role === "user").map(textOf).join("\n\n");
    if (this.#question.textContent !== asked) this.#question.textContent = asked;
    this.#question.hidden = !asked;
    this.#work.draw(messages, calls);
    const answers = messages.filter((message) => message.role === "assistant" && textOf(message));
    const gone = new Set(this.#answers.keys());
    answers.forEach((message, at) => {
      gone.delete(message.id);
      const answer = this.#answers.get(message.id) ?? new Answer(message.id);
      if (!answer.node.isConnected) this.node.append(answer.node);
      this.#answers.set(message.id, answer);
      answer.draw(message, state, isRunning && at === answers.length - 1);
    });
    for (const id of gone) {
      this.#answers.get(id)?.node.remove();
      this.#answers.delete(id);
    }
    this.#waiting.hidden = !isRunning || answers.length > 0;
  }

  /** Only the last answer can be asked for again. */
  set isLast(/** @type {boolean} */ isLast) {
    const last = [...this.#answers.values()].at(-1);
    for (const answer of this.#answers.values()) answer.again.hidden = !isLast || answer !== last;
  }
}

/** One answer, with the list of what it cites. */
class Answer {
  node = make("section", { className: "answer" });
  again = make("button", { type: "button", className: "again", hidden: true }, say("chat.again"));
  #answer = /** @type {CiteAnswer} */ (document.createElement("cite-answer"));
  #posted = make("p", { className: "posted", hidden: true }, say("chat.posted"));
  #sources = make("details", { className: "cited", hidden: true });
  #uncited = make("button", { type: "button", className: "uncited", hidden: true }, say("chat.uncited"));
  /** @type {any[]} */
  #drawn = [];

  /** @param {string} id */
  constructor(id) {
    const [summary, sources] = [document.createElement("cite-summary"), document.createElement("cite-sources")];
    Object.assign(summary, { answer: this.#answer });
    Object.assign(sources, { answer: this.#answer });
    this.again.value = id;
    const isMarked = sessionStorage.getItem(UNCITED) === "true";
    this.#answer.toggleAttribute("uncited", isMarked);
    this.#uncited.ariaPressed = String(isMarked);
    this.#sources.append(make("summary", {}, summary), sources);
    this.#answer.addEventListener("cite-view", (event) => {
      this.#sources.hidden = /** @type {CustomEvent} */ (event).detail.cited.length === 0;
    });
    const title = make("h2", { className: "unseen" }, say("chat.answer"));
    this.node.append(title, this.#posted, this.#answer, this.#sources, make("p", { className: "actions" }, this.#uncited, this.again));
  }

  /** @param {Message} message @param {any} state @param {boolean} isStreaming */
  draw(message, state, isStreaming) {
    const { id } = message;
    const drawn = [message, state?.deepcitation?.messages?.[id], state?.citations?.[id], isStreaming];
    if (drawn.every((one, at) => one === this.#drawn[at])) return;
    this.#drawn = drawn;
    this.#answer.toggleAttribute("streaming", isStreaming);
    Object.assign(this.#answer, { message, state });
    this.#posted.hidden = !isPosted(message);
    this.#uncited.hidden = isStreaming;
  }
}

/** The messages from each question to the next. @param {readonly Message[]} messages */
function turnsOf(messages) {
  /** @type {{id: string, messages: Message[]}[]} */
  const turns = [];
  for (const message of messages) {
    if (message.role === "user" || !turns.length) turns.push({ id: `${turns.length} ${message.id}`, messages: [] });
    turns.at(-1)?.messages.push(message);
  }
  return turns;
}

/** @param {Message} message */
function textOf({ content }) {
  if (!Array.isArray(content)) return typeof content === "string" ? content : "";
  return content.map((part) => (typeof part?.text === "string" ? part.text : "")).join("");
}

/** @param {EventTarget | null} target */
function open(target) {
  const sources = target instanceof Element ? target.closest(".answer")?.querySelector("details.cited") : null;
  sources?.setAttribute("open", "");
}
