// @ts-check
// What goes with an answer: an element that shows the view of the <cite-answer> that `for` names, or one it is given.

/** @typedef {import("./types.js").AnswerView} AnswerView */
/** @typedef {import("./answer.js").CiteAnswer} CiteAnswer */

export class Linked extends HTMLElement {
  static observedAttributes = ["for"];

  /** @type {CiteAnswer | null} */
  #answer = null;
  /** @type {AnswerView | null} */
  #view = null;
  #seen = (/** @type {Event} */ event) => (this.view = /** @type {CustomEvent} */ (event).detail);

  connectedCallback() {
    this.attributeChangedCallback();
  }

  disconnectedCallback() {
    this.answer = null;
  }

  attributeChangedCallback() {
    const name = this.getAttribute("for");
    if (name && this.isConnected) this.answer = /** @type {Document} */ (this.getRootNode()).getElementById(name);
  }

  /** The answer that this goes with. @type {any} */
  get answer() {
    return this.#answer;
  }

  set answer(answer) {
    this.#answer?.removeEventListener("cite-view", this.#seen);
    this.link(this.#answer, false);
    this.#answer = answer;
    this.#answer?.addEventListener("cite-view", this.#seen);
    this.link(answer, true);
    if (answer?.view) this.view = answer.view;
  }

  /** @type {AnswerView | null} */
  get view() {
    return this.#view;
  }

  set view(view) {
    this.#view = view;
    this.draw(view);
  }

  /** @param {CiteAnswer | null} _answer @param {boolean} _isLinked */
  link(_answer, _isLinked) {}

  /** @param {AnswerView | null} _view */
  draw(_view) {}
}
