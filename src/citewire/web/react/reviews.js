// What people did with citations, kept until the next run takes it along in its state.

import { isObject } from "../patch.js";

/** An object in which no id means anything of its own, `__proto__` neither. @returns {Record<string, any>} */
const bare = () => Object.create(null);

/** The state for the next run. What it holds of reviews went with an earlier run and is not sent again.
 * @type {typeof import("./index.js").withReviews} */
export function withReviews(state, reviews, stateKey = "deepcitation") {
  const held = isObject(state) ? state : {};
  const record = isObject(held[stateKey]) ? held[stateKey] : { citations: {}, verifications: {}, messages: {} };
  const { reviews: _sent, ...rest } = record;
  const noted = bare();
  for (const { messageId, key, ...review } of reviews) ((noted[messageId] ??= bare())[key] ??= []).push(review);
  return { ...held, [stateKey]: reviews.length ? { ...rest, reviews: noted } : rest };
}

/** @type {typeof import("./index.js").createReviews} */
export function createReviews(stateKey) {
  /** @type {import("../types.js").Review[]} */
  let noted = [];
  return {
    note: (review) => void noted.push(review),
    into: (state) => {
      const taken = noted;
      noted = [];
      return withReviews(state, taken, stateKey);
    },
  };
}
