// The modules of the web room in Node: a JSON line with a request in, a JSON line with the answer out.
// {stream, messages?, state?, seedArgs?} gives the view before the first event and after each, with `last` only the
// last one, and with `parts` instead which of them are the same objects as in the view before; {weigh} the bytes that
// deltas take in answers of these lengths, {document, operations} what a patch makes of it, and {frames} what the
// parser reads in these pieces, each base64.

import { createInterface } from "node:readline";
import { getHeapStatistics } from "node:v8";

import { Document, PatchError } from "../../src/citewire/web/patch.js";
import { Frames } from "../../src/citewire/web/sse.js";
import { Thread } from "../../src/citewire/web/thread.js";

/** Whoever changes what was handed out throws from then on. */
function frozen(value) {
  if (typeof value !== "object" || value === null || Object.isFrozen(value)) return value;
  Object.values(Object.freeze(value)).forEach(frozen);
  return value;
}

/** The views of a stream, each read before the next event comes. */
function* views({ stream, messages, state, seedArgs }) {
  let seconds = 0;
  const thread = new Thread({ messages, state, seedArgs, clock: () => 1000 * seconds++ });
  yield frozen(thread.view);
  for (const event of stream) {
    thread.take(event);
    yield frozen(thread.view);
  }
}

/** Only the last view, which is read once. */
function last({ stream }) {
  const thread = new Thread();
  for (const event of stream) thread.take(event);
  return [thread.view];
}

/** For each view, the parts of it that are the same objects as in the one before. */
function sameParts({ parts, ...request }) {
  let before = {};
  return Array.from(views(request), (view) => {
    const at = (root, path) => path.split("/").reduce((value, name) => value?.[name], root);
    const kept = parts.filter((path) => at(view, path) !== undefined && at(view, path) === at(before, path));
    before = view;
    return kept;
  });
}

/** What a delta takes of the heap after so many others, in bytes: the median, since garbage is collected at times. */
function weighed(length) {
  const thread = new Thread();
  const say = () => thread.take({ type: "TEXT_MESSAGE_CONTENT", messageId: "m", delta: "word " });
  thread.take({ type: "TEXT_MESSAGE_START", messageId: "m" });
  for (let at = 0; at < length; at++) say();
  const taken = Array.from({ length: 501 }, () => {
    const before = getHeapStatistics().used_heap_size;
    say();
    thread.view.messages[0].content.length;
    return getHeapStatistics().used_heap_size - before;
  });
  return taken.sort((one, other) => one - other)[250];
}

function patched({ document, operations }) {
  const held = new Document(frozen(document));
  try {
    held.apply(operations);
  } catch (error) {
    if (!(error instanceof PatchError)) throw error;
    return { error: error.message, value: held.value };
  }
  return { value: held.value };
}

function framed(pieces) {
  const frames = new Frames();
  return pieces.flatMap((piece) => frames.feed(Buffer.from(piece, "base64")));
}

/** @param {any} request */
function answered(request) {
  if (request.parts) return sameParts(request);
  if (request.last) return last(request);
  if (request.stream) return [...views(request)];
  if (request.weigh) return request.weigh.map(weighed);
  return request.frames ? framed(request.frames) : patched(request);
}

for await (const line of createInterface({ input: process.stdin })) {
  process.stdout.write(`${JSON.stringify(answered(JSON.parse(line)))}\n`);
}
