// What a server renders and a browser takes over. Some citations are as strange as foreign data gets.
import { createElement as h } from "react";
import { CitationComponent, CiteAnswer, CiteSources, CiteSummary } from "citewire/react";

const SCRIPT = "<img src=x onerror=alert(1)>";
const [message, citation] = [{ id: "m", content: `30 days [1] ${SCRIPT}` }, { fullPhrase: SCRIPT, citationNumber: 1 }];
const record = { citations: { k: citation }, verifications: { k: { status: "not_found" } }, status: "complete" };
const answer = { message, agUiState: { deepcitation: { messages: { m: record } } } };
const variants = ["text", "linter", "chip", "brackets", "superscript", "footnote", "badge"];
const strange = [null, 3, "text", [], { anchorText: {}, citationNumber: [], attachmentId: SCRIPT }];
export const page = h("main", null,
  h(CiteAnswer, { ...answer, id: "a", className: "mine" }), h(CiteSummary, answer), h(CiteSources, { for: "a" }),
  h(CiteAnswer, { message: null, agUiState: "no state" }),
  variants.map((variant) => h(CitationComponent, { key: variant, citation, variant, citationKey: "k" }, SCRIPT)),
  strange.map((citation, at) => h(CitationComponent, { key: at, citation, verification: citation, citationKey: "__proto__" })),
);
