"""References: runtimes that are no models and whose score is known."""

from __future__ import annotations

from collections.abc import Sequence

from pytest_llmbench.runtimes.base import Conversation, Message, ModelCard, Reply, Request, Usage


class ReferenceRuntime:
    """Answers by the conversation that the harness hands it for the instance at hand."""

    endpoint: str | None = None

    def __init__(self, ref: str) -> None:
        self.ref = ref
        self._conversation: Conversation | None = None

    def converse(self, conversation: Conversation) -> None:
        """Answer the next calls by this conversation."""
        self._conversation = conversation

    def open(self) -> ModelCard:
        return ModelCard(ref=self.ref, runtime="reference")

    def count_tokens(self, messages: Sequence[Message]) -> int | None:
        return None

    def chat(self, request: Request) -> Reply:
        if self._conversation is None:
            raise RuntimeError(f"reference {self.ref} was asked before it got a conversation")
        content = self._conversation(request.messages)
        return Reply(content=content, usage=Usage(reply_bytes=len(content)))

    def close(self) -> float | None:
        return None
