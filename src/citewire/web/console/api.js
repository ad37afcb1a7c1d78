// @ts-check
// What the console asks of the server. The session of the page speaks for it.

import { WireError } from "../retry.js";
import { say } from "../words.js";

/** @typedef {{messageId: string, runId: string, agent: string, at: string, text: string, sources: string[],
 *   verdicts: Record<string, number>}} Answer */
/** @typedef {{threadId: string, updatedAt: string | null, answers: Answer[], more: number}} ThreadAnswers */
/** @typedef {{at: string, answers: number, verdicts: Record<string, number>}} Bucket */
/** @typedef {{n: number, at: string, what: string}} Step */
/** @typedef {{who: string, event: string, at: string, dwellMs?: number}} Look */
/** @typedef {{status: string, at: string, source?: string, sha256?: string, page?: number}} Judged */
/** @typedef {{message: string, key: string, at: string, quote: string, cites: any, verdict: Judged | null,
 *   earlier: Judged[], reviews: Look[]}} OnRecord */
/** @typedef {{threadId: string, messageId: string, key: string, status: string, quote: string, at: string,
 *   page: number | null, boxes: {page: number, left: number, top: number, right: number, bottom: number}[],
 *   isCurrent: boolean}} Mention */
/** @typedef {Record<string, string | number | undefined>} Query */

/** A path with its query; what is empty is left out. @param {string} path @param {Query} [query] */
export function target(path, query = {}) {
  const given = Object.entries(query).filter(([, value]) => value !== undefined && value !== "");
  const text = new URLSearchParams(given.map(([name, value]) => [name, String(value)])).toString();
  return text ? `${path}?${text}` : path;
}

/** What the server says. Throws a `WireError`. @param {string} path
 * @param {{method?: string, body?: any, signal?: AbortSignal}} [options] @returns {Promise<any>} */
export async function ask(path, { method = "GET", body, signal } = {}) {
  const given = body === undefined ? {} : { body: JSON.stringify(body), headers: { "Content-Type": "application/json" } };
  const answer = await fetch(path, { method, signal, ...given }).catch((error) => {
    throw signal?.aborted ? error : new WireError("unreachable", say("failed.reach"));
  });
  if (answer.status === 204) return null;
  const said = await answer.json().catch(() => null);
  if (answer.ok && said !== null) return said;
  throw new WireError(said?.error?.code ?? "failed", said?.error?.message ?? answer.statusText, answer.status);
}

/** What to tell of an error. @param {unknown} error */
export function trouble(error) {
  if (error instanceof WireError && [401, 403].includes(error.status)) return say("failed.session");
  return say("failed", { error: error instanceof Error ? error.message : String(error) });
}

/** An id as a part of a path. */
export const part = encodeURIComponent;
