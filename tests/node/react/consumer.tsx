// An application in TypeScript that uses all of the package.
import { useState } from "react";
import { CitationComponent, CiteAnswer, CiteSources, CiteSummary, createReviews, useCitations, useDeepCitationAgUI,
  withReviews, type CitationVariant, type MessageCitations, type Review } from "citewire/react";
import { fromSalesforce } from "citewire/view";
import { setWords } from "citewire/words";
import type { AnswerView, Cited } from "citewire/types";

setWords({ "status.verified": "Geprüft" }, "de");
const variant: CitationVariant = "superscript";
const alias: typeof useCitations = useDeepCitationAgUI;

export function Message({ id, text, state }: { id: string; text: string; state: unknown }) {
  const [reviews] = useState(() => createReviews());
  const found: MessageCitations = useCitations({ agUiState: state, messageId: id });
  const next: Record<string, unknown> = reviews.into(withReviews(state, [] as Review[], "key"));
  const answer: AnswerView = fromSalesforce({});
  const numbers = answer.cited.map((cited: Cited) => cited.number);
  // @ts-expect-error: there is no such status
  const isWrong = found.status === "done";
  // @ts-expect-error: a message id is needed
  alias({ agUiState: state });
  return (
    <section title={numbers.join() + Object.keys(next) + isWrong}>
      {found.summary.altered > 0 && found.error}
      <CiteAnswer message={{ id, content: text }} agUiState={state} isStreaming onReview={reviews.note} className="a" />
      <CiteSources answer={answer} lang="de" />
      <CiteSummary answer={answer} />
      {/* @ts-expect-error: a message without its state has no citations */}
      <CiteSummary message={{ id }} />
      {Object.entries(found.citations).map(([key, citation]) => (
        <CitationComponent key={key} citation={citation} verification={found.verifications[key]}
          isLoading={found.status === "verifying"} variant={variant} citationKey={key} messageId={id} />
      ))}
      {/* @ts-expect-error: there is no such variant */}
      <CitationComponent citation={{}} variant="neon" />
    </section>
  );
}
