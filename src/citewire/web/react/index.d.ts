import type { HTMLAttributes, ReactElement, ReactNode } from "react";

import type { AnswerView, CitationRecord, Review, VerificationRecord } from "../types.js";

export type { AnswerView, CitationRecord, Review, VerificationRecord };

/** `altered` is a part of `missed`; the total is verified + partial + missed + pending + skipped. */
export interface CitationSummary {
  total: number;
  verified: number;
  partial: number;
  missed: number;
  altered: number;
  pending: number;
  skipped: number;
}

export interface MessageCitations {
  /** By key. */
  citations: Readonly<Record<string, CitationRecord>>;
  /** By the key of their citation; one that is not there yet is pending. */
  verifications: Readonly<Record<string, VerificationRecord>>;
  status: AnswerView["status"];
  summary: Readonly<CitationSummary>;
  /** What went wrong, where the status is `error`. */
  error?: string;
}

export interface UseCitationsOptions {
  /** The state that the agent shares: `agent.state` of `@ag-ui/client`. It may be anything, also nothing yet. */
  agUiState: unknown;
  messageId: string;
  /** Where in the state the citations are; `deepcitation` where it is not said. */
  stateKey?: string;
}

/**
 * The citations of a message and what became of them. A message that nothing is known of has none and is complete.
 * The result is the same object for as long as the record of the message is.
 */
export function useCitations(options: UseCitationsOptions): MessageCitations;
export { useCitations as useDeepCitationAgUI };

/**
 * The state to send with the next run: what people did with citations is in it, for the server to keep.
 * What `state` holds of that already went with an earlier run, and is left out.
 */
export function withReviews(state: unknown, reviews: readonly Review[], stateKey?: string): Record<string, unknown>;

export interface Reviews {
  /** Keep one until the next run: give this to the components as `onReview`. */
  note(review: Review): void;
  /** `withReviews` with all that was noted since it was last asked for. */
  into(state: unknown): Record<string, unknown>;
}

/** What keeps reviews between runs; one for each agent. */
export function createReviews(stateKey?: string): Reviews;

/** How a citation is shown: as its number, or behind the words that it supports or the name of its source. */
export type CitationVariant = "text" | "linter" | "chip" | "brackets" | "superscript" | "footnote" | "badge";

interface Reviewed {
  /** Somebody opened or closed a card, or looked at one for two seconds. */
  onReview?: (review: Review) => void;
}

export interface CitationComponentProps extends Reviewed, Omit<HTMLAttributes<HTMLElement>, "content"> {
  citation: CitationRecord;
  verification?: VerificationRecord | null;
  /** Show it as being checked, whatever the verification says. */
  isLoading?: boolean;
  variant?: CitationVariant;
  /** Its key among the citations of the message, and the message: what a review is told under. */
  citationKey?: string;
  messageId?: string;
  /** What stands before it. */
  children?: ReactNode;
}

/** One citation: a marker that opens a card with the proof. */
export function CitationComponent(props: CitationComponentProps): ReactElement;

/** An AG-UI message with the state of its agent, or an answer in the one shape of `citewire/view`. */
export type Answered =
  | { message: { id: string; content?: unknown }; agUiState: unknown; isStreaming?: boolean; stateKey?: string }
  | { answer: AnswerView };

type Attributes = Omit<HTMLAttributes<HTMLElement>, "children">;

export type CiteAnswerProps = Answered & Reviewed & Attributes;

/** The text of an answer, its Markdown shown, with its markers. */
export function CiteAnswer(props: CiteAnswerProps): ReactElement;

/** The `id` of a `CiteAnswer`, which numbers then lead back to; or the answer itself. */
export type LinkedProps = ({ for: string } | Answered) & Attributes;

/** The sources of an answer, the worst first. */
export function CiteSources(props: LinkedProps): ReactElement;

/** How many citations of an answer have which verdict. */
export function CiteSummary(props: LinkedProps): ReactElement;
