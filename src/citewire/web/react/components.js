// The elements as React components. Until they are defined, which no server does, their text stands in their place.

import { createElement, useEffect, useLayoutEffect, useMemo, useRef, useSyncExternalStore } from "react";

import { fromAgui } from "../view.js";

/** @typedef {import("../types.js").Cited} Cited */

const useDrawn = typeof document === "undefined" ? useEffect : useLayoutEffect;

let isDefined = false;
/** @type {Promise<void> | undefined} */
let defining;

/** Have the elements defined. @param {() => void} changed */
function define(changed) {
  defining ??= import("../elements.js").then(() => void (isDefined = true));
  void defining.then(changed);
  return () => {};
}

/** An element with properties, of which React 18 would make attributes, as of `className`.
 * @param {string} name @param {Record<string, unknown>} properties @param {string} text
 * @param {{onReview?: (review: import("../types.js").Review) => void} & Record<string, any>} props */
function useElement(name, properties, text, { onReview, className, ...props }) {
  const ref = useRef(/** @type {HTMLElement | null} */ (null));
  const isReady = useSyncExternalStore(define, () => isDefined, () => false);
  useDrawn(() => void (isReady && ref.current && Object.assign(ref.current, properties)), [isReady, properties]);
  useDrawn(() => {
    const element = ref.current;
    const tell = (/** @type {any} */ { detail }) => onReview?.(detail);
    element?.addEventListener("cite-review", tell);
    return () => element?.removeEventListener("cite-review", tell);
  }, [onReview]);
  return createElement(name, { ...props, class: className, ref }, isReady ? null : text);
}

/** The view of what was given as an answer, as a property of elements, and what else was given. @param {any} props */
function useView({ answer, message, agUiState, isStreaming, stateKey, ...props }) {
  const properties = useMemo(
    () => ({ view: answer ?? fromAgui(message, agUiState, { streaming: isStreaming, stateKey }) }),
    [answer, message, agUiState, isStreaming, stateKey],
  );
  return { properties, props };
}

/** @type {typeof import("./index.js").CiteAnswer} */
export function CiteAnswer(given) {
  const { properties, props } = useView(given);
  return useElement("cite-answer", properties, properties.view.text, props);
}

// What has `for` finds its view by itself.
const NONE = {};

/** @param {string} name @returns {(props: import("./index.js").LinkedProps) => import("react").ReactElement} */
const linked = (name) =>
  function Linked(given) {
    const { properties, props } = useView(given);
    return useElement(name, props.for ? NONE : properties, "", props);
  };

export const CiteSources = linked("cite-sources");
export const CiteSummary = linked("cite-summary");

const CHIP = { border: "1px solid var(--cite-line, #8886)", borderRadius: "1em", padding: "0 .4em" };
const ALARM = { textDecoration: "underline wavy var(--cite-bad, #b3261e)" };
const QUIET = { textDecoration: "underline dotted" };

/** What stands before the marker, and how the whole looks.
 * @type {Record<import("./index.js").CitationVariant, (cited: Cited) => [words: string, style: Record<string, string>, after?: string]>} */
const VARIANTS = {
  text: (cited) => [anchor(cited), {}],
  linter: (cited) => [anchor(cited), ["altered", "missed"].includes(cited.status) ? ALARM : QUIET],
  chip: (cited) => [anchor(cited), CHIP],
  brackets: (cited) => [`[${anchor(cited)}`, {}, "]"],
  superscript: () => ["", { verticalAlign: "super", fontSize: "smaller" }],
  footnote: () => ["", {}],
  badge: ({ source }) => [source.title ?? "", CHIP],
};

/** @param {Cited} cited */
const anchor = ({ citation, quote }) => String(citation.anchorText ?? quote);

/** @type {typeof import("./index.js").CitationComponent} */
export function CitationComponent(props) {
  const { citation, verification = null, isLoading = false, variant = "text", ...rest } = props;
  const { citationKey = "", messageId = "", onReview, children, ...attributes } = rest;
  const checked = isLoading ? null : verification;
  const properties = useMemo(() => {
    const record = { citations: { [citationKey]: citation }, verifications: { [citationKey]: checked } };
    return { messageId, cited: fromAgui({ id: "" }, { deepcitation: { messages: { "": record } } }).cited };
  }, [messageId, citationKey, citation, checked]);
  const [cited] = properties.cited;
  const [words, style, after] = VARIANTS[variant](cited);
  const marker = useElement("cite-marker", properties, `[${cited.number}]`, { onReview });
  return createElement("span", { ...attributes, "data-variant": variant }, children, createElement("span", { style }, words, marker, after));
}
