// @ts-check
// <cite-summary>: how many citations of an answer have which verdict, the worst first.

import { make } from "./dom.js";
import { Linked } from "./linked.js";
import { STYLES } from "./style.js";
import { SIGNS, counts } from "./verdict.js";
import { say } from "./words.js";

/** @typedef {import("./types.js").AnswerView} AnswerView */

export class CiteSummary extends Linked {
  #list = make("ul");
  #shown = "";

  constructor() {
    super();
    const root = this.attachShadow({ mode: "open" });
    root.adoptedStyleSheets = STYLES.summary;
    root.append(this.#list);
  }

  /** @override @param {AnswerView | null} view */
  draw(view) {
    const counted = counts(view?.cited ?? []);
    const shown = JSON.stringify(counted);
    if (shown === this.#shown) return;
    this.#shown = shown;
    this.#list.ariaLabel = say("summary");
    this.#list.hidden = counted.length === 0;
    this.#list.replaceChildren(
      ...counted.map(({ status, count }) => {
        const sign = make("span", { ariaHidden: "true" }, `${SIGNS[status]} `);
        return make("li", { className: status }, sign, say(`count.${status}`, { count }));
      }),
    );
  }
}
