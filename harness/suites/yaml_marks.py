"""YAML with positions: plain dicts and lists that remember where each key and value was written.

Phases: the file's text is read (`yaml_text`), its parse events are folded into a tree with an
explicit stack, and every scalar is resolved by the rules of `yaml_scalars`. Nothing recurses, nothing is
composed or constructed by PyYAML, so depth, aliases and size are bounded while reading. A wrong key or value
is noted at its place and read on as text; what keeps the rest from being read raises `SourceError`, and
nothing else escapes.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import yaml
from yaml.events import (
    AliasEvent,
    CollectionEndEvent,
    CollectionStartEvent,
    DocumentStartEvent,
    Event,
    MappingStartEvent,
    NodeEvent,
    ScalarEvent,
)
from yaml.reader import ReaderError

from harness.errors import Mark, SourceError, SourceErrors
from harness.suites.wording import Location, dotted, show
from harness.suites.yaml_scalars import ScalarError, check_text, resolve_plain, short
from harness.suites.yaml_text import mark_of, read_text, unshield

# A suite is five levels deep; ten times that is a mistake or an attack.
MAX_DEPTH = 50
# Counted with aliases written out, so that nine aliases of nine aliases of ... are refused.
MAX_NODES = 10_000

# What `!!` is short for.
_STANDARD_TAG = "tag:yaml.org,2002:"


class MarkedDict(dict[str, Any]):
    """A mapping that knows where it starts, and where each key and value stands."""

    __slots__ = ("key_marks", "mark", "value_marks")

    def __init__(self, mark: Mark) -> None:
        super().__init__()
        self.mark = mark
        self.key_marks: dict[str, Mark] = {}
        self.value_marks: dict[str, Mark] = {}

    def put(self, key: str, value: object, *, key_mark: Mark, value_mark: Mark) -> None:
        self[key] = value
        self.key_marks[key] = key_mark
        self.value_marks[key] = value_mark


class MarkedList(list[Any]):
    """A sequence that knows where it starts, and where each item stands."""

    __slots__ = ("item_marks", "mark")

    def __init__(self, mark: Mark) -> None:
        super().__init__()
        self.mark = mark
        self.item_marks: list[Mark] = []

    def put(self, value: object, *, mark: Mark) -> None:
        self.append(value)
        self.item_marks.append(mark)


Node = MarkedDict | MarkedList | str | int | float | bool | None


class _Position(Protocol):
    """What PyYAML's two mark classes share; both count from 0."""

    line: int
    column: int


def mark_at(tree: MarkedDict, location: Location, *, key: bool = False) -> Mark:
    """Where `location` was written, or else its innermost written ancestor; `key` asks for the key."""
    mark, node = tree.mark, tree
    for depth, part in enumerate(location):
        if isinstance(node, MarkedDict) and part in node:
            marks = node.key_marks if key and depth == len(location) - 1 else node.value_marks
            mark, node = marks[str(part)], node[str(part)]
        elif isinstance(node, MarkedList) and isinstance(part, int) and part < len(node):
            mark, node = node.item_marks[part], node[part]
        else:
            break
    return mark


def load_yaml(path: Path) -> Node:
    """The one document of `path`; raises SourceError (SourceErrors for several) for all that is not plain,
    small, clear YAML."""
    tree, errors = read_yaml(path)
    if errors:
        raise errors[0] if len(errors) == 1 else SourceErrors(errors)
    return tree


def read_yaml(path: Path) -> tuple[Node, list[SourceError]]:
    """The one document of `path`, and what is wrong with single keys and values of it.

    So a loader can go on and find mistakes of other kinds. Raises SourceError where nothing can be read on.
    """
    return parse_yaml(read_text(path), path)


def parse_yaml(text: str, path: Path) -> tuple[Node, list[SourceError]]:
    """The same for text that is no file's, such as a parameter on a command line; `path` names it in errors."""
    builder = _Builder(path)
    try:
        for event in _events(text):
            builder.feed(event)
    except yaml.MarkedYAMLError as error:
        raise SourceError(builder.problem_mark(error), _problem(error)) from None
    except ReaderError as error:
        raise SourceError(mark_of(path, text, error.position), "a control character; allowed: text") from None
    except (ValueError, OverflowError):
        # PyYAML hands escapes such as "\UFFFFFFFF" and huge %YAML versions to chr() and int() unchecked.
        raise SourceError(builder.last, "an escape or number after this place is out of range") from None
    return builder.result(), builder.errors


def _events(text: str) -> Iterator[Event]:
    # The pure Python loader: libyaml counts columns in bytes and accepts more.
    return yaml.parse(text, Loader=yaml.SafeLoader)


def _problem(error: yaml.MarkedYAMLError) -> str:
    parts = [part for part in (error.context, error.problem) if part]
    return "not YAML: " + ", ".join(parts)


@dataclass(slots=True, kw_only=True)
class _Open:
    """A collection whose end has not come yet."""

    value: MarkedDict | MarkedList
    mark: Mark
    anchor: str | None
    nodes: int = 1
    key: str | None = None
    key_mark: Mark | None = None


