"""`extends: ../base.yaml`: a suite file laid over another one.

Mappings are merged key by key, lists and scalars are replaced, and each value keeps the place where it was
written, so that an error in a base is reported in the base. A missing base, a cycle or a long chain raises
`SourceError` at the `extends` that asked for it.
"""

from __future__ import annotations

from pathlib import Path

from harness.errors import Mark, SourceError
from harness.suites.wording import show
from harness.suites.yaml_marks import MarkedDict, read_yaml

# Nobody can follow more than a few layers; a chain of generated files should not read the disk for long.
MAX_CHAIN = 8


def load_extended(path: Path) -> tuple[MarkedDict, list[SourceError]]:
    """The mapping of `path` with all of its bases merged in and `extends` gone, and what is wrong with single
    keys and values of these files."""
    chain: list[MarkedDict] = []
    errors: list[SourceError] = []
    seen = [path.resolve()]
    while True:
        tree, found = _load_mapping(path)
        chain.append(tree)
        errors += found
        if "extends" not in tree:
            break
        path = _base_path(tree, path)
        if path.resolve() in seen:
            raise _error(tree, f"{show(tree['extends'])} leads back to a file that is already in the chain")
        if len(chain) == MAX_CHAIN:
            raise _error(tree, f"the chain is longer than {MAX_CHAIN} files; allowed: {MAX_CHAIN} or fewer")
        seen.append(path.resolve())
    merged = chain.pop()
    while chain:
        merged = merge(base=merged, over=chain.pop())
    return merged, errors


def merge(*, base: MarkedDict, over: MarkedDict) -> MarkedDict:
    """`over` laid on `base`: mappings merge, everything else is replaced; neither input is changed."""
    result = MarkedDict(over.mark)
    for key in [*base, *(key for key in over if key not in base)]:
        if key == "extends":
            continue
        source = over if key in over else base
        value = source[key]
        if isinstance(value, MarkedDict) and source is over and isinstance(base.get(key), MarkedDict):
            value = merge(base=base[key], over=value)
        result.put(key, value, key_mark=source.key_marks[key], value_mark=source.value_marks[key])
    return result


def _load_mapping(path: Path) -> tuple[MarkedDict, list[SourceError]]:
    tree, errors = read_yaml(path)
    if isinstance(tree, MarkedDict):
        return tree, errors
    raise SourceError(_start(path), f"{show(tree)} is not a suite; allowed: one mapping")


def _start(path: Path) -> Mark:
    return Mark(path, 1, 1)


def _base_path(tree: MarkedDict, path: Path) -> Path:
    written = tree["extends"]
    if not isinstance(written, str) or not written:
        raise _error(
            tree, f"{show(written)} is not a file; allowed: the path of one file, relative to this one"
        )
    base = path.parent / written
    try:
        if base.is_file():
            return base
    except OSError:  # a name longer than the file system takes
        pass
    raise _error(tree, f"{show(written)} does not exist; allowed: a file, relative to this one")


def _error(tree: MarkedDict, message: str) -> SourceError:
    return SourceError(tree.value_marks["extends"], message, field="extends")
