"""Reads YAML and records the line of each key, so that an error names file, line, entry and key. Pure Python and PyYAML."""
from __future__ import annotations

import difflib
import sys
from pathlib import Path

try:
    import yaml
except ImportError:
    sys.exit("codegen: PyYAML is missing for " + sys.executable + "; install python3-yaml or `pip install pyyaml`.")

_Loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class EntryError(Exception):
    """An invalid entry. The message names the file, the line, the entry and the key."""


class Mapping(dict):
    """A mapping with its file, its line and the line of each key."""

    def __init__(self, path, line):
        super().__init__()
        self.path, self.line, self.lines = path, line, {}


class Sequence(list):
    """A list with its file, its line and the line of each item."""

    def __init__(self, path, line):
        super().__init__()
        self.path, self.line, self.lines = path, line, []


class Place:
    """The place of a value: file, line, and the keys that lead to it."""

    def __init__(self, path, line, keys=()):
        self.path, self.line, self.keys = path, line, tuple(keys)

    def at(self, container, key):
        """Returns the place of a key of a mapping, or of an item of a list; an item is named by its list."""
        if isinstance(container, list):
            return Place(self.path, container.lines[key], self.keys)
        return Place(self.path, container.lines.get(key, self.line), (*self.keys, key))

    def error(self, problem):
        """Returns the error to raise."""
        return EntryError(f"{self.path}:{self.line}: {': '.join([*map(str, self.keys), problem])}")


def nearest(name, allowed):
    """Returns the part of a message that names the allowed values, the most similar one first."""
    allowed = [str(each) for each in allowed]
    close = difflib.get_close_matches(str(name), allowed, n=1, cutoff=0.5)
    listed = ", ".join(allowed) if len(allowed) <= 40 else f"{', '.join(allowed[:20])} and {len(allowed) - 20} more"
    return f"{f'did you mean {close[0]!r}? ' if close else ''}Allowed: {listed}"


def read(path):
    """Returns the document of a file as Mappings, Sequences and plain scalars. Raises EntryError if it is not YAML."""
    path = Path(path)
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise EntryError(f"{path}: cannot be read: {error.strerror}") from None
    loader = _Loader(text)
    try:
        node = loader.get_single_node()
        return None if node is None else _value(path, node, loader)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        line = f":{mark.line + 1}" if mark else ""
        raise EntryError(f"{path}{line}: invalid YAML: {getattr(error, 'problem', None) or error}") from None
    finally:
        loader.dispose()


def _value(path, node, loader):
    line = node.start_mark.line + 1
    if isinstance(node, yaml.SequenceNode):
        result = Sequence(path, line)
        for item in node.value:
            result.append(_value(path, item, loader))
            result.lines.append(item.start_mark.line + 1)
        return result
    if not isinstance(node, yaml.MappingNode):
        return loader.construct_object(node)
    result = Mapping(path, line)
    for key_node, value_node in node.value:
        key, key_line = loader.construct_object(key_node), key_node.start_mark.line + 1
        if key in result:
            raise EntryError(f"{path}:{key_line}: {key}: the key is already set in line {result.lines[key]}")
        result[key] = _value(path, value_node, loader)
        result.lines[key] = key_line
    return result
