// @ts-check
// The plain page: asks the server a question, shows the answer as it streams, and what became of each citation in it.
// Whatever comes over the wire is foreign: it becomes text, never markup.

import { events, newId, request, take } from "./thread.js";

/** @typedef {import("./thread.js").Message} Message */
/** @typedef {[of: any[], make: () => Node]} Piece What a node is made of, and how. */
/** @typedef {{id: string, label: string, status: string, citation: any, verification: any}} Cited */

/** Sign and word of each status, the worst first. @type {Record<string, [string, string]>} */
const VERDICTS = {
  altered: ["≠", "Altered"],
  missed: ["✗", "Not found"],
  partial: ["≈", "Partial"],
  skipped: ["–", "Not checked"],
  pending: ["…", "Being checked"],
  verified: ["✓", "Verified"],
};
const WORST_FIRST = Object.keys(VERDICTS);
const MARKER = /\[(\d{1,6}(?: ?, ?\d{1,6})*|\^[^[\]\s]{1,200})\]/g;
const PICTURE = /^data:image\/(?:avif|jpeg|png|webp);base64,/;
const POLL = 1000;

const kept = sessionStorage.getItem("thread");
/** @type {import("./thread.js").Thread} */
const thread = { id: kept ?? newId(), runId: "", messages: [], state: {} };

/** @param {string} id @returns {any} */
const get = (id) => document.getElementById(id);

/** @param {string} name @param {Record<string, any>} properties @param {(Node | string)[]} content */
function element(name, properties = {}, ...content) {
  const node = Object.assign(document.createElement(name), properties);
  node.append(...content);
  return node;
}

/** Give a node these children. Those that stay as they were are left alone: focus, selection and pictures stay.
 * @param {any} parent @param {Piece[]} pieces */
function fill(parent, pieces) {
  pieces.forEach(([of, make], at) => {
    const old = parent.childNodes[at];
    if (old && old.of?.length === of.length && of.every((part, n) => part === old.of[n])) return;
    const node = Object.assign(make(), { of });
    if (old) old.replaceWith(node);
    else parent.append(node);
  });
  while (parent.childNodes.length > pieces.length) parent.lastChild.remove();
}

/** What a message cites, in the order of its numbers. @param {Message} message @returns {Cited[]} */
function citedBy({ id }) {
  const { citations = {}, verifications = {} } = thread.state?.deepcitation?.messages?.[id] ?? {};
  const entries = Object.values(thread.state?.citations?.[id] ?? {});
  const labels = new Map(entries.map((entry) => [entry?.extra?.citewire?.key, entry.id]));
  return Object.entries(citations)
    .map(([key, citation], at) => {
      const label = labels.get(key);
      const verification = verifications[key];
      const status = verification?.citewire?.status ?? verification?.status ?? "pending";
      return {
        id: `cited-${id}-${key}`,
        label: String(citation.citationNumber ?? (label === key ? undefined : label) ?? at + 1),
        status: Object.hasOwn(VERDICTS, status) ? status : "skipped",
        citation,
        verification,
      };
    })
    .sort((one, other) => one.label.localeCompare(other.label, "en", { numeric: true }));
}

/** The text, with the markers of known citations as chips. @param {string} text @param {Cited[]} cited @returns {Piece[]} */
function answered(text, cited) {
  return text.split(MARKER).flatMap((part, at) => {
    if (at % 2 === 0) return [[[part], () => new Text(part)]];
    const known = part.split(/ ?, ?/).map((label) => [label, cited.filter((one) => one.label === label.replace(/^\^/, ""))]);
    if (!known.every(([, found]) => found.length)) return [[[`[${part}]`], () => new Text(`[${part}]`)]];
    return known.map(([label, found]) => chip(/** @type {any} */ (label), /** @type {any} */ (found)));
  });
}

/** One number may stand for several citations: the worst of them is shown. @param {string} label @param {Cited[]} found @returns {Piece} */
function chip(label, found) {
  const [{ id, status }] = [...found].sort((one, other) => rank(one) - rank(other));
  const [sign, word] = VERDICTS[status];
  const title = `Citation ${label}: ${word}`;
  const make = () => {
    const link = element("a", { className: `chip ${status}`, href: `#${encodeURIComponent(id)}`, title }, `${label} ${sign}`);
    link.setAttribute("aria-label", title);
    return link;
  };
  return [[label, status, id], make];
}

