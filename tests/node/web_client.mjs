// client.js as a page uses it: a JSON line {n, do, …} in, and as many JSON lines {n, …} out as there is to say: each
// status and event, then the view or value, or the error. It ends by itself when nothing is left to wait for.

import { createInterface } from "node:readline";

import { Client } from "../../src/citewire/web/client.js";
import { Thread } from "../../src/citewire/web/thread.js";

const [base, key, retries, quiet] = process.argv.slice(2);
const client = new Client(base, { key, retries: Number(retries), quiet: Number(quiet) });
const threads = new Map();
const leaving = new Map();

/** The thread of a command; who joins one begins with nothing. */
function threadOf({ do: what, thread: id = "" }) {
  if (what === "join" || !threads.has(id)) threads.set(id, new Thread({ id }));
  return threads.get(id);
}

/** What a command gives: events to follow, or a promise. */
function begun({ do: what, text, message, ...given }, thread, options) {
  switch (what) {
    case "ask":
      return client.ask(thread, text, options);
    case "join":
      return client.join(thread, options);
    case "regenerate":
      return client.regenerate(thread, message, options);
    case "stop":
      return client.stop(thread, options);
    case "review":
      return client.review(thread.id, given.review, options);
    case "sources":
      return client.sources(options);
    case "watch":
      return client.sourceEvents(options);
    case "url":
      return client.addUrl(given.url, options);
    case "upload":
      return client.upload(new File([Buffer.from(text)], given.name, { type: "text/plain" }), options);
  }
  throw new Error(`no command is called ${what}`);
}

async function run({ n, ...command }) {
  const say = (said) => process.stdout.write(`${JSON.stringify({ n, ...said })}\n`);
  const [thread, abort] = [threadOf(command), new AbortController()];
  leaving.set(n, abort);
  const onStatus = (status, error) => say({ status, error });
  const onProgress = (progress) => say({ progress });
  try {
    const events = begun(command, thread, { signal: abort.signal, onStatus, onProgress });
    let value;
    if (events[Symbol.asyncIterator]) for await (const event of events) say({ event });
    else value = await events;
    say({ over: true, value: value ?? null, view: thread.view });
  } catch (error) {
    const { name, code, message, status } = error;
    say({ over: true, failed: { name, code, message, status }, view: thread.view });
  }
}

for await (const line of createInterface({ input: process.stdin })) {
  const command = JSON.parse(line);
  if (command.do === "leave") leaving.get(command.n).abort();
  else run(command);
}
