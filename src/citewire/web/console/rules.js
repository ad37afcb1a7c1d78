// @ts-check
// The rules of channels: what is so, and who says so. What is said here holds at once.

import { make } from "../dom.js";
import { say } from "../words.js";
import { ask, part, trouble } from "./api.js";
import { button, note, problem, table } from "./parts.js";

/** @typedef {{pattern: string, mutable: boolean, retention: string, said: "call" | "settings" | null}} Rule */

export class Rules {
  #rows = make("tbody");
  #note = make("div", { role: "status" });
  #pattern = make("input", { name: "pattern", required: true, placeholder: "chat:*", autocomplete: "off" });
  #fields = fields("", { mutable: true, retention: "none" });

  constructor() {
    const columns = ["pattern", "mutable", "retention", "said", "do"].map((name) => say(`rules.${name}`));
    const form = make("form", { className: "add" },
      make("h3", {}, say("rules.add")), labelled("rules.pattern", this.#pattern),
      labelled("rules.mutable", this.#fields.mutable), labelled("rules.retention", this.#fields.retention),
      make("button", {}, say("rules.save")));
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      this.#save(this.#pattern.value.trim(), this.#fields).then((isKept) => isKept && form.reset());
    });
    this.node = make("section", { className: "rules" },
      make("h2", {}, say("rules")), note(say("rules.about")), this.#note, table(say("rules"), columns, this.#rows), form);
  }

  /** Show what is so. */
  async draw() {
    try {
      const { rules } = await ask("rules");
      this.#rows.replaceChildren(...rules.map((/** @type {Rule} */ rule) => this.#row(rule)));
    } catch (error) {
      this.#fail(error);
    }
  }

  /** @param {Rule} rule */
  #row(rule) {
    const { pattern } = rule;
    const own = fields(pattern, rule);
    const save = button(say("rules.save"), () => this.#save(pattern, own));
    const remove = button(say("rules.remove"), () => this.#remove(pattern), { hidden: rule.said !== "call" });
    save.ariaLabel = say("rules.save.of", { pattern });
    remove.ariaLabel = say("rules.remove.of", { pattern });
    const moves = make("span", { className: "moves" }, save, remove);
    const cells = [own.mutable, own.retention, say(`rules.said.${rule.said ?? "none"}`), moves];
    const name = make("th", { scope: "row" }, make("code", { dir: "auto" }, pattern));
    return make("tr", {}, name, ...cells.map((cell) => make("td", {}, cell)));
  }

  /** @param {string} pattern @param {ReturnType<typeof fields>} given */
  async #save(pattern, { mutable, retention }) {
    const body = { mutable: mutable.checked, retention: retention.value.trim() || "none" };
    return this.#do(() => ask(`rules/${part(pattern)}`, { method: "PUT", body }), say("rules.saved", { pattern }));
  }

  /** @param {string} pattern */
  #remove(pattern) {
    return this.#do(() => ask(`rules/${part(pattern)}`, { method: "DELETE" }), say("rules.removed", { pattern }));
  }

  /** Whether it was done. @param {() => Promise<any>} work @param {string} words */
  async #do(work, words) {
    try {
      await work();
      this.#note.replaceChildren(make("p", { className: "done" }, words));
      await this.draw();
      return true;
    } catch (error) {
      this.#fail(error);
      return false;
    }
  }

  /** @param {unknown} error */
  #fail(error) {
    this.#note.replaceChildren(problem(trouble(error)));
  }
}

/** What a rule can say. @param {string} pattern @param {{mutable: boolean, retention: string}} rule */
function fields(pattern, { mutable, retention }) {
  const name = (/** @type {string} */ what) => (pattern ? { ariaLabel: say(`rules.${what}.of`, { pattern }) } : {});
  return {
    mutable: make("input", { type: "checkbox", defaultChecked: mutable, ...name("mutable") }),
    retention: make("input", {
      defaultValue: retention, size: 8, title: say("rules.retention.hint"), autocomplete: "off", ...name("retention"),
    }),
  };
}

/** @param {string} words @param {Node} field */
const labelled = (words, field) => make("label", {}, make("span", {}, say(words)), field);
