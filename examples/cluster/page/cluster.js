// Two conversations about one thread, each with a node of its own; and a button that kills the node.

import "./web/elements.js";
import "./web/chat/words.js";
import { Conversation } from "./web/chat/conversation.js";
import { Transcript } from "./web/chat/transcript.js";
import { Client, newId } from "./web/client.js";
import { make } from "./web/dom.js";

// Milliseconds from one look at the cluster to the next.
const EVERY = 1000;
const threadId = location.hash.slice(1) || newId();
// When each event was first seen, in whichever pane.
const seen = new Map();

class Pane {
  #isDue = false;
  #behind = "";
  #cursor = null;
  // Since when the node has been there: what was said before is history.
  #since = performance.now();

  constructor({ name, url }, { key, questions }) {
    this.name = name;
    this.isAlive = true;
    this.node = document.querySelector("template").content.cloneNode(true).firstElementChild;
    this.node.id = name;
    this.conversation = new Conversation(new Client(url, { key }), threadId);
    this.transcript = new Transcript(this.#find(".transcript"));
    this.#find("h2").textContent = name;
    this.#find("h2").append(" ", make("small", {}, new URL(url).host));
    this.#find(".scroll").ariaLabel = this.#find(".transcript").ariaLabel = `What the ${name} node shows`;
    this.#find("textarea").ariaLabel = `Question for the ${name} node`;
    this.#find(".power").onclick = () => this.#power();
    this.#find("form").onsubmit = (event) => this.#submitted(event);
    this.#find("textarea").onkeydown = (event) => {
      if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
      event.preventDefault();
      this.#find("form").requestSubmit();
    };
    const tries = questions.map((text) => make("button", { type: "button", onclick: () => this.ask(text) }, text));
    this.#find(".try").append(...tries.map((button) => make("li", {}, button)));
    this.#find(".transcript").addEventListener("again", ({ detail }) => this.conversation.regenerate(detail));
    this.conversation.addEventListener("change", () => this.#changed());
  }

  ask(text) {
    location.hash = threadId;
    this.conversation.ask(text);
  }

  /** @param {boolean} isAlive */
  look(isAlive) {
    const isBack = isAlive && !this.isAlive;
    this.isAlive = isAlive;
    if (isBack) {
      [this.#since, this.#behind] = [performance.now(), ""];
      this.conversation.leave({ forGood: true }); // it would wait longer before it tries again
    }
    if (isAlive && location.hash) this.conversation.watch();
    this.#later();
  }

  #changed() {
    const { cursor } = this.conversation.thread;
    if (cursor !== null && cursor !== this.#cursor) {
      const first = seen.get(cursor);
      if (first === undefined) seen.set(cursor, { pane: this, at: performance.now() });
      else if (first.pane !== this && first.at > this.#since) this.#behind = ` · ${Math.round(performance.now() - first.at)} ms behind`;
      this.#cursor = cursor;
    }
    for (const pane of panes) if (pane !== this && pane.isAlive && cursor !== null) pane.conversation.watch();
    this.#later();
  }

  #later() {
    if (!this.#isDue) requestAnimationFrame(() => this.#draw());
    this.#isDue = true;
  }

  #draw() {
    this.#isDue = false;
    const { thread, isRunning, connection, isEmpty } = this.conversation;
    this.transcript.draw(thread.view, isRunning && this.isAlive);
    this.node.classList.toggle("dead", !this.isAlive);
    this.#find(".state").textContent = this.isAlive ? alive(connection, isRunning) + this.#behind : "killed";
    this.#find(".power").textContent = this.isAlive ? "Kill" : "Start";
    this.#find(".power").ariaLabel = `${this.isAlive ? "Kill" : "Start"} the ${this.name} node`;
    this.#find(".try").hidden = !isEmpty || isRunning;
    for (const button of this.node.querySelectorAll(".ask, .try button")) button.disabled = isRunning || !this.isAlive;
  }

  async #power() {
    const button = this.#find(".power");
    button.disabled = true;
    const what = this.isAlive ? "kill" : "start";
    await fetch(`nodes/${this.name}/${what}`, { method: "POST", headers: { "X-Cluster": "1" } });
    await look();
    button.disabled = false;
  }

  #submitted(event) {
    event.preventDefault();
    const { question } = event.target.elements;
    if (this.#find(".ask").disabled || !question.value.trim()) return;
    this.ask(question.value);
    question.value = "";
  }

  #find(selector) {
    return this.node.querySelector(selector);
  }
}

function alive(connection, isRunning) {
  if (connection === "retrying" || connection === "lost") return "reconnecting …";
  return isRunning ? "answering" : "ready";
}

const state = async () => (await fetch("cluster.json")).json();

async function look() {
  const { nodes } = await state();
  for (const { name, alive: isAlive } of nodes) panes.find((pane) => pane.name === name)?.look(isAlive);
}

const cluster = await state();
const panes = cluster.nodes.map((node) => new Pane(node, cluster));
document.querySelector("main").append(...panes.map(({ node }) => node));
document.querySelector("#new").onclick = () => location.replace(location.pathname);
await look();
setInterval(() => look().catch(() => {}), EVERY); // who ended the cluster sees it in the terminal
