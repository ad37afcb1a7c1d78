"""Threads and their channels in one process, with what clients cite there."""

from __future__ import annotations

from collections import Counter
from typing import Any

from citewire import codec
from citewire.channels.annotation import AnnotationDraft
from citewire.channels.channels import HistoryQuery as Which
from citewire.channels.message import Action, Message, Publisher
from citewire.channels.store import ChannelStore, Row
from citewire.server.bridge.bridge import Bridge
from citewire.server.bridge.thread_channels import ThreadChannels
from support.thread_runs import CHANNEL, KEY, House

AI = "ai:t"


CITE, VERDICT = "citations:multiple.v1", "verdicts:multiple.v1"


ANN = Publisher(client_id="ann")


QUOTE = "Costs fell by a third."


class Tied(House):
    """A house whose threads are tied to channels."""

    def __init__(self, agent: Any, store: ChannelStore | None = None, **options: Any) -> None:
        super().__init__(agent, store, **options)
        self.agent = agent
        self.channels = ThreadChannels(self.store, self.hub)
        self.bridge = Bridge(self.store, self.hub, self.channels, self.runs, "bot")

    def on_log_written(self, channel: str) -> None:
        self.bridge.notify_log_written(channel)

    async def on_thread_deleted(self, thread_id: str) -> None:
        await self.bridge.forget_thread(thread_id)

    async def settled(self) -> None:
        """Until nothing is left to do."""
        for _ in range(3):
            await self.runs.wait_idle()
            await self.bridge.wait_idle()

    async def said(self) -> list[Message]:
        page = await self.channels.history(AI, Which(forwards=True))
        return list(page.items)

    async def only(self) -> Message:
        [message] = await self.said()
        return message

    async def told(self) -> list[Row]:
        return list(await self.store.read(f"channel:{AI}"))

    async def cite(self, serial: str, who: Publisher = ANN, name: str = "doc", **data: Any) -> str:
        note = AnnotationDraft(
            message_serial=serial, type=CITE, name=name, data=codec.encode(data), encoding="json"
        )
        [made] = await self.channels.annotate(AI, who, [note])
        return made

    async def record(self) -> Any:
        past = await self.history.snapshot_at(CHANNEL)
        assert past is not None
        return past.state[KEY]["messages"]["m"]


def counts(message: Message, kind: str) -> dict[str, int]:
    summary: dict[str, Any] = message.annotations.summary if message.annotations else {}
    return {name: group["total"] for name, group in summary.get(kind, {}).items()}


async def agrees(house: Tied) -> None:
    """The channel tells what the thread is: its answers, what they cite, and what became of that."""
    past = await house.history.snapshot_at(CHANNEL)
    assert past is not None
    answers = {each["id"]: each["content"] for each in past.messages if each["role"] == "assistant"}
    told = {_header(each): each for each in await house.said() if each.action is not Action.DELETE}
    assert {name: each.data for name, each in told.items()} == answers
    record = past.state.get(KEY, {}).get("messages", {})
    for name, message in told.items():
        known = record.get(name, {"citations": {}, "verifications": {}})
        statuses = Counter(each["citewire"]["status"] for each in known["verifications"].values())
        assert counts(message, VERDICT) == dict(statuses)
        assert sum(counts(message, CITE).values()) == len(known["citations"])
        listed = [each for group in (await house.channels.citations(AI)).items for each in group.citations]
        mine = [each for each in listed if each.annotation.message_serial == message.serial]
        assert Counter(each.verdict["status"] for each in mine if each.verdict) == statuses


def _header(message: Message) -> str:
    return (message.extras or {})["headers"]["messageId"]