/** @param {Cited} cited */
const rank = ({ status }) => WORST_FIRST.indexOf(status);

/** A citation: its verdict, where it stands, what it says, and the picture. @param {Cited} cited */
function card({ id, label, status, citation, verification }) {
  const { source, page, reason, diff = [], warnings = [], proof } = verification?.citewire ?? {};
  const name = String(source ?? verification?.label ?? citation.title ?? citation.attachmentId ?? citation.url ?? "no source named");
  const where = page ? `${name}, page ${page}` : name;
  const [sign, word] = VERDICTS[status];
  const item = element("li", { id, className: status, tabIndex: -1 });
  item.append(element("p", {}, element("b", { className: `chip ${status}` }, `${label} ${sign} ${word}`), ` ${where}`));
  if (citation.fullPhrase) item.append(quoted("The answer quotes: ", citation.fullPhrase));
  const differs = status === "altered" ? diff.filter((/** @type {any} */ one) => !one.harmless) : [];
  if (differs.length) {
    item.append(quoted("The source says: ", verification.verifiedMatchSnippet), element("ul", {}, ...differs.map(difference)));
  }
  const notes = [status === "verified" || differs.length ? null : reason, ...warnings].filter(Boolean);
  if (notes.length) item.append(element("p", { className: "note" }, notes.join("; ")));
  const src = address(verification?.evidence?.src, true);
  if (src) item.append(picture(src, `${where}, with the words marked`));
  const href = address(proof);
  if (href) item.append(element("a", { href, target: "_blank", rel: "noopener" }, "Open the proof"));
  return item;
}

/** @param {string} label @param {any} words */
function quoted(label, words) {
  return element("p", {}, label, element("q", { dir: "auto" }, String(words ?? "")));
}

/** @param {{quote: string, source: string, kind: string}} difference */
function difference({ quote, source, kind }) {
  const [left, right] = [element("del", {}, quote ?? ""), element("ins", {}, source ?? "")];
  if (!source) return element("li", {}, `${kind}: the quote adds `, left);
  if (!quote) return element("li", {}, `${kind}: the quote leaves out `, right);
  return element("li", {}, `${kind}: the quote says `, left, ", the source ", right);
}

/** @param {string} src @param {string} alt */
function picture(src, alt) {
  const image = element("img", { src, alt, loading: "lazy" });
  image.onerror = () => image.replaceWith(element("p", { className: "note" }, "The picture could not be loaded."));
  return image;
}

/** An address that may be opened, or null. @param {any} value */
function address(value, isPicture = false) {
  if (typeof value !== "string") return null;
  if (isPicture && PICTURE.test(value)) return value;
  const url = URL.canParse(value, location.href) ? new URL(value, location.href) : null;
  return url && /^https?:$/.test(url.protocol) ? url.href : null;
}

/** How many there are of each status, the worst first. @param {Cited[]} cited */
function counted(cited) {
  const counts = WORST_FIRST.map((status) => [cited.filter((one) => one.status === status).length, VERDICTS[status][1]]);
  return counts.filter(([count]) => count).map(([count, word]) => `${count} ${String(word).toLowerCase()}`).join(" · ");
}

/** @param {Message} message */
function textOf({ content }) {
  if (!Array.isArray(content)) return String(content ?? "");
  return content.map((part) => part?.text ?? "").join("");
}

function draw() {
  const shown = thread.messages.filter((one) => ["user", "assistant"].includes(one.role) && textOf(one));
  get("hint").hidden = shown.length > 0;
  get("questions").hidden = shown.length > 0 || !get("questions").children.length;
  fill(get("thread"), shown.map(({ id, role }) => [[id, role], () => element("article", { className: role }, ...parts(role))]));
  shown.forEach((message, at) => {
    const [, text, summary, list] = get("thread").childNodes[at].childNodes;
    const cited = message.role === "assistant" ? citedBy(message) : [];
    fill(text, answered(textOf(message), cited));
    summary.textContent = counted(cited);
    fill(list, cited.map((one) => [[one.citation, one.verification, one.label], () => card(one)]));
  });
}

