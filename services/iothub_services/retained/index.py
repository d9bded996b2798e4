# cython: annotation_typing=False
"""Which topics of one tenant have a Retained Message: a trie in memory, matched by Topic Filters for replay.

Knows no stored bodies (they are on disk), no bound of what is in memory, and no sessions. One index per tenant: there is nothing in it to leak.

Theory: a node per Topic Level, an entry where a topic ends. A match visits the trie with an explicit stack, a bounded number of nodes at a time;
the children of a node are copied when it is visited, so the trie may change between two slices: what is deleted meanwhile is not found, what is added
may be or not. An entry is replaced only by a higher version (versions come from the store), so a late report does no harm.

Invariant: an entry never changes but for `message`. Whoever has one knows by `get` whether it is still the one that counts.
"""

from __future__ import annotations

from collections.abc import Iterable

from iothub.engine.message import Message
from iothub_services.retained.port import RetainedTopic


class RetainedEntry:
    """What the index has of one topic. `message`: of this version, if it is in memory."""

    def __init__(self, topic: bytes, version: int, expires_at_ms: int, size: int) -> None:
        self.topic = topic
        self.version = version
        self.expires_at_ms = expires_at_ms
        self.size = size
        self.message: Message | None = None


class Node:
    """One Topic Level. `children`: None if it has none."""

    def __init__(self) -> None:
        self.children: dict[bytes, Node] | None = None
        self.entry: RetainedEntry | None = None


class RetainedIndex:
    """The topics of one tenant.

    Invariants: `messages` and `bytes` count the entries; a node without entry has children (but the root).
    """

    def __init__(self) -> None:
        self.root = Node()
        self.deleted: dict[bytes, int] | None = {}  # deletions that were reported before `load`
        self.messages = 0
        self.bytes = 0
        self.changes = 0  # so far: entries that came, were replaced or went

    def load(self, topics: Iterable[RetainedTopic]) -> None:
        """Add what the store has; changes that were reported meanwhile (`put`, `remove`) win by their versions."""
        deleted = self.deleted or {}
        for topic in topics:
            if deleted.get(topic.topic, 0) < topic.version:
                self.put(*topic)
        self.deleted = None

    def get(self, topic: bytes) -> RetainedEntry | None:
        node = self._find(topic)
        return None if node is None else node.entry

    def _find(self, topic: bytes) -> Node | None:
        node: Node | None = self.root
        for level in topic.split(b"/"):
            if node is None or node.children is None:
                return None
            node = node.children.get(level)
        return node

    def put(self, topic: bytes, version: int, expires_at_ms: int, size: int) -> RetainedEntry | None:
        """Add or replace an entry; return the one that it replaces. O(levels)."""
        node = self.root
        for level in topic.split(b"/"):
            if node.children is None:
                node.children = {}
            child = node.children.get(level)
            if child is None:
                child = node.children[level] = Node()
            node = child
        old = node.entry
        if old is not None:
            if old.version >= version:
                return None
            self.messages -= 1
            self.bytes -= old.size
        node.entry = RetainedEntry(topic, version, expires_at_ms, size)
        self.changes += 1
        self.messages += 1
        self.bytes += size
        return old

    def remove(self, topic: bytes, version: int) -> RetainedEntry | None:
        """Forget an entry that is not newer than `version`, and return it. O(levels)."""
        if self.deleted is not None:
            self.deleted[topic] = max(version, self.deleted.get(topic, 0))
        levels = topic.split(b"/")
        node = self.root
        path = [node]
        for level in levels:
            child = None if node.children is None else node.children.get(level)
            if child is None:
                return None
            node = child
            path.append(node)
        entry = node.entry
        if entry is None or entry.version > version:
            return None
        node.entry = None
        self.changes += 1
        self.messages -= 1
        self.bytes -= entry.size
        self._prune(path, levels)
        return entry

    def renew(self, topic: bytes) -> RetainedEntry | None:
        """Put another entry in the place of one, with the same numbers, and return the one that it replaces: what was found of it counts no more.

        The node stays: a match that is under way comes to the new one.
        """
        node = self._find(topic)
        entry = None if node is None else node.entry
        if node is None or entry is None:
            return None
        node.entry = RetainedEntry(topic, entry.version, entry.expires_at_ms, entry.size)
        self.changes += 1
        return entry

    def noted(self, topic: bytes, version: int, expires_at_ms: int, size: int) -> RetainedEntry | None:
        """Take one durable write as the queue writer reports it; `size` 0: deleted. Return the entry that went."""
        if size:
            return self.put(topic, version, expires_at_ms, size)
        return self.remove(topic, version)

    def match(self, topic_filter: bytes) -> Matches:
        """Begin to look for the topics that a (valid, unshared) Topic Filter matches."""
        return Matches(self.root, topic_filter)

    def _prune(self, path: list[Node], levels: list[bytes]) -> None:
        """Remove the nodes at the end of a path that nothing needs."""
        for depth in range(len(levels), 0, -1):
            node = path[depth]
            parent = path[depth - 1]
            if node.entry is not None or node.children is not None or parent.children is None:
                break
            del parent.children[levels[depth - 1]]
            if not parent.children:
                parent.children = None


