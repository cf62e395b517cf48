"""What a patch is: a library, the versions that it knows, the module whose import it waits for, and how it is done and undone."""

from __future__ import annotations

import importlib.metadata
import re
from types import CodeType, ModuleType
from typing import Callable, NamedTuple, Optional

Undo = Callable[[], None]


class Patch(NamedTuple):
    """`apply` is called with the imported module `module` and gives what takes it back; `while_importing`, for a module that uses the
    device while it is executed, is called before that, and what it gives right after. `run` changes the code of a module that
    `python -m` runs as the program, under another name and never imported."""

    module: str
    what: str
    apply: Callable[[ModuleType], Undo]
    while_importing: Optional[Callable[[], Undo]] = None
    run: Optional[Callable[[CodeType], CodeType]] = None


class State(NamedTuple):
    """A library: its installed version or "", whether patches know it, whether they are enabled, and each patch with whether it is in
    force. `sentence` tells in words what is not as it could be, or is empty."""

    library: str
    version: str
    known: bool
    enabled: bool
    patches: list
    sentence: str


class Table(NamedTuple):
    """The patches of a library: `versions` is the first version that they know and the first that they do not."""

    library: str  # the distribution's name
    versions: tuple[str, str]
    patches: list[Patch]

    def version(self) -> str:
        """Gives the installed version, or "" where there is none."""
        try:
            return importlib.metadata.version(self.library)
        except importlib.metadata.PackageNotFoundError:
            return ""

    def knows(self, version: str) -> bool:
        """Tells whether the patches were made for a version."""
        return bool(version) and _number(self.versions[0]) <= _number(version) < _number(self.versions[1])

    def state(self, hook) -> State:
        """Describes the library; `hook` is what patches it, or None."""
        version = self.version()
        known = self.knows(version)
        patches = [(patch.what, hook is not None and hook.applied(patch)) for patch in self.patches]
        sentence = ""
        if version and not known:
            sentence = (
                f"{self.library} {version} is not patched: the patches are for {self.versions[0]} and later, before {self.versions[1]}; "
                "it may compute on the CPU, so name the device yourself"
            )
        elif hook is not None and hook.failures:
            sentence = "; ".join(f"{self.library} {version}: '{what}' does not fit: {error}" for what, error in hook.failures.items())
        return State(self.library, version, known, hook is not None, patches, sentence)


def _number(version: str) -> tuple[int, ...]:
    """Gives the release number of a version, "2.6.0rc1" as (2, 6, 0)."""
    return tuple(int(part) for part in re.match(r"\d+(?:\.\d+)*", version)[0].split(".")) if re.match(r"\d", version) else ()
