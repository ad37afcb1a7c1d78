// The page stays where its reader is. Only who is at the end, while an answer comes or a conversation is loaded, is taken
// along.

// Pixels from the end that count as there.
const NEAR = 48;

export class Scroll {
  #isAtEnd = true;
  // Whether a conversation is being loaded, as far as its reader has not begun to read.
  #isLoading = false;
  /** Whether an answer is coming. */
  isComing = false;

  /** @param {HTMLElement} content @param {HTMLButtonElement} latest */
  constructor(content, latest) {
    const look = () => (latest.hidden = this.#distance() < innerHeight / 2);
    addEventListener("scroll", () => {
      this.#isAtEnd = this.#distance() < NEAR;
      look();
    });
    new ResizeObserver(() => {
      if ((this.isComing || this.#isLoading) && this.#isAtEnd) this.toEnd();
      look();
    }).observe(content);
    // Who opens something reads it.
    for (const name of ["toggle", "cite-review"]) content.addEventListener(name, () => (this.#isAtEnd = false), true);
    for (const name of ["wheel", "pointerdown", "keydown"]) addEventListener(name, () => (this.#isLoading = false), { passive: true });
    latest.addEventListener("click", () => this.toEnd());
  }

  /** A conversation is loaded. */
  load() {
    this.#isLoading = true;
    this.toEnd();
  }

  toEnd() {
    this.#isAtEnd = true;
    scrollTo({ top: document.documentElement.scrollHeight, behavior: "instant" });
  }

  #distance() {
    return document.documentElement.scrollHeight - innerHeight - scrollY;
  }
}