class Matches:
    """An iteration over an index; `next_entries` continues it.

    `lists`: nodes to be visited, the last one of the last list first; `depths`: how many levels of the filter led to each list. `left_over`: it was
    visited, and what ends there did not fit.
    """

    def __init__(self, root: Node, topic_filter: bytes) -> None:
        levels = topic_filter.split(b"/")
        self.is_open = levels[-1] == b"#"
        self.levels = levels[:-1] if self.is_open else levels
        self.root = root
        self.lists: list[list[Node]] = [[root]]
        self.depths: list[int] = [0]
        self.left_over: Node | None = None

    @property
    def is_done(self) -> bool:
        return not self.lists and self.left_over is None

    def next_entries(self, now_ms: int, nodes: int, count: int, size_bytes: int) -> list[RetainedEntry]:
        """Visit at most `nodes` nodes; return at most `count` entries of so many bytes, or one. What has expired is left out."""
        found: list[RetainedEntry] = []
        while len(found) < count:
            node = self.left_over
            if node is not None:
                self.left_over = None
            elif nodes > 0 and self.lists:
                nodes -= 1
                node = self._visit()
            else:
                break
            entry = None if node is None else node.entry
            if entry is None or 0 < entry.expires_at_ms <= now_ms:
                continue
            size_bytes -= entry.size
            if size_bytes < 0 and found:
                self.left_over = node
                break
            found.append(entry)
        return found

    def _visit(self) -> Node | None:
        """Visit a node; return it if the filter matches what ends there."""
        nodes = self.lists[-1]
        depth = self.depths[-1]
        node = nodes.pop()
        if not nodes:
            self.lists.pop()
            self.depths.pop()
        if depth == len(self.levels):
            if self.is_open:
                self._descend(node, depth)  # stays at "#", which also matches the parent level
            return node
        level = self.levels[depth]
        if level == b"+":
            self._descend(node, depth + 1)
        elif node.children is not None:
            child = node.children.get(level)
            if child is not None:
                self.lists.append([child])
                self.depths.append(depth + 1)
        return None

    def _descend(self, node: Node, depth: int) -> None:
        """Take all children; at the first level none that begins with "$" [MQTT-4.7.2-1]."""
        if node.children is None:
            return
        nodes = list(node.children.values())
        if node is self.root:
            nodes = [child for level, child in node.children.items() if not level.startswith(b"$")]
        if nodes:
            self.lists.append(nodes)
            self.depths.append(depth)


def remembered(entries: list[RetainedEntry], now: float) -> list[Message] | None:
    """Return the messages of these that have not expired; None: they are not all in memory."""
    messages: list[Message] = []
    for entry in entries:
        message = entry.message
        if message is None:
            return None
        if not 0.0 < message.expires_at <= now:
            messages.append(message)
    return messages
