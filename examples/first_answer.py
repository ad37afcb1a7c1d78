"""One answer, as a provider sent it, read, converted and shown: what `make run` prints."""

import citewire
from citewire.codec import pretty

# What an assistant with web search might answer: the span covers the link that the model wrote.
RESPONSE = {
    "object": "response",
    "id": "resp_1",
    "output": [
        {
            "type": "message",
            "role": "assistant",
            "content": [
                {
                    "type": "output_text",
                    "text": "Refunds are available within 30 days. "
                    "([example.com](https://example.com/refunds)) Contact support to start one.",
                    "annotations": [
                        {
                            "type": "url_citation",
                            "start_index": 38,
                            "end_index": 82,
                            "title": "Refund policy",
                            "url": "https://example.com/refunds",
                        }
                    ],
                }
            ],
        }
    ],
}


def main() -> None:
    answer = citewire.read(RESPONSE)
    print(f"An answer in {citewire.detect(RESPONSE)}, shown in the terminal:\n")
    print(citewire.render(answer, "terminal"))

    written = citewire.write(answer, "salesforce")
    print("\nThe same answer as Salesforce wants it:\n")
    print(pretty(written.payload))
    print("\nWhat that could not say:\n")
    for loss in written.losses:
        print(f"  {loss}")


if __name__ == "__main__":
    main()
