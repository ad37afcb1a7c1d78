// The real npm `ably` as a long-lived process: a JSON line {id, do, client, …} in, a JSON line out with what it
// gave, {id, result} or {id, error}; and a line {client, channel, message} or {client, channel, annotation} for
// each that a channel was told to listen for. Input must be ASCII: readline also ends lines at U+2028.

import { Console } from "node:console";
import { createInterface } from "node:readline";

import Ably from "ably";

// Standard output is for answers.
globalThis.console = new Console(process.stderr);

const clients = new Map();
const say = (line) => process.stdout.write(`${JSON.stringify(line)}\n`);

/** A result as JSON: of a page also whether there is another. */
const plain = (value) =>
  value && typeof value.hasNext === "function" ? { items: value.items, hasNext: value.hasNext() } : value;

const todo = {
  open({ client, rest, options }) {
    const quiet = { logLevel: 0, disableConnectivityCheck: true, disconnectedRetryTimeout: 50 };
    clients.set(client, new (rest ? Ably.Rest : Ably.Realtime)({ ...quiet, ...options }));
  },

  async state({ client, is }) {
    const { connection } = clients.get(client);
    await connection.whenState(is);
    return { id: connection.id, state: connection.state, reason: connection.errorReason };
  },

  async listen({ client, channel, options, annotations }) {
    const found = clients.get(client).channels.get(channel, options);
    const kind = annotations ? "annotation" : "message";
    const change = await (annotations ? found.annotations : found).subscribe((each) => {
      say({ client, channel, [kind]: each });
    });
    return change && { resumed: change.resumed, hasBacklog: change.hasBacklog };
  },

  /** Calls a method of a channel, or without one of the client, by its path: `annotations.publish`. */
  async call({ client, channel, method, args }) {
    let owner = clients.get(client);
    if (channel) owner = owner.channels.get(channel);
    const path = method.split(".");
    for (const name of path.slice(0, -1)) owner = owner[name];
    return plain(await owner[path.at(-1)](...args));
  },

  /** All pages of a list. */
  async pages({ client, channel, method, args }) {
    let owner = clients.get(client).channels.get(channel);
    const path = method.split(".");
    for (const name of path.slice(0, -1)) owner = owner[name];
    const pages = [];
    for (let page = await owner[path.at(-1)](...args); page; page = await page.next()) pages.push(page.items);
    return pages;
  },

  async close({ client }) {
    const { connection } = clients.get(client);
    connection.close();
    await connection.whenState("closed");
  },
};

createInterface({ input: process.stdin }).on("line", async (line) => {
  const { id, ...given } = JSON.parse(line);
  try {
    say({ id, result: (await todo[given.do](given)) ?? null });
  } catch ({ code, statusCode, message }) {
    say({ id, error: { code, statusCode, message } });
  }
});
