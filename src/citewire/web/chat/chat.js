// The chat page: its parts, and what they tell each other. Which conversation is open stands in the address.

import { CiteAnswer, CiteSources } from "../elements.js";
import { proofOf } from "../card.js";
import { Client, newId } from "../client.js";
import { make } from "../dom.js";
import { say } from "../words.js";
import { Composer } from "./composer.js";
import { Conversation } from "./conversation.js";
import { Recent, addressOf } from "./recent.js";
import { Scroll } from "./scroll.js";
import { Shelf } from "./shelf.js";
import { Transcript } from "./transcript.js";
import { Viewer } from "./viewer.js";
import { speak } from "./words.js";

/** @typedef {import("../types.js").Cited} Cited */

/** @param {string} id */
const by = (id) => /** @type {any} */ (document.getElementById(id));

speak(document);
const base = new URL(".", document.baseURI).href.replace(/\/$/, "");
const client = new Client(base);
const transcript = new Transcript(by("transcript"));
const scroll = new Scroll(by("transcript"), by("latest"));
const composer = new Composer(by("ask"));
const recent = new Recent(by("recent"));
const shelf = new Shelf(client);
const viewer = new Viewer(client, base);
let conversation = new Conversation(client, newId());
// Where no conversation is open, this is all that connects the page.
let shelfConnection = /** @type {import("../retry.js").Status} */ ("live");
let isDue = false;
let following = new AbortController();

/** However much comes, the page is drawn once a frame. */
function drawLater() {
  if (!isDue) requestAnimationFrame(draw);
  isDue = true;
}

function draw() {
  isDue = false;
  const { thread, isRunning, problem, connection } = conversation;
  scroll.isComing = isRunning;
  transcript.draw(thread.view, isRunning);
  composer.isRunning = isRunning;
  by("welcome").hidden = !conversation.isEmpty || isRunning || problem !== null || location.hash.length > 1;
  by("new").disabled = conversation.isEmpty && location.hash.length <= 1;
  drawTrouble(isRunning ? null : thread.view.error, problem);
  drawStatus(conversation.isEmpty && !problem ? shelfConnection : connection, problem);
}

/** What went wrong with the answer, or with the conversation. @param {any} error @param {import("../client.js").WireError | null} problem */
function drawTrouble(error, problem) {
  const node = by("trouble");
  // That the server cannot be reached stands in the status line.
  const failed = error && !problem ? say("chat.failed", { error: sentence(error) }) : "";
  const told = problem && !problem.isPassing ? refused(problem) : failed;
  node.hidden = !told;
  if (node.firstElementChild.textContent !== told) node.firstElementChild.textContent = told;
}

/** @param {import("../client.js").WireError} problem */
function refused({ status, message }) {
  if (status === 401) return say("chat.expired");
  return status === 404 ? say("chat.gone") : say("chat.failed", { error: sentence(message) });
}

/** @param {unknown} error */
const sentence = (error) => String(typeof error === "string" ? error : JSON.stringify(error)).replace(/\.$/, "");

/** @param {import("../retry.js").Status} connection @param {import("../client.js").WireError | null} problem */
function drawStatus(connection, problem) {
  const node = by("status");
  const isLost = connection === "lost" && (problem?.isPassing ?? true);
  const told = connection === "live" || (connection === "lost" && !isLost) ? "" : say(`status.${connection}`);
  node.className = connection;
  if (node.firstElementChild.textContent !== told) node.firstElementChild.textContent = told;
  node.lastElementChild.hidden = !isLost;
}

/** Open the conversation that the address names, or a new one. */
function open() {
  const id = decoded(location.hash.slice(1));
  if (id === conversation.thread.id) return;
  conversation.leave({ forGood: true });
  conversation.removeEventListener("change", drawLater);
  transcript.clear();
  conversation = new Conversation(client, id || newId());
  conversation.addEventListener("change", drawLater);
  recent.draw(id);
  if (id) conversation.watch();
  draw();
  scroll.load();
}

