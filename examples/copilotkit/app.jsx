// A chat of CopilotKit whose answers are shown by citewire. The agent is an AG-UI endpoint: no runtime in between.
import { HttpAgent } from "@ag-ui/client";
import { CopilotChat, CopilotChatAssistantMessage, CopilotKitProvider, useAgent } from "@copilotkit/react-core/v2";
import "@copilotkit/react-core/v2/styles.css";
import { CiteAnswer, CiteSources, CiteSummary, createReviews, useCitations } from "citewire/react";
import { createRoot } from "react-dom/client";

// Where citewire is, and a key or a token of it: #server=http://127.0.0.1:8000&key=…
const { server, key } = Object.fromEntries(new URLSearchParams(location.hash.slice(1)));
const agent = new HttpAgent({ url: `${server}/agui`, headers: { Authorization: `Bearer ${key}` } });
const agents = { default: agent };

// Who looked at which proof goes along with the next question.
const reviews = createReviews();
agent.subscribe({ onRunInitialized: ({ state }) => ({ state: reviews.into(state) }) });

function Answer(props) {
  const { id, content } = props.message;
  const { agent } = useAgent();
  const { status, summary } = useCitations({ agUiState: agent.state, messageId: id });
  return (
    <CopilotChatAssistantMessage {...props}>
      {({ toolCallsView }) => (
        <article data-status={status}>
          {content && <CiteAnswer id={id} message={props.message} agUiState={agent.state} onReview={reviews.note} />}
          {summary.total > 0 && <CiteSummary for={id} />}
          {summary.total > 0 && <CiteSources for={id} />}
          {toolCallsView}
        </article>
      )}
    </CopilotChatAssistantMessage>
  );
}

createRoot(document.getElementById("root")).render(
  <CopilotKitProvider agents__unsafe_dev_only={agents} enableInspector={false}>
    <CopilotChat messageView={{ assistantMessage: Answer }} />
  </CopilotKitProvider>,
);
