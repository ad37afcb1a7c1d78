// The wire as TypeScript sees it: what comes in events, what a thread shows, what the elements are given.
// Whatever comes over the wire is foreign; these types say what is there once it was looked at.

/** @typedef {Record<string, any>} Json */

/** An AG-UI event, as it came. @typedef {Json & {type: string}} WireEvent */

/** What was wrong with what came; `path` is `#` and the number of the event.
 * @typedef {{code: string, path: string, message: string}} Problem */

/** A citation as it stands on a message: an entry of `state.citations[messageId]`, normalised.
 * @typedef {{id: string, index: number, title?: string, url?: string, snippet?: string, sourceType?: string,
 *   iconUrl?: string, publishedAt?: string | number, extra?: any}} Citation */

/** `content` is text, or a list of parts in a message that came whole.
 * @typedef {Json & {id: string, role: string, content?: any, reasoning?: string, reasoningDurationMs?: number,
 *   citations?: readonly Citation[]}} Message */

/** @typedef {{id: string, name: string, args: Json, status: "running" | "complete", result?: any}} ToolCall */

/** @typedef {Json & {id: string, name?: string, status: "running" | "complete" | "suspended" | "error",
 *   messages: readonly Message[], toolCalls: readonly ToolCall[]}} Subagent */

/** @typedef {{type: "state_update", data: Json} | {type: "custom", name: string, data: any}} Emitted */

/** What a front end shows. What did not change since the last view is the same object as there.
 * @typedef {{status: "idle" | "running" | "error", isLoading: boolean, error: any, runId: string | null,
 *   messages: readonly Message[], toolCalls: readonly ToolCall[], state: any, interrupts: readonly Json[],
 *   subagents: readonly Subagent[], events: readonly Emitted[], problems: readonly Problem[]}} View */

/** @typedef {"verified" | "partial" | "altered" | "missed" | "pending" | "skipped"} Verdict */

/** Where the claim of a citation stands in the text, in UTF-16 units, and how that is known.
 * @typedef {{start: number, end: number, origin: "exact" | "block" | "derived" | "repaired" | "unknown"}} Claim */

/** A record of `state.deepcitation.messages[id].citations`.
 * @typedef {Json & {citationNumber?: number, fullPhrase?: string, anchorText?: string, pageNumber?: number,
 *   attachmentId?: string, url?: string, title?: string}} CitationRecord */

/** One change of a quote: what it says and what the source says instead.
 * @typedef {{quote: string, source: string, kind: string, harmless: boolean}} Difference */

/** A record of `state.deepcitation.messages[id].verifications`; ours is in `citewire`.
 * @typedef {Json & {status?: string, evidence?: {src?: string}, citewire?: Json & {status?: Verdict, reason?: string,
 *   diff?: Difference[], page?: number, proof?: string, warnings?: string[],
 *   origin?: "posted" | "client_tool"}}} VerificationRecord */

/** One citation of an answer, whichever dialect it came in.
 * @typedef {{key: string, label: string, number: string | number, status: Verdict, citation: CitationRecord,
 *   verification: VerificationRecord | null, source: {id?: string, title?: string, url?: string, page?: number,
 *   kind?: string}, quote: string, claim: Claim | null, insertAt: number | null}} Cited */

/** An answer as the elements take it.
 * @typedef {{id: string, text: string, status: "streaming" | "extracting" | "verifying" | "complete" | "error",
 *   error?: string, cited: Cited[]}} AnswerView */

/** A source of the server.
 * @typedef {{id: string, name: string, from: "upload" | "url" | "folder", state: "waiting" | "reading" | "ready" |
 *   "failed", reason: string | null, addedAt: string, size: number | null, sha256: string | null,
 *   kind: string | null, pages: number | null, title: string | null, url: string | null}} Source */

/** @typedef {{sources: Source[], reading: number, total: number, next: string | null}} SourceList */

/** What somebody who looked at a citation did.
 * @typedef {{messageId: string, key: string, event: "popover_opened" | "popover_closed" | "citation_reviewed",
 *   at?: string, dwellMs?: number}} Review */

export {};