/** @param {string} text */
function decoded(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

/** See what happens, as long as the page is seen: a browser has few connections to one server. */
function watch() {
  followSources();
  if (document.hidden) conversation.leave();
  else if (location.hash.length > 1) conversation.watch();
}

function followSources() {
  following.abort();
  following = new AbortController();
  const { signal } = following;
  if (document.hidden) return;
  /** @type {import("../client.js").Following["onStatus"]} */
  const onStatus = (status, error) => {
    shelfConnection = error?.status ? "live" : status;
    drawLater();
  };
  shelf.follow({ signal, onStatus }).catch((error) => {
    if (!signal.aborted) console.warn(error.message);
  });
}

/** @param {string} text */
function ask(text) {
  if (conversation.isRunning) return;
  const { id } = conversation.thread;
  if (conversation.isEmpty) recent.keep(id, text);
  // Nothing is opened by this, as it is open already.
  if (location.hash !== addressOf(id)) history.pushState(null, "", addressOf(id));
  shelf.tidy();
  recent.draw(id);
  conversation.ask(text);
  draw();
  scroll.toEnd();
}

async function listQuestions() {
  const questions = await client.json("/questions.json");
  const buttons = questions.filter((/** @type {unknown} */ one) => typeof one === "string").map((/** @type {string} */ question) =>
    make("li", {}, make("button", { type: "button", dir: "auto", onclick: () => ask(question) }, question)),
  );
  by("questions").replaceChildren(...buttons);
}

/** The proof of a citation is shown here, where its source is at hand; else its link leads there. @param {MouseEvent} event */
function openProof(event) {
  const path = event.composedPath();
  const link = path.find((node) => node instanceof HTMLAnchorElement);
  const host = path.find((node) => node instanceof CiteAnswer || node instanceof CiteSources);
  if (!link || !host || event.button || event.ctrlKey || event.metaKey || event.shiftKey) return;
  const cited = host.view?.cited.find((/** @type {Cited} */ one) => proofOf(one) === link.href);
  const source = shelf.bySha256(cited?.verification?.citewire?.sha256);
  if (!cited || !source) return;
  event.preventDefault();
  viewer.open(source, cited);
}

/** @param {boolean} isOpen */
function setMenu(isOpen) {
  document.body.classList.toggle("menu", isOpen);
  by("menu").ariaExpanded = String(isOpen);
}

composer.addEventListener("ask", (event) => ask(/** @type {CustomEvent} */ (event).detail));
composer.addEventListener("stop", () => conversation.stop());
shelf.addEventListener("open", (event) => viewer.open(/** @type {CustomEvent} */ (event).detail));
by("transcript").addEventListener("again", (/** @type {CustomEvent} */ event) => conversation.regenerate(event.detail));
for (const name of ["trouble", "status"]) by(name).querySelector("button").addEventListener("click", again);
by("new").addEventListener("click", () => {
  location.hash = "";
  setMenu(false);
  composer.focus();
});
by("menu").addEventListener("click", () => setMenu(!document.body.classList.contains("menu")));
by("side").addEventListener("click", (/** @type {Event} */ { target }) => target instanceof Element && target.closest("a, #add") && setMenu(false));
by("transcript").addEventListener("click", openProof);
by("ask").closest("main").addEventListener("click", () => setMenu(false));
document.addEventListener("cite-review", (event) => {
  // What fails here keeps nobody from reading.
  client.review(conversation.thread.id, /** @type {CustomEvent} */ (event).detail).catch(({ message }) => console.warn(message));
});
document.addEventListener("keydown", ({ key }) => {
  if (key !== "Escape") return;
  if (by("side").contains(document.activeElement) && by("menu").checkVisibility()) by("menu").focus();
  setMenu(false);
});
document.addEventListener("visibilitychange", watch);
addEventListener("online", () => by("status").className === "lost" && again());
addEventListener("hashchange", open);

/** The HTTP status with which the server answers for this page; 0 where it cannot be reached. */
const pageStatus = () => fetch(`${base}/`).then(({ status }) => status, () => 0);

async function again() {
  const { problem } = conversation;
  if (problem?.status === 404) return void (location.hash = "");
  // A user who signed in again in another tab continues here; otherwise the page shows how to sign in.
  if (problem?.status === 401 && (await pageStatus()) === 401) return location.reload();
  followSources();
  if (problem || !conversation.isEmpty) await conversation.again();
}

open();
followSources();
listQuestions().catch(({ message }) => console.warn(message));
composer.focus();
