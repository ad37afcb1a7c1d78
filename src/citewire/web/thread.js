// A thread: AG-UI events, and what a front end shows of them. The rules are those of the contract view in Python
// (`citewire.agui.thread.contract_view`), and tests run the same cases through both. Any event is taken at any time; what has no
// place is a problem of the thread and changes nothing, and nothing that comes throws.

import { Arguments } from "./arguments.js";
import { Chunks, OutOfOrder } from "./chunks.js";
import { entriesOf, isEntry, normalised } from "./citations.js";
import { Draft, Drafts, MessageDraft, Rows } from "./drafts.js";
import { faults, loosened } from "./events.js";
import { Document, isObject, kept, parsePointer, PatchError, TooDeep } from "./patch.js";
import { Problems } from "./problems.js";

/** @typedef {import("./types.js").Json} Json */
/** @typedef {import("./types.js").WireEvent} WireEvent */
/** @typedef {import("./types.js").View} View */
/** @typedef {import("./types.js").Emitted} Emitted */

// Custom events that are kept, at least: the last ones, and up to twice as many.
const MOST_EVENTS = 10_000;
// The newest version that is read: 1.1 has the rules of 1.0, which is what we write.
const NEWEST = "1.1";
const VERSION = /^([0-9]{1,9})\.([0-9]{1,9})$/;
const TIMED = new Set(["REASONING_MESSAGE_START", "REASONING_MESSAGE_END", "REASONING_MESSAGE_CHUNK"]);

class CallDraft extends Draft {
  /** @param {Json} fields @param {boolean} seedArgs @param {number} born */
  constructor(fields, seedArgs, born) {
    super(fields);
    this.arguments = new Arguments(seedArgs);
    this.born = born;
  }

  /** @param {string} fragment */
  feed(fragment) {
    this.arguments.feed(fragment);
    this.touch();
  }

  make() {
    return { ...super.make(), args: this.arguments.value };
  }
}

/** The messages and tool calls of one agent: of the one that answers, or of a subagent. */
class Lane {
  /** @type {Drafts<MessageDraft>} */
  messages = new Drafts();
  /** @type {Drafts<CallDraft>} */
  calls = new Drafts();
  /** @type {any} */
  #made;

  /** @param {Json} info */
  constructor(info) {
    this.info = info;
  }

  /** @param {Json} info */
  tell(info) {
    this.info = { ...this.info, ...info };
    this.#made = undefined;
  }

  /** A subagent as it is now; the same object until something of it changes. */
  get value() {
    const [messages, toolCalls] = [this.messages.list, this.calls.list];
    if (this.#made?.messages !== messages || this.#made?.toolCalls !== toolCalls) {
      this.#made = { ...this.info, messages, toolCalls };
    }
    return this.#made;
  }
}

/** The events of a conversation. */
export class Thread {
  /** Where the log of the server goes on after what was taken. @type {string | null} */
  cursor = null;
  /** How many entries there have been. */
  number = 0;
  #seedArgs;
  #clock;
  /** @type {View["status"]} */
  #status = "idle";
  #isLoading = false;
  /** @type {any} */
  #error = null;
  /** @type {string | null} */
  #runId = null;
  // Whether a run has begun that has not said that it ended, whatever became of its way here.
  #isInRun = false;
  #main = new Lane({});
  /** @type {Map<string, Lane>} */
  #lanes = new Map();
  // Where the messages and calls of subagents are; those of the agent itself are in the main lane.
  /** @type {Map<string, Lane>} */
  #messageLanes = new Map();
  /** @type {Map<string, Lane>} */
  #callLanes = new Map();
  #document;
  /** @type {readonly Json[]} */
  #interrupts = [];
  /** @type {readonly import("./types.js").Subagent[]} */
  #subagents = [];
  /** @type {Rows<Emitted>} */
  #events = new Rows();
  #problems = new Problems();
  #chunks = new Chunks();
  // Citations whose message has not come, and those whose message came since the last state event.
  /** @type {Set<string>} */
  #early = new Set();
  /** @type {Set<string>} */
  #due = new Set();
  /** When each message came, by the number of the entry. @type {Map<string, number>} */
  #born = new Map();
  /** @type {Map<string, number>} */
  #thinkingSince = new Map();
  /** When the event came that is being taken, in milliseconds, where that matters. @type {number | null} */
  #time = null;
  /** @type {View | undefined} */
  #view;

