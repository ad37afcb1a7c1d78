// Every word of the chat page, beside those of the elements.

import { addWords, say } from "../words.js";

addWords({
  "chat.menu": "Conversations and sources",
  "chat.new": "New conversation",
  "chat.log": "Conversation",
  "chat.question": "Your question",
  "chat.ask": "Ask",
  "chat.ask.hint": "Ask a question",
  "chat.stop": "Stop",
  "chat.retry": "Try again",
  "chat.latest": "↓ Latest",
  "chat.you": "You asked",
  "chat.answer": "Answer",
  "chat.posted": "Posted by a client: this is no answer of this server.",
  "chat.waiting": "Looking for an answer …",
  "chat.failed": "The answer is not complete: {error}.",
  "chat.gone": "There is no such conversation. It may have been deleted.",
  "chat.again": "Answer again",
  "chat.uncited": "Mark sentences without a citation",
  "chat.expired": "Your session has ended. Sign in again to go on.",
  "status.connecting": "Connecting …",
  "status.retrying": "The connection was lost. Trying to reach the server again …",
  "status.lost": "The server cannot be reached.",
  "welcome.title": "What would you like to know?",
  "welcome.text": "Every citation in an answer is looked up in its source, word for word, and you see the place.",
  "welcome.sources": "Drop files here, or paste a link, to ask about sources of your own.",
  "work.call": "Used {name}",
  "work.calling": "Using {name} …",
  "work.given": "Given",
  "work.result": "Result",
  "work.thought": "Thought it over",
  "work.seconds": { one: "Thought for a second", other: "Thought for {count} seconds" },
  "recent": "Conversations",
  "recent.none": "What you ask is listed here, in this browser only.",
  "recent.forget": "Take “{title}” off the list",
  "shelf": "Sources",
  "shelf.none": "There are none yet.",
  "shelf.add": "Add files",
  "shelf.url": "Address of a source",
  "shelf.url.hint": "https://…",
  "shelf.url.add": "Add",
  "shelf.drop": "Drop files to add them as sources",
  "shelf.more": { one: "and {count} more", other: "and {count} more" },
  "shelf.pages": { one: "{count} page", other: "{count} pages" },
  "source.sending": "Uploading, {percent}",
  "source.fetching": "Fetching …",
  "source.waiting": "Waiting to be read",
  "source.reading": "Being read …",
  "source.ready": "Ready",
  "source.failed": "Could not be used: {reason}",
  "tray": "Sources that were added",
  "tray.dismiss": "Dismiss {name}",
  "viewer.close": "Close",
  "viewer.before": "Page before",
  "viewer.after": "Next page",
  "viewer.page": "Page {page} of {pages}",
  "viewer.smaller": "Smaller",
  "viewer.larger": "Larger",
  "viewer.proof": "Link to the proof",
  "viewer.picture": "Page {page} of {source}",
  "viewer.loading": "Loading …",
  "viewer.lost": "This page cannot be shown: {reason}.",
});

/** Give the nodes of a page their words. @param {ParentNode} root */
export function speak(root) {
  for (const node of /** @type {NodeListOf<HTMLElement>} */ (root.querySelectorAll("[data-say], [data-label], [data-hint]"))) {
    const { say: words, label, hint } = node.dataset;
    if (words) node.textContent = say(words);
    if (label) node.ariaLabel = say(label);
    if (hint) node.setAttribute("placeholder", say(hint));
  }
}