@dataclass(slots=True)
class _Builder:
    """Folds parse events into a marked tree. `stack` holds the open collections, outermost first."""

    path: Path
    stack: list[_Open] = field(default_factory=list)
    anchors: dict[str, tuple[Any, int]] = field(default_factory=dict)
    documents: int = 0
    root: Node = None
    nodes: int = 0
    errors: list[SourceError] = field(default_factory=list)
    last: Mark = field(init=False)

    def __post_init__(self) -> None:
        self.last = Mark(self.path, 1, 1)

    def result(self) -> Node:
        if self.documents == 0:
            raise SourceError(Mark(self.path, 1, 1), "the file is empty; allowed: one YAML mapping")
        return self.root

    def problem_mark(self, error: yaml.MarkedYAMLError) -> Mark:
        mark = error.problem_mark or error.context_mark
        return self._mark(mark) if mark else self.last

    def _where(self) -> Location:
        """The keys and indices that lead to what is being read."""
        parts = (top.key if isinstance(top.value, MarkedDict) else len(top.value) for top in self.stack)
        return tuple(part for part in parts if part is not None)

    def _note(self, message: str, *, mark: Mark | None = None, key: str | None = None) -> None:
        """A mistake that does not keep the rest from being read."""
        where = self._where() if key is None else (*self._where(), key)
        self.errors.append(SourceError(mark or self.last, message, field=dotted(where)))

    def feed(self, event: Event) -> None:
        self.last = self._mark(event.start_mark) if event.start_mark else self.last
        if isinstance(event, DocumentStartEvent):
            self.documents += 1
            if self.documents > 1:
                raise SourceError(self.last, "a second document; allowed: one document a file")
        elif isinstance(event, AliasEvent):
            self._alias(str(event.anchor))
        elif isinstance(event, ScalarEvent):
            self._count(1)
            self._refuse_tag(event.tag)
            self._place(self._scalar(event), self.last, anchor=event.anchor, nodes=1)
        elif isinstance(event, CollectionStartEvent):
            self._open(event)
        elif isinstance(event, CollectionEndEvent):
            done = self.stack.pop()
            self._place(done.value, done.mark, anchor=done.anchor, nodes=done.nodes)

    def _mark(self, mark: _Position) -> Mark:
        return Mark(self.path, mark.line + 1, mark.column + 1)

    def _refuse_tag(self, tag: str | None) -> None:
        if tag is not None:
            written = tag.replace(_STANDARD_TAG, "!!")
            self._note(f"the tag {short(written)!r}; allowed: no tags, plain values only")

    def _count(self, nodes: int) -> None:
        self.nodes += nodes
        if self.nodes > MAX_NODES:
            raise SourceError(
                self.last, f"more than {MAX_NODES:,} values, aliases written out; allowed: fewer"
            )

    def _alias(self, anchor: str) -> None:
        if anchor not in self.anchors:
            raise SourceError(self.last, f"the alias *{short(anchor)} names no finished anchor before it")
        value, nodes = self.anchors[anchor]
        self._count(nodes)
        self._place(value, self.last, anchor=None, nodes=nodes)

    def _scalar(self, event: ScalarEvent) -> object:
        try:
            text = unshield(event.value)
            check_text(text)
            return resolve_plain(text) if event.style is None else text
        except ScalarError as error:
            self._note(str(error))
            return unshield(event.value)

    def _open(self, event: NodeEvent) -> None:
        self._count(1)
        self._refuse_tag(event.tag)  # type: ignore[attr-defined]
        if len(self.stack) == MAX_DEPTH:
            raise SourceError(
                self.last, f"nested deeper than {MAX_DEPTH} levels; allowed: {MAX_DEPTH} or fewer"
            )
        kind = MarkedDict if isinstance(event, MappingStartEvent) else MarkedList
        if self.stack and isinstance(self.stack[-1].value, MarkedDict) and self.stack[-1].key is None:
            found = "a mapping" if kind is MarkedDict else "a list"
            raise SourceError(self.last, f"{found} as a key; allowed: text, in quotes if need be")
        self.stack.append(_Open(value=kind(self.last), mark=self.last, anchor=event.anchor))

    def _place(self, value: Any, mark: Mark, *, anchor: str | None, nodes: int) -> None:
        if anchor is not None:
            self.anchors[anchor] = (value, nodes)
        if not self.stack:
            self.root = value
            return
        top = self.stack[-1]
        top.nodes += nodes
        if isinstance(top.value, MarkedList):
            top.value.put(value, mark=mark)
        elif top.key is None or top.key_mark is None:
            top.key, top.key_mark = self._key(top.value, value, mark), mark
        else:
            top.value.put(top.key, value, key_mark=top.key_mark, value_mark=mark)
            top.key = top.key_mark = None

    def _key(self, mapping: MarkedDict, key: object, mark: Mark) -> str:
        if not isinstance(key, str):
            self._note(f"{show(key)} as a key; allowed: text, in quotes if need be", mark=mark)
            return str(key)
        if key == "<<":
            self._note("the merge key '<<'; allowed: extends: FILE, or writing the keys out", mark=mark)
        if key in mapping:
            line = mapping.key_marks[key].line
            message = f"the key {short(key)!r} was already written on line {line}; allowed: each key once"
            self._note(message, mark=mark, key=key)
        return key
