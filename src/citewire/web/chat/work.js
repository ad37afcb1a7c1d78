// What the agent did for an answer, folded: what it thought, and the tools it used.

import { make } from "../dom.js";
import { isObject } from "../patch.js";
import { say } from "../words.js";

/** @typedef {import("../types.js").Message} Message */
/** @typedef {import("../types.js").ToolCall} ToolCall */
/** What is shown of a step: its line, and what is under it by name.
 * @typedef {{id: string, line: string, isRunning: boolean, under: [string, string][]}} Step */

// Characters that are shown of a result, which may be a whole document.
const MOST = 20_000;

export class Work {
  node = make("div", { className: "work" });
  /** @type {Map<string, {of: string, node: HTMLDetailsElement}>} */
  #steps = new Map();

  /** @param {Message[]} messages Those of one question. @param {readonly ToolCall[]} calls That are not in the messages. */
  draw(messages, calls) {
    const nodes = [...thoughts(messages), ...uses(messages, calls)].map((step) => this.#step(step));
    if (nodes.some((node, at) => node !== this.node.children[at])) this.node.replaceChildren(...nodes);
  }

  /** @param {Step} step */
  #step({ id, line, isRunning, under }) {
    const of = JSON.stringify([line, isRunning, under]);
    const known = this.#steps.get(id);
    if (known?.of === of) return known.node;
    const node = known?.node ?? make("details");
    node.classList.toggle("running", isRunning);
    const told = under.flatMap(([name, text]) => [...(name ? [make("h3", {}, name)] : []), make("pre", { dir: "auto", tabIndex: 0 }, text)]);
    node.replaceChildren(make("summary", { dir: "auto" }, line), ...told);
    this.#steps.set(id, { of, node });
    return node;
  }
}

/** @param {Message[]} messages @returns {Step[]} */
function thoughts(messages) {
  return messages.flatMap(({ id, role, content, reasoning = role === "reasoning" ? content : "", reasoningDurationMs }) => {
    if (typeof reasoning !== "string" || !reasoning) return [];
    const count = Math.round(Number(reasoningDurationMs) / 1000);
    const line = count > 0 ? say("work.seconds", { count }) : say("work.thought");
    return [{ id: `thought ${id}`, line, isRunning: false, under: [["", reasoning]] }];
  });
}

/** Calls that came in events, or in messages after a reload. @param {Message[]} messages
 * @param {readonly ToolCall[]} calls @returns {Step[]} */
function uses(messages, calls) {
  const results = new Map(messages.filter(({ role }) => role === "tool").map(({ toolCallId, content }) => [toolCallId, content]));
  const made = messages.flatMap(({ toolCalls }) => (Array.isArray(toolCalls) ? toolCalls.filter(isObject) : []));
  /** @type {Map<string, {name: unknown, args: unknown, result: unknown, isRunning: boolean}>} */
  const known = new Map();
  for (const { id, function: used } of made) {
    if (isObject(used)) known.set(String(id), { name: used.name, args: used.arguments, result: results.get(id), isRunning: false });
  }
  for (const { id, name, args, result = results.get(id), status } of calls) {
    known.set(id, { name, args, result, isRunning: status === "running" && result === undefined });
  }
  return [...known].map(([id, { name, args, result, isRunning }]) => ({
    id: `call ${id}`,
    line: say(isRunning ? "work.calling" : "work.call", { name: String(name) }),
    isRunning,
    under: /** @type {[string, string][]} */ ([
      [say("work.given"), readable(args)],
      ...(result === undefined ? [] : [[say("work.result"), readable(result)]]),
    ]),
  }));
}

/** JSON with its lines broken, all else as it is. @param {unknown} value */
function readable(value) {
  let shown = value;
  try {
    if (typeof value === "string") shown = JSON.parse(value);
  } catch {
    // It is text.
  }
  const text = typeof shown === "string" ? shown : (JSON.stringify(shown, null, 2) ?? "");
  return text.length > MOST ? `${text.slice(0, MOST)} …` : text;
}
