// The chat of CopilotKit as it is. Tests call its hook as `window.chat`.
import { HttpAgent } from "@ag-ui/client";
import { CopilotKit, useCopilotChatInternal } from "@copilotkit/react-core";
import { CopilotChat } from "@copilotkit/react-core/v2";
import { createRoot } from "react-dom/client";

const { server, key } = Object.fromEntries(new URLSearchParams(location.hash.slice(1)));
const agents = { default: new HttpAgent({ url: `${server}/agui`, headers: { Authorization: `Bearer ${key}` } }) };

function Chat() {
  window.chat = useCopilotChatInternal();
  return <CopilotChat />;
}

createRoot(document.querySelector("div")).render(
  <CopilotKit agents__unsafe_dev_only={agents} enableInspector={false}>
    <Chat />
  </CopilotKit>,
);
