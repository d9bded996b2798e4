# cython: annotation_typing=False
"""Values by wildcard Topic Filter: which of them match a Topic Name.

Knows nothing of subscriptions: a value is any object. Filters and topics were checked (`iothub.engine.filters`) before.

Theory. One node per level, walked breadth first with one frontier per level: nothing recurses, whatever the depth.
"devices/+/state" and "devices/#" make

    root -- "devices" --+-- plus -- "state" (here)
                        +-- rest ("#": this level and all below)

Invariant. An empty node is never kept.
"""

from __future__ import annotations

from typing import Any


class Node:
    """One level."""

    def __init__(self) -> None:
        self.children: dict[bytes, Node] | None = None
        self.plus: Node | None = None
        self.here: Any = None  # the value of the filter that ends at this level
        self.rest: Any = None  # the value of the filter that goes on with "#"

    def is_empty(self) -> bool:
        return self.children is None and self.plus is None and self.here is None and self.rest is None

    def child(self, level: bytes) -> Node | None:
        if level == b"+":
            return self.plus
        return None if self.children is None else self.children.get(level)

    def grow(self, level: bytes) -> Node:
        """Return the child for a level of a filter, made if need be."""
        child = self.child(level)
        if child is not None:
            return child
        child = Node()
        if level == b"+":
            self.plus = child
        else:
            if self.children is None:
                self.children = {}
            self.children[level] = child
        return child

    def cut(self, level: bytes) -> None:
        children = self.children
        if level == b"+" or children is None:
            self.plus = None
            return
        del children[level]
        if not children:
            self.children = None


class Trie:
    """One value for each Topic Filter. Exact filters may be in it too."""

    def __init__(self) -> None:
        self.root = Node()

    def __del__(self) -> None:
        self.clear()

    def clear(self) -> None:
        """Forget everything, node by node: a chain of 65,535 levels that frees itself would overflow the C stack."""
        nodes = [self.root]
        while nodes:
            node = nodes.pop()
            if node.plus is not None:
                nodes.append(node.plus)
                node.plus = None
            if node.children is not None:
                nodes.extend(node.children.values())
                node.children = None
            node.here = None
            node.rest = None

    def get(self, filter: bytes) -> Any:
        """Return the value of exactly this filter, or None. O(levels)."""
        node: Node | None = self.root
        for level in filter.split(b"/"):
            if node is None:
                return None
            if level == b"#":
                return node.rest
            node = node.child(level)
        return None if node is None else node.here

    def put(self, filter: bytes, value: Any) -> None:
        node = self.root
        for level in filter.split(b"/"):
            if level == b"#":
                node.rest = value
                return
            node = node.grow(level)
        node.here = value

    def remove(self, filter: bytes) -> None:
        """Forget a filter, which must be in it, and every level that only led to it."""
        levels = filter.split(b"/")
        node = self.root
        path = [node]
        for level in levels:
            if level != b"#":
                node = node.grow(level)
                path.append(node)
        if levels[-1] == b"#":
            node.rest = None
        else:
            node.here = None
        while len(path) > 1 and node.is_empty():
            path.pop()
            node = path[-1]
            node.cut(levels[len(path) - 1])

    def match(self, topic: bytes, found: list[Any]) -> None:
        """Append the values of all filters that match; literal levels before "+", so that the order is stable.

        O(bytes + nodes visited): every node of a level is visited at most once.
        """
        nodes = [self.root]
        is_hidden = topic.startswith(b"$")  # from wildcards at the first level [MQTT-4.7.2-1]
        start = 0
        while nodes and start >= 0:
            slash = topic.find(b"/", start)
            level = topic[start:] if slash < 0 else topic[start:slash]
            below: list[Node] = []
            for node in nodes:
                if node.rest is not None and not is_hidden:
                    found.append(node.rest)
                if node.children is not None:
                    child = node.children.get(level)
                    if child is not None:
                        below.append(child)
                if node.plus is not None and not is_hidden:
                    below.append(node.plus)
            nodes = below
            is_hidden = False
            start = slash + 1 if slash >= 0 else -1
        for node in nodes:
            if node.here is not None:
                found.append(node.here)
            if node.rest is not None:  # "a/#" matches its parent "a" (§4.7.1.2)
                found.append(node.rest)

    def values(self) -> list[Any]:
        """Return all values, in no promised order."""
        found: list[Any] = []
        nodes = [self.root]
        while nodes:
            node = nodes.pop()
            if node.here is not None:
                found.append(node.here)
            if node.rest is not None:
                found.append(node.rest)
            if node.plus is not None:
                nodes.append(node.plus)
            if node.children is not None:
                nodes.extend(node.children.values())
        return found
