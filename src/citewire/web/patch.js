// JSON Patch (RFC 6902) over JSON Pointer (RFC 6901). What a patch does not touch is shared between before and
// after; a patch that cannot be applied throws `PatchError` and changes nothing.

const UNSAFE = new Set(["__proto__", "constructor", "prototype"]);
const INDEX = /^(?:0|[1-9][0-9]{0,14})$/;
// Values that `copy` may repeat in a document before it is replaced: copies of copies double it every time.
const MOST_COPIES = 1_000_000;
// Deeper nesting breaks code that walks the value, JSON.stringify too.
const MOST_LEVELS = 500;

export class PatchError extends Error {}

/** JSON that is nested too deeply to be kept. */
export class TooDeep extends Error {}

/** @param {unknown} value @returns {value is Record<string, any>} */
export function isObject(value) {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

/** A value that came, to be kept. Throws `TooDeep`. @template T @param {T} value @returns {T} */
export function kept(value, level = 0) {
  if (typeof value !== "object" || value === null) return value;
  if (level === MOST_LEVELS) throw new TooDeep("nested too deeply");
  for (const inner of Object.values(value)) kept(inner, level + 1);
  return value;
}

/** The tokens of a pointer, none of which may be an unsafe key. @param {string} pointer */
export function parsePointer(pointer) {
  if (pointer === "") return [];
  if (!pointer.startsWith("/")) throw new PatchError(`a pointer starts with /: ${pointer}`);
  if (/~(?![01])/.test(pointer)) throw new PatchError(`~ is followed by neither 0 nor 1: ${pointer}`);
  const tokens = pointer.slice(1).split("/").map((token) => token.replaceAll("~1", "/").replaceAll("~0", "~"));
  const unsafe = tokens.find((token) => UNSAFE.has(token));
  if (unsafe !== undefined) throw new PatchError(`${unsafe} is not a safe key: ${pointer}`);
  return tokens;
}

/** Whether two JSON values are equal. @param {any} one @param {any} other @returns {boolean} */
export function same(one, other) {
  if (one === other) return true;
  if (typeof one !== "object" || typeof other !== "object" || one === null || other === null) return false;
  if (Array.isArray(one) !== Array.isArray(other)) return false;
  const names = Object.keys(one);
  if (names.length !== Object.keys(other).length) return false;
  return names.every((name) => Object.hasOwn(other, name) && same(one[name], other[name]));
}

/** A JSON value that is patched. What it hands out never changes. */
export class Document {
  #copies = MOST_COPIES;
  /** Containers that this patch has made, which nobody else holds. @type {Set<object>} */
  #own = new Set();

  /** @param {any} value */
  constructor(value) {
    this.value = kept(value);
  }

  /** Hold another value. @param {any} value */
  replace(value) {
    this.value = kept(value);
    this.#copies = MOST_COPIES;
  }

  /** All operations, or none. @param {readonly any[]} operations */
  apply(operations) {
    this.#own = new Set();
    this.value = operations.reduce((root, operation) => this.#applied(root, operation), this.value);
  }

  /** @param {any} root @param {any} operation */
  #applied(root, operation) {
    if (!isObject(operation)) throw new PatchError("an operation is not an object");
    const path = pointerIn(operation, "path");
    switch (operation.op) {
      case "add":
      case "replace":
        return this.#put(root, path, kept(valueIn(operation)), operation.op);
      case "remove":
        return this.#remove(root, path);
      case "copy":
        return this.#put(root, path, this.#copied(get(root, pointerIn(operation, "from"))), "add");
      case "move":
        return this.#move(root, pointerIn(operation, "from"), path);
      case "test":
        if (same(get(root, path), valueIn(operation))) return root;
        throw new PatchError(`the test failed: ${operation.path}`);
    }
    throw new PatchError("an operation is add, remove, replace, move, copy or test");
  }

  /** @param {any} value */
  #copied(value) {
    const left = [value];
    for (let inner; left.length; ) {
      if (this.#copies-- <= 0) throw new PatchError("too much was copied");
      inner = left.pop();
      if (typeof inner === "object" && inner !== null) for (const each of Object.values(inner)) left.push(each);
    }
    this.#own = new Set(); // what is copied stands in two places now
    return value;
  }

  /** @param {any} root @param {string[]} from @param {string[]} to */
  #move(root, from, to) {
    if (to.length > from.length && from.every((token, at) => token === to[at])) {
      throw new PatchError("a value cannot move into itself");
    }
    const value = get(root, from);
    return this.#put(this.#remove(root, from), to, value, "add");
  }

  /** @param {any} root @param {string[]} path @param {any} value @param {"add" | "replace"} op */
  #put(root, path, value, op) {
    return this.#changed(root, path, value, (parent, last) => {
      if (Array.isArray(parent)) {
        const isNew = op === "add";
        const at = isNew && last === "-" ? parent.length : index(last, parent.length - Number(!isNew));
        parent.splice(at, Number(!isNew), value);
      } else if (op === "replace" && !Object.hasOwn(parent, last)) {
        throw new PatchError(`there is nothing to replace: ${last}`);
      } else {
        parent[last] = value;
      }
    });
  }

  /** @param {any} root @param {string[]} path */
  #remove(root, path) {
    return this.#changed(root, path, null, (parent, last) => {
      child(parent, last);
      if (Array.isArray(parent)) parent.splice(Number(last), 1);
      else delete parent[last];
    });
  }

  /** The root after `change` was made to the parent of what `path` names: the way there is copied, the rest shared.
   * @param {any} root @param {string[]} path @param {any} whole the root where the path is empty
   * @param {(parent: any, last: string) => void} change */
  #changed(root, path, whole, change) {
    const last = path.at(-1);
    if (last === undefined) return whole;
    const made = this.#owned(root);
    let parent = made;
    for (const token of path.slice(0, -1)) parent = parent[token] = this.#owned(child(parent, token));
    change(parent, last);
    return made;
  }

  /** A container that may be changed: a copy, or the one that was made before. @param {any} container */
  #owned(container) {
    if (typeof container !== "object" || container === null) throw new PatchError("there is nothing at this path");
    if (this.#own.has(container)) return container;
    const copy = Array.isArray(container) ? container.slice() : { ...container };
    this.#own.add(copy);
    return copy;
  }
}

/** @param {any} root @param {string[]} path */
function get(root, path) {
  return path.reduce(child, root);
}

/** @param {any} parent @param {string} token */
function child(parent, token) {
  if (Array.isArray(parent)) return parent[index(token, parent.length - 1)];
  if (isObject(parent) && Object.hasOwn(parent, token)) return parent[token];
  throw new PatchError(`there is nothing at this path: ${token}`);
}

/** @param {string} token @param {number} last */
function index(token, last) {
  if (INDEX.test(token) && Number(token) <= last) return Number(token);
  throw new PatchError(`${token} is not an index of this list`);
}

/** @param {Record<string, any>} operation @param {"path" | "from"} name */
function pointerIn(operation, name) {
  if (typeof operation[name] !== "string") throw new PatchError(`an operation needs a string in ${name}`);
  return parsePointer(operation[name]);
}

/** @param {Record<string, any>} operation */
function valueIn(operation) {
  if (!Object.hasOwn(operation, "value")) throw new PatchError("an operation needs a value");
  return operation.value;
}
