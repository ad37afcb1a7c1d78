// How long the real @ag-ui/client takes for a log: thread.mjs LOG [--limit N] prints {"seconds", "events"}.
// LOG is a JSON file {messages?, state?, events}; with a limit only its first N events are pushed.

import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { parseArgs } from "node:util";

const require = createRequire(new URL("../../tests/node/package.json", import.meta.url));
const { AbstractAgent } = require("@ag-ui/client");
const { Observable } = require("rxjs");

// As in a deployed page: else the client copies and freezes everything for every callback.
process.env.NODE_ENV = "production";
delete process.env.VITEST_WORKER_ID;
// It warns with the whole state; writing that out is not its work.
console.warn = console.error = () => {};

// Events per macrotask. The log at once is slower for the client (taking an event moves its whole queue: four
// times for 100,000), one at a time pays for our timer too; between 16 and 256 it makes no difference.
const BATCH = 64;
// Events pushed before the clock starts, so that the code is compiled.
const WARM_UP = 500;

class Log extends AbstractAgent {
  constructor(events, config) {
    super(config);
    this.events = events;
  }

  run() {
    return new Observable((subscriber) => {
      const emit = (at) => {
        for (const event of this.events.slice(at, at + BATCH)) subscriber.next(event);
        if (subscriber.closed) return;
        if (at + BATCH < this.events.length) setImmediate(emit, at + BATCH);
        else subscriber.complete();
      };
      setImmediate(emit, 0);
    });
  }
}

/** Seconds for all of `events`; a log that the client rejects is an error here. */
async function push(events, { messages, state }) {
  const agent = new Log(events, { initialMessages: messages, initialState: state });
  const start = performance.now();
  await agent.runAgent();
  return (performance.now() - start) / 1000;
}

const { values, positionals } = parseArgs({ options: { limit: { type: "string" } }, allowPositionals: true });
const log = JSON.parse(readFileSync(positionals[0], "utf8"));
const events = log.events.slice(0, values.limit === undefined ? undefined : Number(values.limit));
try {
  // Cloned: the client appends to messages inside the events it is given.
  await push(structuredClone(events.slice(0, WARM_UP)), log);
  process.stdout.write(`${JSON.stringify({ seconds: await push(events, log), events: events.length })}\n`);
} catch (error) {
  process.stderr.write(`the client rejects this log: ${error.message}\n`);
  process.exitCode = 1;
}
