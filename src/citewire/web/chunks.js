// Chunk events written out: a chunk opens a stream, goes on with it, or both, and never says when it ends.
// One stream is open per lane, and a lane is a subagent, or the agent itself. The stream ends
// when the next one starts in its lane, or when an event comes that no chunk stream outlives.

/** @typedef {import("./types.js").WireEvent} WireEvent */
/** @typedef {{noun: string, id: string, needed: string[], agreed: string[], start: string, goOn: string,
 *   end: string}} Kind */
/** @typedef {{kind: Kind, id: string, owner: string | undefined, said: Record<string, any>}} Stream */

/** A chunk that fits no stream. */
export class OutOfOrder extends Error {}

/** @param {string} family @param {string} noun @param {string} id @param {string[]} agreed @param {string[]} more
 * @returns {Kind} */
function kindOf(family, noun, id, agreed, more = []) {
  const goOn = `${family}_${family === "TOOL_CALL" ? "ARGS" : "CONTENT"}`;
  return { noun, id, needed: [id, ...more], agreed, start: `${family}_START`, goOn, end: `${family}_END` };
}

/** @type {Map<string, Kind>} */
const KINDS = new Map([
  ["TEXT_MESSAGE_CHUNK", kindOf("TEXT_MESSAGE", "text message", "messageId", ["role", "name"])],
  [
    "TOOL_CALL_CHUNK",
    kindOf("TOOL_CALL", "tool call", "toolCallId", ["toolCallName", "parentMessageId"], ["toolCallName"]),
  ],
  ["REASONING_MESSAGE_CHUNK", kindOf("REASONING_MESSAGE", "reasoning message", "messageId", [])],
]);
const END_ALL = new Set(["RUN_STARTED", "RUN_FINISHED", "RUN_ERROR", "MESSAGES_SNAPSHOT"]);
const END_NONE = new Set(["RAW", "ACTIVITY_SNAPSHOT", "ACTIVITY_DELTA", "REASONING_ENCRYPTED_VALUE", "SUBAGENT_STARTED"]);

/** The chunk streams of one response. */
export class Chunks {
  /** @type {Map<string | undefined, Stream>} */
  #lanes = new Map();

  /** What an event stands for, in order. Throws `OutOfOrder`. @param {WireEvent} event @returns {WireEvent[]} */
  expand(event) {
    const kind = KINDS.get(event.type);
    if (kind) return this.#expandChunk(event, kind);
    if (!this.#lanes.size || END_NONE.has(event.type)) return [event];
    const lanes = END_ALL.has(event.type) ? [...this.#lanes.keys()] : [event.subagentRunId];
    return [...lanes.flatMap((lane) => this.#end(lane)), event];
  }

  /** @param {string | undefined} lane @returns {WireEvent[]} */
  #end(lane) {
    const stream = this.#lanes.get(lane);
    this.#lanes.delete(lane);
    return stream ? [eventOf(stream, stream.kind.end)] : [];
  }

  /** @param {WireEvent} chunk @param {Kind} kind */
  #expandChunk(chunk, kind) {
    const name = chunk[kind.id];
    const lane = this.#lane(chunk, kind);
    const open = this.#lanes.get(lane);
    const goesOn = open?.kind === kind && (name === undefined || name === open.id);
    if (goesOn) mustAgree(chunk, open);
    else mustOpen(chunk, kind);
    const made = goesOn ? [] : this.#end(lane);
    const stream = goesOn ? open : this.#open(chunk, kind, lane);
    if (!goesOn) made.push(eventOf(stream, kind.start, { toolCallName: chunk.toolCallName }));
    if (chunk.delta !== undefined || chunk.rawEvent !== undefined || (goesOn && chunk.metadata !== undefined)) {
      made.push(eventOf(stream, kind.goOn, { delta: chunk.delta ?? "" }));
    }
    return made;
  }

  /** @param {WireEvent} chunk @param {Kind} kind @param {string | undefined} lane */
  #open(chunk, kind, lane) {
    const said = Object.fromEntries(kind.agreed.map((name) => [name, chunk[name]]));
    if ("role" in said) said.role ??= "assistant";
    const stream = { kind, id: chunk[kind.id], owner: chunk.subagentRunId, said };
    this.#lanes.set(lane, stream);
    return stream;
  }

  /** The lane of a chunk that need say neither whose it is nor what it goes on with.
   * @param {WireEvent} chunk @param {Kind} kind */
  #lane(chunk, kind) {
    const { [kind.id]: name, subagentRunId: tag } = chunk;
    const lanes = [...this.#lanes].filter(([, stream]) => stream.kind === kind);
    if (name !== undefined) {
      const holder = lanes.find(([, stream]) => stream.id === name);
      if (!holder) return tag;
      if (tag === undefined || tag === holder[0]) return holder[0];
      throw new OutOfOrder(`the ${kind.noun} ${name} is not that of subagent ${tag}`);
    }
    if (tag !== undefined || !lanes.length || lanes.some(([lane]) => lane === undefined)) return tag;
    if (lanes.length > 1) throw new OutOfOrder(`a chunk says neither which ${kind.noun} it goes on with nor whose it is`);
    return lanes[0][0];
  }
}

/** @param {Stream} stream @param {string} type @returns {WireEvent} */
function eventOf({ kind, id, owner }, type, more = {}) {
  return { type, [kind.id]: id, subagentRunId: owner, ...more };
}

/** @param {WireEvent} chunk @param {Kind} kind */
function mustOpen(chunk, kind) {
  const missing = kind.needed.find((name) => chunk[name] === undefined);
  if (missing) throw new OutOfOrder(`the first chunk of a ${kind.noun} needs ${missing}`);
}

/** @param {WireEvent} chunk @param {Stream} stream */
function mustAgree(chunk, { kind, id, said }) {
  const other = Object.keys(said).find((name) => chunk[name] !== undefined && chunk[name] !== said[name]);
  if (other) throw new OutOfOrder(`a chunk of the ${kind.noun} ${id} gives it another ${other}`);
}
