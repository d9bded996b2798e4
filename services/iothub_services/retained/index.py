"""Which topics of one tenant have a Retained Message: a trie in memory, matched by Topic Filters for replay.

Knows no bodies (they are on disk) and no sessions. One index per tenant: there is nothing in it to leak.

Theory: a node per Topic Level, an entry where a topic ends. A match visits the trie with an explicit stack, a bounded number of nodes at a time;
the children of a node are copied when it is visited, so the trie may change between two slices: what is deleted meanwhile is not found, what is added
may be or not. An entry is replaced only by a higher version (versions come from the store), so a late report does no harm.
"""

from __future__ import annotations

from collections.abc import Iterable

from iothub_services.retained.port import RetainedTopic


class _Node:
    __slots__ = ("children", "entry")

    def __init__(self) -> None:
        self.children: dict[bytes, _Node] = {}
        self.entry: RetainedTopic | None = None


class RetainedIndex:
    """The topics of one tenant.

    Invariants: `messages` and `bytes` count the entries; a node without entry has children (but the root).
    """

    def __init__(self) -> None:
        self._root = _Node()
        self._deleted: dict[bytes, int] | None = {}  # deletions that were reported before `load`
        self.messages = 0
        self.bytes = 0
        self.changes = 0  # so far: entries that came, were replaced or went

    def load(self, topics: Iterable[RetainedTopic]) -> None:
        """Add what the store has; changes that were reported meanwhile (`put`, `remove`) win by their versions."""
        deleted = self._deleted or {}
        for topic in topics:
            if deleted.get(topic.topic, 0) < topic.version:
                self.put(topic)
        self._deleted = None

    def get(self, topic: bytes) -> RetainedTopic | None:
        node = self._find(topic)
        return None if node is None else node.entry

    def put(self, new: RetainedTopic) -> None:
        """Add or replace an entry. O(levels)."""
        node = self._root
        for level in new.topic.split(b"/"):
            child = node.children.get(level)
            if child is None:
                child = node.children[level] = _Node()
            node = child
        old = node.entry
        if old is not None:
            if old.version >= new.version:
                return
            self.messages -= 1
            self.bytes -= old.size
        node.entry = new
        self.changes += 1
        self.messages += 1
        self.bytes += new.size

    def remove(self, topic: bytes, version: int) -> None:
        """Forget an entry that is not newer than `version`. O(levels)."""
        if self._deleted is not None:
            self._deleted[topic] = max(version, self._deleted.get(topic, 0))
        levels = topic.split(b"/")
        path = [self._root]
        for level in levels:
            child = path[-1].children.get(level)
            if child is None:
                return
            path.append(child)
        entry = path[-1].entry
        if entry is None or entry.version > version:
            return
        path[-1].entry = None
        self.changes += 1
        self.messages -= 1
        self.bytes -= entry.size
        for parent, level, node in zip(reversed(path[:-1]), reversed(levels), reversed(path), strict=False):
            if node.entry is not None or node.children:
                break
            del parent.children[level]

    def noted(self, topic: bytes, version: int, expires_at_ms: int, size: int) -> None:
        """Take one durable write as the queue writer reports it; `size` 0: deleted."""
        if size:
            self.put(RetainedTopic(topic, version, expires_at_ms, size))
        else:
            self.remove(topic, version)

    def match(self, topic_filter: bytes) -> Matches:
        """Begin to look for the topics that a (valid, unshared) Topic Filter matches."""
        return Matches(self._root, topic_filter)

    def _find(self, topic: bytes) -> _Node | None:
        node: _Node | None = self._root
        for level in topic.split(b"/"):
            if node is None:
                return None
            node = node.children.get(level)
        return node


class Matches:
    """An iteration over an index; `take` continues it."""

    def __init__(self, root: _Node, topic_filter: bytes) -> None:
        self._levels = topic_filter.split(b"/")
        self._stack: list[tuple[_Node, int]] = [(root, 0)]  # (node, how many levels of the filter led to it)
        self._root = root

    @property
    def is_done(self) -> bool:
        return not self._stack

    def next_topics(self, nodes: int, now_ms: int) -> list[RetainedTopic]:
        """Visit at most `nodes` nodes and return what was found among them; expired messages are left out."""
        found: list[RetainedTopic] = []
        stack, levels, end = self._stack, self._levels, len(self._levels)
        while stack and nodes:  # no call for a node: there may be a million
            nodes -= 1
            node, depth = stack.pop()
            if depth < end and levels[depth] != b"#":
                self._follow(node, depth)
                continue
            if depth < end and node.children:
                self._descend(node, depth)  # stays at "#", which also matches the parent level
            entry = node.entry
            if entry is not None and not 0 < entry.expires_at_ms <= now_ms:
                found.append(entry)
        return found

    def _follow(self, node: _Node, depth: int) -> None:
        """Put what the next level matches on the stack."""
        if self._levels[depth] == b"+":
            self._descend(node, depth + 1)
        else:
            child = node.children.get(self._levels[depth])
            if child is not None:
                self._stack.append((child, depth + 1))

    def _descend(self, node: _Node, depth: int) -> None:
        """All children; at the first level none that begins with "$" [MQTT-4.7.2-1]."""
        is_root = node is self._root
        self._stack += [
            (child, depth) for level, child in node.children.items() if not (is_root and level.startswith(b"$"))
        ]
