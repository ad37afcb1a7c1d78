// @ts-check
// The filters of the list, and the files with what they leave.

import { make } from "../dom.js";
import { say } from "../words.js";
import { target } from "./api.js";
import { VERDICTS, button } from "./parts.js";
import { FILTERS, go, route } from "./route.js";

const FORMATS = ["jsonl", "csv", "html"];
const NARROW = matchMedia("(max-width: 34rem)");

/** What the filters say, as the server is asked. */
export function filters() {
  const now = route();
  return Object.fromEntries(FILTERS.map((name) => [name, now[name]]));
}

export class Filters {
  #status = make("select", { name: "status" }, make("option", { value: "" }, say("filter.status.any")),
    ...VERDICTS.map((status) => make("option", { value: status }, say(`status.${status}`))));
  #source = named("source");
  #agent = named("agent");
  #since = make("input", { type: "datetime-local", name: "since" });
  #until = make("input", { type: "datetime-local", name: "until" });
  #clear = button(say("filter.clear"), () => go({ status: "", source: "", agent: "", since: "", until: "" }));
  #files = FORMATS.map((format) =>
    make("a", { className: "file", title: say(`export.${format}`), download: "" }, format.toUpperCase()));
  /** What can be chosen, by filter. @type {Record<string, Set<string>>} */
  #known = { source: new Set(), agent: new Set() };

  constructor() {
    const form = make("form", { className: "filters", ariaLabel: say("filter") },
      labelled("filter.status", this.#status), labelled("filter.source", ...this.#source),
      labelled("filter.agent", ...this.#agent), labelled("filter.since", this.#since),
      labelled("filter.until", this.#until), this.#clear);
    form.addEventListener("submit", (event) => event.preventDefault());
    form.addEventListener("change", () => go({
      status: this.#status.value, source: this.#source[0].value, agent: this.#agent[0].value,
      since: moment(this.#since.value), until: moment(this.#until.value),
    }));
    const files = make("p", { className: "files", title: say("export.hint") }, make("span", {}, say("export")), ...this.#files);
    const row = make("div", { className: "row" }, form, files);
    this.node = make("details", { className: "filter" }, make("summary", {}, say("filter")), row);
    // Where there is room it is always open.
    const fold = () => (this.node.open = !NARROW.matches || FILTERS.some((name) => filters()[name]));
    NARROW.addEventListener("change", fold);
    fold();
    this.draw();
  }

  /** Show what the address says. */
  draw() {
    const now = filters();
    this.#status.value = now.status;
    this.#source[0].value = now.source;
    this.#agent[0].value = now.agent;
    this.#since.value = local(now.since);
    this.#until.value = local(now.until);
    this.#clear.hidden = FILTERS.every((name) => !now[name]);
    const { agent, ...others } = now;
    this.#files.forEach((file, at) => (file.href = target("audit", { format: FORMATS[at], ...others, client: agent })));
  }

  /** Offer these as well. @param {"source" | "agent"} name @param {Iterable<string>} values */
  offer(name, values) {
    const [known, list] = [this.#known[name], (name === "source" ? this.#source : this.#agent)[1]];
    for (const value of values) {
      if (known.has(value) || known.size > 500) continue;
      known.add(value);
      list.append(make("option", { value }));
    }
  }
}

/** A field with what can be chosen. @param {string} name @returns {[HTMLInputElement, HTMLDataListElement]} */
function named(name) {
  const field = make("input", { name, type: "search", placeholder: say("filter.any"), autocomplete: "off" });
  field.setAttribute("list", `known-${name}`);
  return [field, make("datalist", { id: `known-${name}` })];
}

/** @param {string} words @param {Node[]} field */
const labelled = (words, ...field) => make("label", {}, make("span", {}, say(words)), ...field);

/** The time in a field, as the address has it. @param {string} value */
const moment = (value) => (value ? new Date(value).toISOString() : "");

/** A time as a field has it, in the zone of the browser. @param {string} at */
function local(at) {
  const date = new Date(at);
  if (!at || Number.isNaN(date.getTime())) return "";
  return new Date(date.getTime() - date.getTimezoneOffset() * 60_000).toISOString().slice(0, 16);
}