/** @param {string} role */
function parts(role) {
  const title = element("h2", {}, role === "user" ? "Question" : "Answer");
  return [title, element("div", { className: "text", dir: "auto" }), element("p", { className: "summary" }), element("ol")];
}

let isDue = false;

/** Draw soon, once for all that came until then. */
function drawSoon() {
  if (!isDue) requestAnimationFrame(() => ((isDue = false), draw()));
  isDue = true;
}

/** Show a run to its end. @param {string} path @param {RequestInit} [init] */
async function show(path, init) {
  setRunning(true);
  try {
    for await (const event of events(path, init)) {
      take(thread, event);
      if (event.type === "TOOL_CALL_START") say(`Using ${event.toolCallName} …`);
      drawSoon();
    }
  } finally {
    setRunning(false);
    draw();
  }
}

/** @param {boolean} isRunning */
function setRunning(isRunning) {
  // A screen reader reads the answer when it is complete.
  get("thread").ariaBusy = String(isRunning);
  get("stop").hidden = !isRunning;
  get("send").hidden = get("new").disabled = isRunning;
  get("stop").disabled = get("send").disabled = get("question").disabled = false;
  say(isRunning ? "Answering …" : "");
}

/** @param {string} text */
function say(text) {
  get("status").textContent = text;
}

/** @param {any} error */
function complain(error) {
  get("problem").textContent = error instanceof Error ? error.message : "";
  get("problem").hidden = !error;
}

/** @param {string} question */
async function ask(question) {
  if (!question.trim() || get("send").hidden) return;
  complain(null);
  sessionStorage.setItem("thread", thread.id);
  get("question").value = "";
  thread.runId = newId();
  thread.messages = [...thread.messages, { id: newId(), role: "user", content: question.trim() }];
  draw();
  get("thread").lastChild.scrollIntoView();
  const { id: threadId, runId, messages, state } = thread;
  const body = JSON.stringify({ threadId, runId, messages, state, tools: [], context: [], forwardedProps: {} });
  await show("agui", { method: "POST", body, headers: { "Content-Type": "application/json" } });
}

/** The thread as it was before a reload, and the run that may still go on. */
async function goOn() {
  if (!kept) return setRunning(false);
  await show(`threads/${thread.id}`).catch((error) => {
    if (error.status !== 404) throw error;
  });
}

async function stop() {
  get("stop").disabled = true;
  await request(`threads/${thread.id}/runs/${encodeURIComponent(thread.runId)}/stop`, { method: "POST" });
}

async function listQuestions() {
  const response = await fetch("questions.json");
  const questions = response.ok ? await response.json() : [];
  for (const question of questions) {
    const button = element("button", { type: "button", onclick: () => ask(question).catch(complain) }, question);
    get("questions").append(element("li", {}, button));
  }
  draw();
}

/** One line on what the answers come from, until all of it was read. */
async function listSources() {
  const { sources } = await (await request("sources")).json();
  const [reading, failed] = ["reading", "failed"].map((state) => sources.filter((/** @type {any} */ one) => one.state === state));
  const names = sources.slice(0, 6).map((/** @type {any} */ one) => one.name).join(", ");
  const more = sources.length > 6 ? ` and ${sources.length - 6} more` : "";
  const lost = failed.length ? ` (${failed.length} could not be read)` : "";
  const read = `Sources: ${names || "none"}${more}${lost}`;
  get("sources").textContent = reading.length ? `Reading sources: ${sources.length - reading.length} of ${sources.length}` : read;
  if (reading.length) setTimeout(() => listSources().catch(complain), POLL);
}

get("ask").onsubmit = (/** @type {Event} */ event) => {
  event.preventDefault();
  ask(get("question").value).catch(complain);
};
get("question").onkeydown = (/** @type {KeyboardEvent} */ event) => {
  if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
  event.preventDefault();
  get("ask").requestSubmit();
};
get("stop").onclick = () => stop().catch(complain);
get("new").onclick = () => {
  sessionStorage.removeItem("thread");
  Object.assign(thread, { id: newId(), runId: "", messages: [], state: {} });
  complain(null);
  draw();
};
goOn().catch(complain);
listQuestions().catch(complain);
listSources().catch(complain);
