// The real @ag-ui/client as a long-lived process: a JSON line {id, stream, messages?, state?} in, a JSON line
// out with what a fresh agent made of the stream. With {id, url, version?, headers?, threadId?, runId?, …} the
// agent is that at a URL, and the client one of two versions; `get` has it load what is there, and after
// `leaveAfter` events it leaves. Input must be ASCII: readline also ends lines at U+2028.

import { Console } from "node:console";
import { createInterface } from "node:readline";
import { setImmediate as macrotask } from "node:timers/promises";
import { format } from "node:util";

import { AbstractAgent, HttpAgent } from "@ag-ui/client";
import { HttpAgent as HttpAgentBefore1 } from "ag-ui-client-0.0.59";
import { Observable } from "rxjs";

// The client looks at these as it runs: in development it freezes, in tests it throws, warnings can be off.
process.env.NODE_ENV = "production";
delete process.env.VITEST_WORKER_ID;
delete process.env.SUPPRESS_TRANSFORMATION_WARNINGS;

/** Emits the stream, one event per macrotask. */
class Replay extends AbstractAgent {
  constructor(stream, config) {
    super(config);
    this.stream = stream;
  }

  // The apply stage runs in microtasks only, which end before the next macrotask: when an event is rejected,
  // everything before it has been applied. Emitted at once, it would not be.
  run() {
    return new Observable((subscriber) => {
      const emit = (at) => {
        if (subscriber.closed) return;
        if (at === this.stream.length) return subscriber.complete();
        subscriber.next(this.stream[at]);
        setImmediate(emit, at + 1);
      };
      setImmediate(emit, 0);
    });
  }
}

/** A client that loads a thread and asks nothing. */
const loading = (Remote) =>
  class extends Remote {
    requestInit() {
      const headers = { ...this.headers, Accept: "text/event-stream" };
      return { method: "GET", headers, signal: this.abortController.signal };
    }
  };

/** What the client delivers, keeps and warns of for one stream. */
async function run({ id, stream, url, version, get, leaveAfter, runId, messages, state, ...given }) {
  const events = [];
  const warnings = [];
  console.warn = (...args) => warnings.push(format(...args));
  const config = { ...given, url, initialMessages: messages, initialState: state };
  const Remote = version === "0.0.59" ? HttpAgentBefore1 : HttpAgent;
  const agent = url ? new (get ? loading(Remote) : Remote)(config) : new Replay(stream, config);
  const onEvent = ({ event }) => {
    // Cloned: later events append to the very messages that a snapshot event holds.
    if (events.push(structuredClone(event)) === leaveAfter) agent.abortRun();
  };
  let error = null;
  try {
    await agent.runAgent({ runId }, { onEvent });
  } catch (thrown) {
    error = thrown instanceof Error ? thrown.message : String(thrown);
  }
  // A failed run leaves the callbacks of the last event under way.
  await macrotask();
  const { messages: kept, state: reached, pendingInterrupts } = agent;
  const outcome = error === null ? "completed" : "failed";
  return { id, outcome, error, messages: kept, state: reached, pendingInterrupts, events, warnings };
}

// Standard output is for answers. A failed run is in its answer, any other error is worth seeing.
globalThis.console = new Console(process.stderr);
const complain = console.error;
console.error = (...args) => args[0] === "Agent execution failed:" || complain(...args);

// One after the other: the console is shared.
for await (const line of createInterface({ input: process.stdin })) {
  process.stdout.write(`${JSON.stringify(await run(JSON.parse(line)))}\n`);
}
