// @ts-check
// What is shown is in the address, so that it can be shared, and the browser can go back to it.

export const FILTERS = /** @type {const} */ (["status", "source", "agent", "since", "until"]);
const NAMES = [...FILTERS, "view", "bucket", "thread", "answer", "at", "document", "page"];

/** @typedef {Record<string, string>} Route */

/** @type {Set<(route: Route, before: Route) => void>} */
const listeners = new Set();

/** What is to be shown; what is not said is empty. @returns {Route} */
export function route() {
  const given = new URLSearchParams(location.search);
  return Object.fromEntries(NAMES.map((name) => [name, given.get(name) ?? ""]));
}

let last = route();

/** The address with these changes. @param {Route} changes */
export function linked(changes) {
  const now = Object.entries({ ...route(), ...changes }).filter(([, value]) => value);
  return `?${new URLSearchParams(now)}`;
}

/** Go there. @param {Route} changes @param {{quietly?: boolean}} [options] Quietly: without a step to go back. */
export function go(changes, { quietly = false } = {}) {
  const address = linked(changes);
  if (address === (location.search || "?")) return;
  if (quietly) history.replaceState(null, "", address);
  else history.pushState(null, "", address);
  told();
}

/** Hear of every change. @param {(route: Route, before: Route) => void} listener */
export const onRoute = (listener) => listeners.add(listener);

function told() {
  const [now, before] = [route(), last];
  last = now;
  for (const listener of listeners) listener(now, before);
}

addEventListener("popstate", told);
// Links of ours lead nowhere else; who wants another tab gets one.
addEventListener("click", (event) => {
  const path = /** @type {Element[]} */ (event.composedPath().filter((node) => node instanceof Element));
  const link = path.find((node) => node.hasAttribute("data-route"));
  if (!link || event.button || event.metaKey || event.ctrlKey || event.shiftKey || event.altKey) return;
  event.preventDefault();
  history.pushState(null, "", link.getAttribute("href") ?? "?");
  told();
});
