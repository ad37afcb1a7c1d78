import { createReviews, withReviews } from "citewire/react";

const [messageId, at] = ["a/b", "2026-11-16T08:00:00.000Z"];
const opened = { messageId, key: "__proto__", event: "popover_opened", at };
const closed = { messageId, key: "k", event: "popover_closed", at, dwellMs: 3 };
const held = { theme: "dark", deepcitation: { messages: { m: 1 }, reviews: { old: {} } } };
const reviews = createReviews();
reviews.note(opened);
const first = reviews.into(held);
reviews.note(closed);
console.log(JSON.stringify([first, reviews.into(first), reviews.into(held), withReviews(null, [closed, closed], "x"), held, {}.event ?? 0]));
