export { CitationComponent, CiteAnswer, CiteSources, CiteSummary } from "./components.js";
export { useCitations, useCitations as useDeepCitationAgUI } from "./hook.js";
export { createReviews, withReviews } from "./reviews.js";
