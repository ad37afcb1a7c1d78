// The events of AG-UI 1.0 and its retired ones: which fields they have, and what is left where some are wrong.

import { isObject } from "./patch.js";

/** @typedef {import("./types.js").WireEvent} WireEvent */
/** @typedef {(value: any) => boolean} Test */

/** @type {Test} */
const text = (value) => typeof value === "string";
const any = () => true;
/** @type {Test} */
const bool = (value) => typeof value === "boolean";
/** @type {Test} */
const list = (value) => Array.isArray(value);
/** @type {Test} */
const textOrNull = (value) => value === null || text(value);
/** @type {Test} */
const objectOrNull = (value) => value === null || isObject(value);
/** @type {Test} */
const textOrList = (value) => text(value) || list(value);
/** @param {string[]} words @returns {Test} */
const oneOf = (...words) => (value) => words.includes(value);
const textRole = oneOf("developer", "system", "assistant", "user");

/** A name that ends in `?` is that of a field that may be missing. @type {Record<string, Test>} */
const COMMON = { "timestamp?": Number.isSafeInteger, "rawEvent?": any, "metadata?": isObject };
const RUN = { ...COMMON, threadId: text, runId: text };
/** What an event has that may come from a subagent. @type {Record<string, Test>} */
const LANE = { ...COMMON, "subagentRunId?": text };
const MESSAGE = { ...LANE, messageId: text };
const DELTA = { ...MESSAGE, delta: text };
const CALL = { ...LANE, toolCallId: text };
const STEP = { ...LANE, stepName: text };
const SUBAGENT = { ...COMMON, subagentRunId: text };

/** @type {Map<string, Record<string, Test>>} */
const SHAPES = new Map(
  Object.entries({
    RUN_STARTED: { ...RUN, "protocolVersion?": text, "parentRunId?": text, "input?": isObject },
    RUN_FINISHED: { ...RUN, "result?": any, "outcome?": objectOrNull, "usage?": list },
    RUN_ERROR: { ...COMMON, message: text, "code?": text, "usage?": list },
    STEP_STARTED: STEP,
    STEP_FINISHED: STEP,
    TEXT_MESSAGE_START: { ...MESSAGE, "role?": textRole, "name?": text },
    TEXT_MESSAGE_CONTENT: DELTA,
    TEXT_MESSAGE_END: MESSAGE,
    TEXT_MESSAGE_CHUNK: { ...LANE, "messageId?": text, "role?": textRole, "delta?": text, "name?": text },
    TOOL_CALL_START: { ...CALL, toolCallName: text, "parentMessageId?": textOrNull },
    TOOL_CALL_ARGS: { ...CALL, delta: text },
    TOOL_CALL_END: CALL,
    TOOL_CALL_CHUNK: {
      ...LANE, "toolCallId?": text, "toolCallName?": text, "parentMessageId?": textOrNull, "delta?": text,
    },
    TOOL_CALL_RESULT: { ...MESSAGE, ...CALL, content: textOrList, "role?": oneOf("tool") },
    STATE_SNAPSHOT: { ...LANE, snapshot: any },
    STATE_DELTA: { ...LANE, delta: list },
    MESSAGES_SNAPSHOT: { ...COMMON, messages: list },
    ACTIVITY_SNAPSHOT: { ...MESSAGE, activityType: text, content: isObject, "replace?": bool },
    ACTIVITY_DELTA: { ...MESSAGE, activityType: text, patch: list },
    RAW: { ...LANE, event: any, "source?": text },
    CUSTOM: { ...LANE, name: text, value: any },
    REASONING_START: MESSAGE,
    REASONING_MESSAGE_START: { ...MESSAGE, role: oneOf("reasoning") },
    REASONING_MESSAGE_CONTENT: DELTA,
    REASONING_MESSAGE_END: MESSAGE,
    REASONING_MESSAGE_CHUNK: { ...LANE, "messageId?": text, "delta?": text },
    REASONING_END: MESSAGE,
    REASONING_ENCRYPTED_VALUE: { ...LANE, subtype: oneOf("tool-call", "message"), entityId: text, encryptedValue: text },
    SUBAGENT_STARTED: {
      ...SUBAGENT, name: text, "description?": text, "parentSubagentRunId?": text, "parentToolCallId?": text,
      "parentMessageId?": text,
    },
    SUBAGENT_FINISHED: { ...SUBAGENT, "result?": any, "outcome?": isObject },
    SUBAGENT_ERROR: { ...SUBAGENT, message: text, "code?": text },
    THINKING_START: { ...LANE, "title?": any },
    THINKING_TEXT_MESSAGE_START: LANE,
    THINKING_TEXT_MESSAGE_CONTENT: { ...LANE, delta: text },
    THINKING_TEXT_MESSAGE_END: LANE,
    THINKING_END: LANE,
  }),
);
const FIELDS = new Map([...SHAPES].map(([type, shape]) => [type, Object.entries(shape).map(fieldOf)]));

/** @param {[string, Test]} entry */
function fieldOf([name, test]) {
  return { name: name.replace("?", ""), isNeeded: !name.endsWith("?"), test };
}

// What a field is where it is missing or wrong; other text is empty.
/** @type {Record<string, any>} */
const FALLBACKS = { messageId: "unknown", snapshot: null, value: null, event: null };

/** The fields that are wrong; null for an event of a type that neither this protocol nor an earlier one has.
 * @param {WireEvent} event */
export function faults(event) {
  const fields = FIELDS.get(event.type);
  if (!fields) return null;
  return fields
    .filter(({ name, isNeeded, test }) => (Object.hasOwn(event, name) ? !test(event[name]) : isNeeded))
    .map(({ name }) => name);
}

/** An event with what is right of it; null without the list that it is about. @param {WireEvent} event */
export function loosened(event) {
  /** @type {WireEvent} */
  const made = { type: event.type };
  for (const { name, isNeeded, test } of FIELDS.get(event.type) ?? []) {
    const value = Object.hasOwn(event, name) ? event[name] : null;
    if (name === "content" || (value !== null && test(value))) made[name] = value;
    else if (isNeeded && test === list) return null;
    else if (isNeeded) made[name] = name in FALLBACKS ? FALLBACKS[name] : "";
  }
  return made;
}
