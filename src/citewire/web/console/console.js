// @ts-check
// The console: all answers with their verdicts as they come, any of them at any time, sources, rules.

import "./words.js";
import "../elements.js";
import { make } from "../dom.js";
import { say } from "../words.js";
import { Answers } from "./answers.js";
import { ask } from "./api.js";
import { Documents } from "./documents.js";
import { Filters, filters } from "./filters.js";
import { link } from "./parts.js";
import { Past } from "./past.js";
import { Plot } from "./plot.js";
import { onRoute, route } from "./route.js";
import { Rules } from "./rules.js";

/** @typedef {import("./route.js").Route} Route */

const VIEWS = ["", "sources", "rules"];
// Milliseconds for which news are told.
const NEWS = 5000;

/** @param {string} id */
const get = (id) => /** @type {HTMLElement} */ (document.getElementById(id));

const bar = new Filters();
const plot = new Plot();
const past = new Past();
const answers = new Answers(seen, live);
const documents = new Documents();
const rules = new Rules();
const columns = make("div", { className: "columns" }, answers.node, past.node);
const overview = make("div", { className: "overview" }, bar.node, plot.node, columns);

/** @param {import("./api.js").ThreadAnswers[]} threads @param {boolean} areNews */
function seen(threads, areNews) {
  bar.offer("source", threads.flatMap((thread) => thread.answers.flatMap((answer) => answer.sources)));
  bar.offer("agent", threads.flatMap((thread) => thread.answers.map((answer) => answer.agent)));
  if (!areNews) return;
  plot.refresh();
  for (const { threadId } of threads) past.changed(threadId);
}

/** @type {ReturnType<typeof setTimeout> | undefined} */
let calm;

/** @param {string} words @param {boolean} isLive */
function live(words, isLive) {
  get("live").textContent = words;
  get("live").classList.toggle("on", isLive);
  clearTimeout(calm);
  if (isLive) calm = setTimeout(() => (get("live").textContent = say("live.on")), NEWS);
}

/** @param {Route} now */
function navigation({ view }) {
  const links = VIEWS.map((name) => {
    const node = link({ view: name, thread: "", answer: "", at: "", document: "", page: "" }, {}, say(`view.${name || "answers"}`));
    if (name === view) node.setAttribute("aria-current", "page");
    return node;
  });
  get("views").replaceChildren(...links, make("a", { href: "./" }, say("view.chat")));
}

/** @param {Route} now @param {Route} [before] */
function draw(now, before) {
  navigation(now);
  const view = now.view === "sources" ? documents.node : now.view === "rules" ? rules.node : overview;
  const main = get("main");
  const isOther = view.parentNode !== main;
  if (isOther) main.replaceChildren(view);
  if (now.view === "sources") documents.draw();
  if (now.view === "rules" && isOther) rules.draw();
  if (view !== overview) return;
  bar.draw();
  past.draw();
  answers.choose();
  const isNarrower = !before || Object.entries(filters()).some(([name, value]) => before[name] !== value);
  if (isNarrower) answers.open();
  if (isNarrower || isOther || before?.bucket !== now.bucket) plot.load();
}

get("what").textContent = say("console");
get("views").ariaLabel = say("console.views");
onRoute(draw);
draw(route());
// Names to choose from, of sources that nobody has cited yet too; without them the list says what is there.
ask("sources").then(({ sources }) => bar.offer("source", sources.map((/** @type {any} */ { name }) => name)), () => {});
