// Stands for CopilotKit's renderer of Markdown (with diagrams and highlighting, 200 MB): citewire shows the answers.
export const Streamdown = ({ children }) => children;
