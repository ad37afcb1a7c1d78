// @ts-check
// Nodes and addresses. Whatever comes over the wire is foreign: it becomes text, never markup, and no address leads
// anywhere but to the web.

/** A node with these properties and children. @template {keyof HTMLElementTagNameMap} Name
 * @param {Name} name @param {Record<string, any>} [properties] @param {(Node | string)[]} content
 * @returns {HTMLElementTagNameMap[Name]} */
export function make(name, properties = {}, ...content) {
  const node = Object.assign(document.createElement(name), properties);
  node.append(...content);
  return node;
}

const PICTURE = /^data:image\/(?:avif|jpeg|png|webp);base64,/;

/** An address that may be opened, or null. @param {unknown} value */
export function address(value) {
  if (typeof value !== "string" || !URL.canParse(value, document.baseURI)) return null;
  const url = new URL(value, document.baseURI);
  return /^https?:$/.test(url.protocol) ? url.href : null;
}

/** An address that a picture may be loaded from, or null. @param {unknown} value */
export const pictureAddress = (value) => (typeof value === "string" && PICTURE.test(value) ? value : address(value));

/** An address in the text of an answer: one that says itself that it leads to the web. @param {string} value */
export const webAddress = (value) => (/^https?:\/\//i.test(value) ? address(value) : null);
