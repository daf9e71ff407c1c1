"""SuperNodes in this process: real messages to the real ClientApp, no network."""

from collections import defaultdict
from collections.abc import Callable, Iterable
from typing import Any

from flwr.app import Context, Error, Message, RecordDict, UserConfig
from flwr.common.constant import SUPERLINK_NODE_ID, ErrorCode
from flwr.serverapp import Grid
from flwr.supercore.inflatable.inflatable_object import get_all_nested_objects
from flwr.supercore.inflatable.inflatable_utils import inflate_object_from_contents
from flwr.supercore.run import Run
from flwr.supercore.task_identity import TaskIdentity

from melisma.flower import client

#: What becomes of a node's reply on its way.
Change = Callable[[Message], Message | None]


def carried(message: Message) -> Message:
    """The message as it arrives: taken apart, and put together from its bytes."""
    id = message.metadata.message_id or message.object_id
    parts = {k: part.deflate() for k, part in get_all_nested_objects(message).items()}
    arrived: Any = inflate_object_from_contents(message.object_id, parts)
    arrived.metadata.__dict__["_message_id"] = id
    return arrived  # type: ignore[no-any-return]


def context_of(node: int, node_config: UserConfig, run_config: UserConfig) -> Context:
    return Context(1, node, node_config, RecordDict(), run_config)


class LocalGrid(Grid):
    """Calls the ClientApp for each message as it is pushed, and keeps the reply.

    ``changes`` may alter or withhold what a node replies, by its number.
    """

    def __init__(self, nodes: dict[int, UserConfig], run_config: UserConfig) -> None:
        TaskIdentity.run_id, TaskIdentity.node_id = 1, SUPERLINK_NODE_ID
        TaskIdentity.task_id = 1
        self.contexts = {n: context_of(n, c, run_config) for n, c in nodes.items()}
        self.changes: dict[int, Change] = defaultdict(lambda: lambda reply: reply)
        self.pushed: list[Message] = []
        self.replies: dict[str, Message] = {}

    def get_node_ids(self) -> list[int]:
        return list(self.contexts)

    def push_messages(self, messages: Iterable[Message]) -> list[str]:
        return [self._push(message) for message in messages]

    def _push(self, message: Message) -> str:
        self.pushed.append(message)
        node, id = message.metadata.dst_node_id, message.object_id
        if node not in self.contexts:
            return ""
        message.metadata.__dict__["_message_id"] = id
        try:
            reply = carried(client(carried(message), self.contexts[node]))
        except Exception as error:  # as Flower does
            code = ErrorCode.CLIENT_APP_RAISED_EXCEPTION
            reply = Message(Error(code, str(error)), reply_to=message)
        if arrived := self.changes[node](reply):
            self.replies[id] = arrived
        return id

    def pull_messages(self, message_ids: Iterable[str]) -> list[Message]:
        return [self.replies.pop(id) for id in message_ids if id in self.replies]

    def send_and_receive(
        self, messages: Iterable[Message], *, timeout: float | None = None
    ) -> list[Message]:
        raise NotImplementedError

    def create_message(self, *args: Any, **options: Any) -> Message:
        raise NotImplementedError

    def set_run(self, run: Run) -> None:
        raise NotImplementedError

    @property
    def run(self) -> Run:
        raise NotImplementedError
