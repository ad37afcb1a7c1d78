// The conversations of this browser, the latest first. The server keeps what was said in them.

import { make } from "../dom.js";
import { say } from "../words.js";

/** @typedef {{id: string, title: string}} Kept */

const KEY = "citewire.conversations";
const MOST = 50;
const LONGEST = 120;

export class Recent {
  #list;
  #current = "";

  /** @param {HTMLElement} list */
  constructor(list) {
    this.#list = list;
    // Another window has asked something.
    addEventListener("storage", ({ key }) => key === KEY && this.draw());
    list.addEventListener("click", ({ target }) => {
      const button = target instanceof Element ? target.closest("button") : null;
      if (button) this.forget(button.value);
    });
  }

  /** @param {string} id @param {string} title What was asked first. */
  keep(id, title) {
    const others = kept().filter((one) => one.id !== id);
    keep([{ id, title: [...title.trim()].slice(0, LONGEST).join("") }, ...others].slice(0, MOST));
    this.draw();
  }

  /** @param {string} id */
  forget(id) {
    keep(kept().filter((one) => one.id !== id));
    this.draw();
  }

  /** @param {string} current The one that is open. */
  draw(current = this.#current) {
    this.#current = current;
    const entries = kept().map(({ id, title }) => {
      const link = make("a", { href: addressOf(id), title }, make("bdi", {}, title));
      if (id === current) link.ariaCurrent = "page";
      const forget = make("button", { type: "button", className: "plain", value: id }, "✕");
      forget.ariaLabel = say("recent.forget", { title });
      return make("li", {}, link, forget);
    });
    this.#list.replaceChildren(...(entries.length ? entries : [make("li", { className: "faint" }, say("recent.none"))]));
  }
}

/** The link to a conversation on this page. @param {string} id */
export const addressOf = (id) => `#${encodeURIComponent(id)}`;

/** What others may have written there. @returns {Kept[]} */
function kept() {
  try {
    const list = JSON.parse(localStorage.getItem(KEY) ?? "[]");
    return Array.isArray(list) ? list.filter((one) => typeof one?.id === "string" && typeof one.title === "string") : [];
  } catch {
    return [];
  }
}

/** @param {Kept[]} list */
function keep(list) {
  try {
    localStorage.setItem(KEY, JSON.stringify(list));
  } catch {
    // A browser that keeps nothing: the list is gone with the page.
  }
}
