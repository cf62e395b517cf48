"""Describes a patch: the library, its supported versions, the module whose import triggers it, and how it is applied
and removed.
"""

from __future__ import annotations

import importlib.metadata
import re
from types import CodeType, ModuleType
from typing import Callable, NamedTuple, Optional

Undo = Callable[[], None]


class Patch(NamedTuple):
    """A patch of the module `module`.

    `apply` is called with the imported module and returns the function that removes the patch. `while_importing` is
    for a module that uses the device while it is executed: it is called before that, and its result right after.
    `run` changes the code of a module that runs as the program (`python -m`). Such a module has another name, and is
    never imported.
    """

    module: str
    what: str
    apply: Callable[[ModuleType], Undo]
    while_importing: Optional[Callable[[], Undo]] = None
    run: Optional[Callable[[CodeType], CodeType]] = None


class State(NamedTuple):
    """The state of a library: its installed version or "", whether patches support it, whether they are enabled, and
    each patch with whether it is applied.

    `sentence` describes what is missing, or is "".
    """

    library: str
    version: str
    known: bool
    enabled: bool
    patches: list
    sentence: str


class Table(NamedTuple):
    """The patches of a library: `versions` is the first supported version and the first unsupported one after it."""

    library: str  # the distribution's name
    versions: tuple[str, str]
    patches: list[Patch]

    def version(self) -> str:
        """Returns the installed version, or "" if the library is not installed."""
        try:
            return importlib.metadata.version(self.library)
        except importlib.metadata.PackageNotFoundError:
            return ""

    def knows(self, version: str) -> bool:
        """Returns whether the patches support a version."""
        return bool(version) and _number(self.versions[0]) <= _number(version) < _number(self.versions[1])

    def state(self, hook) -> State:
        """Returns the state of the library; `hook` is the active `Hook`, or None."""
        version = self.version()
        known = self.knows(version)
        patches = [(patch.what, hook is not None and hook.applied(patch)) for patch in self.patches]
        sentence = ""
        if version and not known:
            sentence = (
                f"{self.library} {version} is not patched: the patches support {self.versions[0]} and later, before {self.versions[1]}; "
                "it may compute on the CPU, so select the device explicitly"
            )
        elif hook is not None and hook.failures:
            sentence = "; ".join(f"{self.library} {version}: '{what}' cannot be applied: {error}" for what, error in hook.failures.items())
        return State(self.library, version, known, hook is not None, patches, sentence)


def _number(version: str) -> tuple[int, ...]:
    """Returns the release number of a version: (2, 6, 0) for "2.6.0rc1"."""
    return tuple(int(part) for part in re.match(r"\d+(?:\.\d+)*", version)[0].split(".")) if re.match(r"\d", version) else ()
