// A chat with the real client. What the hook gave and what was reviewed is there to be looked at.
import { HttpAgent } from "@ag-ui/client";
import { StrictMode, useState, version } from "react";
import { createRoot } from "react-dom/client";
import { CitationComponent, CiteAnswer, CiteSources, CiteSummary, createReviews, useCitations } from "citewire/react";

const { server, key } = Object.fromEntries(new URLSearchParams(location.hash.slice(1)));
const agent = new HttpAgent({ url: `${server}/agui`, headers: { Authorization: `Bearer ${key}` }, threadId: version });
const reviews = createReviews();
Object.assign(window, { version, reviewed: [], hooked: null });
const onReview = (review) => (reviews.note(review), reviewed.push(review));

function Answer({ message, state }) {
  const found = (window.hooked = useCitations({ agUiState: state, messageId: message.id }));
  return (
    <article data-status={found.status}>
      <CiteAnswer id={message.id} message={message} agUiState={state} onReview={onReview} className="mine" />
      <CiteSummary message={message} agUiState={state} />
      <CiteSources for={message.id} />
      {Object.entries(found.citations).map(([key, citation], at) => (
        <CitationComponent key={key} citation={citation} verification={found.verifications[key]} isLoading={at > 0}
          variant={at ? "superscript" : "badge"} citationKey={key} messageId={message.id} onReview={onReview}>
          see{" "}
        </CitationComponent>
      ))}
    </article>
  );
}

function Chat() {
  const [{ messages, state }, show] = useState({ messages: [], state: {} });
  const shown = () => show({ messages: [...agent.messages], state: agent.state });
  const ask = async () => {
    agent.addMessage({ id: crypto.randomUUID(), role: "user", content: "What is the refund policy?" });
    agent.setState(reviews.into(agent.state));
    await agent.runAgent({}, { onMessagesChanged: shown, onStateChanged: shown });
  };
  const answers = messages.filter(({ role, content }) => role === "assistant" && content);
  return (
    <main>
      <button onClick={ask}>Ask</button>
      {answers.map((message) => <Answer key={message.id} message={message} state={state} />)}
    </main>
  );
}

createRoot(document.querySelector("div")).render(<StrictMode><Chat /></StrictMode>);