  /** With `seedArgs` each fragment of tool arguments is taken for the whole.
   * @param {{id?: string, messages?: Json[], state?: any, seedArgs?: boolean, clock?: () => number}} [options] */
  constructor({ id = "", messages = [], state = {}, seedArgs = false, clock = () => performance.now() } = {}) {
    this.id = id;
    this.#seedArgs = seedArgs;
    this.#clock = clock;
    this.#document = new Document(state ?? {});
    this.#main.messages.reset(messages.map((message) => new MessageDraft(kept(message))));
    for (const message of this.#main.messages.rows) this.#wasAdded(message);
    this.#allAreDue();
  }

  /** What a front end shows: the same object until something changes. */
  get view() {
    return (this.#view ??= this.#shown());
  }

  /** Take an event, as JSON or as the object that it says. @param {unknown} event */
  take(event) {
    this.#entry(() => this.#apply(typeof event === "string" ? JSON.parse(event) : event));
  }

  /** Append a message of this side. @param {Json} message */
  add(message) {
    this.#entry(() => this.#add(this.#main, new MessageDraft(kept(message))));
  }

  /** Go on from this message: those after it are gone, and the calls that were made since it came.
   * @param {string} id */
  cut(id) {
    this.#entry(() => {
      const place = this.#main.messages.place(id);
      if (place === undefined) return;
      this.#main.messages.cut(place + 1);
      const since = this.#born.get(id) ?? 0;
      this.#main.calls.cut(this.#main.calls.rows.filter(({ born }) => born <= since).length);
    });
  }

