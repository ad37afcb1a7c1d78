"""The server over the sample documents: `make run`. Open the link that it prints, and ask."""

from importlib.resources import files
from pathlib import Path

from citewire.server.ops.settings import Settings
from citewire.server.serve import run

QUESTIONS = (
    "What is the refund policy?",
    "How many days of holiday do I get?",
    "How much did revenue grow in 2025?",
)

if __name__ == "__main__":
    samples = Path(str(files("citewire") / "samples"))
    run(Settings(sources=(str(samples),), data=".citewire/samples", port=0, log_level="warning"), QUESTIONS)
