// Where a question is written. Enter asks, Shift+Enter breaks the line.

/** Tells what was asked by an `ask` event, and of `stop`. */
export class Composer extends EventTarget {
  #form;
  #question;
  #send;
  #stop;
  #isRunning = false;

  /** @param {HTMLFormElement} form */
  constructor(form) {
    super();
    this.#form = form;
    this.#question = /** @type {HTMLTextAreaElement} */ (form.elements.namedItem("question"));
    this.#send = /** @type {HTMLButtonElement} */ (form.querySelector("#send"));
    this.#stop = /** @type {HTMLButtonElement} */ (form.querySelector("#stop"));
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      this.#ask();
    });
    this.#question.addEventListener("keydown", (event) => {
      if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
      event.preventDefault();
      this.#ask();
    });
    this.#stop.addEventListener("click", () => this.dispatchEvent(new Event("stop")));
  }

  focus() {
    this.#question.focus();
  }

  /** While an answer comes it can be stopped, and the next question be written. */
  set isRunning(/** @type {boolean} */ isRunning) {
    if (isRunning === this.#isRunning) return;
    this.#isRunning = isRunning;
    const hadFocus = this.#form.contains(document.activeElement);
    [this.#send.hidden, this.#stop.hidden] = [isRunning, !isRunning];
    if (hadFocus && document.activeElement === document.body) this.focus();
  }

  #ask() {
    const text = this.#question.value.trim();
    if (!text || this.#isRunning) return;
    this.#question.value = "";
    this.dispatchEvent(new CustomEvent("ask", { detail: text }));
  }
}
