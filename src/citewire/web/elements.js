// @ts-check
// Defines the elements. One module to load on any page: <script type="module" src="…/web/elements.js"></script>

import { CiteAnswer } from "./answer.js";
import { CiteCard } from "./card.js";
import { CiteMarker } from "./marker.js";
import { CiteSources } from "./sources.js";
import { CiteSummary } from "./summary.js";

export { setWords } from "./words.js";
export { fromAbly, fromAgui, fromSalesforce } from "./view.js";
export { CiteAnswer, CiteCard, CiteMarker, CiteSources, CiteSummary };

const ELEMENTS = {
  "cite-answer": CiteAnswer,
  "cite-card": CiteCard,
  "cite-marker": CiteMarker,
  "cite-sources": CiteSources,
  "cite-summary": CiteSummary,
};

// A page may load this twice, from two places.
for (const [name, element] of Object.entries(ELEMENTS)) customElements.get(name) ?? customElements.define(name, element);