  /** A new response begins, or one goes on where it broke off. */
  open(goesOn = false) {
    this.#entry(() => {
      if (!goesOn) this.#chunks = new Chunks();
      else if (this.#isInRun) this.#setStatus("running", null);
    });
  }

  /** The run failed on its way here. @param {string} code @param {string} message */
  fail(code, message) {
    this.#entry(() => {
      this.#setStatus("error", message);
      this.#report(code, message);
    });
  }

  /** The run was ended from this side. */
  stop() {
    this.#entry(() => this.#setStatus("idle", this.#error));
  }

  /** Something was wrong with what came, though it could be read. @param {string} code @param {string} message */
  note(code, message) {
    this.#entry(() => this.#report(code, message));
  }

  /** @param {() => void} change */
  #entry(change) {
    this.number += 1;
    this.#time = null;
    this.#view = undefined;
    try {
      change();
    } catch (error) {
      if (error instanceof PatchError) this.#report("bad_patch", error.message);
      else if (error instanceof OutOfOrder) this.#report("out_of_order", error.message);
      else if (error instanceof SyntaxError) this.#report("bad_json", "not JSON");
      else if (error instanceof TooDeep || error instanceof RangeError) this.#report("bad_json", "nested too deeply");
      else throw error;
    }
  }

  /** @param {unknown} event */
  #apply(event) {
    if (!isObject(event)) return this.#report("bad_event", "an event is a JSON object");
    if (typeof event.type !== "string" || !event.type) return this.#report("bad_event", "an event has a type");
    const given = /** @type {WireEvent} */ (event);
    const wrong = faults(given);
    if (wrong === null) return; // events that we do not know are ignored
    if (TIMED.has(given.type) || wrong.length) this.#time = this.#clock();
    if (!wrong.length) return this.#take(given);
    this.#report("bad_field", `${given.type}: ${wrong.join(", ")}`);
    const right = loosened(given);
    if (right) this.#take(right);
    if (given.type === "RUN_ERROR" && (given.message ?? null) === null) this.#error = kept(given);
  }

  /** @param {WireEvent} event */
  #take(event) {
    for (const each of this.#chunks.expand(event)) this.#handle(each);
  }

  /** @param {WireEvent} event */
  #handle(event) {
    switch (event.type) {
      case "RUN_STARTED":
        this.#checkVersion(event.protocolVersion);
        this.#setStatus("running", null);
        this.#isInRun = true;
        this.#runId = event.runId;
        break;
      case "RUN_FINISHED":
        return this.#runFinished(event);
      case "RUN_ERROR":
        this.#setStatus("error", event.message);
        this.#isInRun = false;
        break;
      case "TEXT_MESSAGE_START":
        this.#slot(event);
        break;
      case "TEXT_MESSAGE_CONTENT":
        return this.#extend(event, "content");
      case "REASONING_MESSAGE_START":
        this.#slot(event).extend("reasoning", "");
        if (this.#time !== null) this.#thinkingSince.set(event.messageId, this.#time);
        break;
      case "REASONING_MESSAGE_CONTENT":
        return this.#extend(event, "reasoning");
      case "REASONING_MESSAGE_END":
        return this.#reasoningEnd(event);
      case "TOOL_CALL_START":
        return this.#toolStart(event);
      case "TOOL_CALL_ARGS":
        return this.#editCall(event)?.feed(event.delta);
      case "TOOL_CALL_RESULT":
        return this.#editCall(event)?.put("result", kept(event.content));
      case "TOOL_CALL_END":
        return this.#editCall(event)?.put("status", "complete");
      case "STATE_SNAPSHOT":
        this.#document.replace(event.snapshot ?? {});
        return this.#merge(null);
      case "STATE_DELTA":
        this.#document.apply(event.delta);
        return this.#merge(touched(event.delta));
      case "MESSAGES_SNAPSHOT":
        return this.#messagesSnapshot(event);
      case "CUSTOM":
        return this.#custom(event);
      case "SUBAGENT_STARTED":
      case "SUBAGENT_FINISHED":
      case "SUBAGENT_ERROR":
        return this.#lane(event).tell(told(event));
    }
  }

  /** @param {string | undefined} declared */
  #checkVersion(declared) {
    if (declared === undefined) return;
    const found = VERSION.exec(declared);
    const [major, minor] = NEWEST.split(".").map(Number);
    if (!found) this.#report("unreadable_protocol", `${declared} is no version of the protocol`);
    else if (Number(found[1]) > major || (Number(found[1]) === major && Number(found[2]) > minor)) {
      this.#report("newer_protocol", `the producer speaks protocol ${declared}; ${NEWEST} is known here`);
    }
  }

  /** @param {View["status"]} status @param {any} error */
  #setStatus(status, error) {
    this.#status = status;
    this.#isLoading = status === "running";
    this.#error = error;
  }

  /** @param {string} code @param {string} message */
  #report(code, message) {
    this.#problems.add(code, `#${this.number}`, message);
  }

  /** @returns {View} */
  #shown() {
    const subagents = Array.from(this.#lanes.values(), (lane) => lane.value);
    const known = this.#subagents;
    const isSame = subagents.length === known.length && subagents.every((one, at) => one === known[at]);
    if (!isSame) this.#subagents = subagents;
    return {
      status: this.#status,
      isLoading: this.#isLoading,
      error: this.#error,
      runId: this.#runId,
      messages: this.#main.messages.list,
      toolCalls: this.#main.calls.list,
      state: this.#document.value,
      interrupts: this.#interrupts,
      subagents: this.#subagents,
      events: this.#events.list,
      problems: this.#problems.list,
    };
  }

  /** @param {WireEvent} event */
  #runFinished({ outcome }) {
    this.#setStatus("idle", this.#error);
    this.#isInRun = false;
    const given = outcome?.type === "interrupt" && Array.isArray(outcome.interrupts) ? outcome.interrupts : [];
    this.#interrupts = kept(given.filter(isNamed));
    if (this.#interrupts.length < given.length) {
      this.#report("bad_field", "RUN_FINISHED: an interrupt is an object with an id");
    }
  }

  // Messages

  /** @param {Lane} lane @param {MessageDraft} message */
  #add(lane, message) {
    lane.messages.add(message);
    if (lane !== this.#main) this.#messageLanes.set(message.fields.id, lane);
    this.#wasAdded(message);
    return message;
  }

  /** @param {MessageDraft} message */
  #wasAdded({ key }) {
    if (typeof key !== "string") return;
    if (!this.#born.has(key)) this.#born.set(key, this.number);
    if (this.#early.delete(key)) this.#due.add(key);
  }

  /** @param {WireEvent} event */
  #lane({ subagentRunId: id }) {
    return typeof id === "string" ? this.#laneOf(id) : this.#main;
  }

  /** @param {string} id */
  #laneOf(id) {
    const lane = this.#lanes.get(id) ?? new Lane({ id, status: "running" });
    this.#lanes.set(id, lane);
    return lane;
  }

  /** The messages among which this one is, or would be. @param {string} id */
  #among(id) {
    return this.#main.messages.has(id) ? this.#main.messages : (this.#messageLanes.get(id) ?? this.#main).messages;
  }

  /** The message of this id, or a new one of the assistant. @param {WireEvent} event */
  #slot(event) {
    const message = this.#among(event.messageId).edit(event.messageId);
    const fields = { id: event.messageId, role: "assistant", content: "" };
    if (!message) return this.#add(this.#lane(event), new MessageDraft(fields));
    if (!message.has("content")) message.put("content", "");
    return message;
  }

  /** @param {WireEvent} event @param {string} name */
  #extend({ type, messageId, delta }, name) {
    const message = this.#among(messageId).edit(messageId);
    if (message) message.extend(name, delta);
    else this.#report("unknown_message", `${type}: no message is called ${messageId}`);
  }

  /** @param {WireEvent} event */
  #reasoningEnd({ messageId }) {
    const since = this.#thinkingSince.get(messageId);
    if (since === undefined || this.#time === null) return;
    this.#among(messageId).edit(messageId)?.put("reasoningDurationMs", Math.max(0, Math.round(this.#time - since)));
  }

  /** @param {WireEvent} event */
  #messagesSnapshot({ messages }) {
    /** @type {MessageDraft[]} */
    const drafts = [];
    for (const message of messages) {
      if (!isNamed(message)) this.#report("bad_field", "MESSAGES_SNAPSHOT: a message is an object with an id");
      if (isObject(message)) drafts.push(this.#whole(message));
    }
    const tagged = drafts.filter(isTagged);
    this.#main.messages.reset(drafts.filter((draft) => !isTagged(draft)));
    if (tagged.length) this.#resetLanes(tagged);
    else this.#leaveLanes();
    for (const draft of drafts) this.#wasAdded(draft);
    this.#allAreDue();
  }

  /** A message that came whole; the citations that it carries are normalised. @param {Json} message */
  #whole(message) {
    const { citations } = kept(message);
    return new MessageDraft(isEntry(citations) ? { ...message, citations: this.#normalised(citations, []) } : message);
  }

  /** What the main lane has now, a subagent has no longer. */
  #leaveLanes() {
    for (const [id, lane] of this.#messageLanes) {
      if (!this.#main.messages.has(id)) continue;
      this.#messageLanes.delete(id);
      lane.messages.reset(lane.messages.rows.filter(({ key }) => key !== id));
    }
  }

  /** @param {MessageDraft[]} tagged */
  #resetLanes(tagged) {
    for (const lane of this.#lanes.values()) lane.messages.reset([]);
    this.#messageLanes.clear();
    for (const draft of tagged) {
      const lane = this.#laneOf(draft.fields.subagentRunId);
      lane.messages.add(draft);
      if (typeof draft.key === "string") this.#messageLanes.set(draft.key, lane);
    }
  }

  // Tool calls

  /** @param {WireEvent} event */
  #toolStart(event) {
    const { toolCallId: id, toolCallName: name } = event;
    const lane = this.#lane(event);
    if (this.#main.calls.has(id) || this.#callLanes.has(id)) {
      return this.#report("duplicate_start", `the call ${id} has started already`);
    }
    if (lane !== this.#main) this.#callLanes.set(id, lane);
    lane.calls.add(new CallDraft({ id, name, status: "running" }, this.#seedArgs, this.number));
  }

  /** @param {WireEvent} event */
  #editCall({ type, toolCallId: id }) {
    const call = (this.#callLanes.get(id) ?? this.#main).calls.edit(id);
    if (!call) this.#report("unknown_tool_call", `${type}: no call is called ${id}`);
    return call;
  }

  // The citations in the state

  /** Put the citations of these messages on them, of all where it is null, and those that are due.
   * @param {Set<string> | null} names */
  #merge(names) {
    const entries = entriesOf(this.#document.value);
    if (!entries) return;
    const wanted = new Set([...(names ?? Object.keys(entries)), ...this.#due]);
    this.#due.clear();
    for (const name of wanted) {
      if (Object.hasOwn(entries, name) && isEntry(entries[name])) this.#cite(name, entries[name]);
    }
  }

  /** @param {string} name @param {any[]} entry */
  #cite(name, entry) {
    const message = this.#among(name).find(name);
    if (!message) {
      this.#early.add(name);
      return;
    }
    const before = message.fields.citations;
    const citations = this.#normalised(entry, Array.isArray(before) ? before : []);
    if (citations !== before) this.#among(name).edit(name)?.put("citations", citations);
  }

  /** @param {any[]} entry @param {readonly any[]} before */
  #normalised(entry, before) {
    return normalised(entry, before, (message) => this.#report("bad_citation", message));
  }

  /** Messages or the state are others: the next state event puts all citations on their messages. */
  #allAreDue() {
    for (const name of Object.keys(entriesOf(this.#document.value) ?? {})) this.#due.add(name);
  }

  /** @param {WireEvent} event */
  #custom({ name, value }) {
    if (this.#events.length >= 2 * MOST_EVENTS) this.#events.keep(MOST_EVENTS);
    const data = kept(value);
    const isUpdate = name === "state_update" && isObject(data);
    this.#events.put(isUpdate ? { type: "state_update", data } : { type: "custom", name, data });
  }
}

/** What an event says of a subagent. @param {WireEvent} event @returns {Json} */
function told({ type, name, outcome, result, message, ...more }) {
  if (type === "SUBAGENT_ERROR") return { status: "error", error: message };
  if (type === "SUBAGENT_FINISHED") {
    const status = outcome?.type === "suspended" ? "suspended" : "complete";
    return result === undefined ? { status } : { status, result: kept(result) };
  }
  const parents = ["description", "parentSubagentRunId", "parentToolCallId", "parentMessageId"];
  const given = parents.filter((each) => more[each] !== undefined).map((each) => [each, more[each]]);
  return { name, status: "running", ...Object.fromEntries(given) };
}

/** @param {unknown} value */
function isNamed(value) {
  return isObject(value) && typeof value.id === "string";
}

/** @param {MessageDraft} message */
function isTagged({ fields }) {
  return typeof fields.subagentRunId === "string";
}

/** The messages whose citations a patch that was applied may have changed; null for any. @param {any[]} operations */
function touched(operations) {
  const pointers = operations.flatMap(({ op, path, from }) => (op === "move" || op === "copy" ? [path, from] : [path]));
  if (pointers.some((pointer) => pointer === "" || pointer === "/citations")) return null;
  const within = pointers.filter((pointer) => pointer.startsWith("/citations/"));
  return new Set(within.map((pointer) => parsePointer(pointer)[1]));
}
