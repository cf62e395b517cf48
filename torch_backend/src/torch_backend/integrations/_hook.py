"""Applies a library's patches when its modules are imported, also when they were imported before."""

from __future__ import annotations

import sys
from typing import Callable

from .._imports import Finder, when_imported
from ._table import Patch, Table, Undo


enabled: dict[str, Hook] = {}  # by library


class Hook:
    """The patches of one library while they are enabled."""

    def __init__(self, table: Table, failed: Callable[[str, str, Exception], None]):
        self._table = table
        self._failed = failed
        self._undo: list[tuple[Patch, Undo]] = []
        self.failures: dict[str, str] = {}
        self._finder = Finder({patch.module for patch in table.patches}, self)

    def applied(self, patch: Patch) -> bool:
        """Returns whether a patch is applied."""
        return any(done is patch for done, _ in self._undo)

    def start(self) -> None:
        """Patches the imported modules, and waits for the others. Does nothing for an unsupported version."""
        if not self._table.knows(self._table.version()):
            return
        sys.meta_path.insert(0, self._finder)
        for name in {patch.module: None for patch in self._table.patches}:
            if name in sys.modules:
                when_imported(sys.modules[name], lambda name=name: self.imported(name))

    def stop(self) -> None:
        """Removes all patches, the last one first."""
        if self._finder in sys.meta_path:
            sys.meta_path.remove(self._finder)
        while self._undo:
            self._undo.pop()[1]()

    def importing(self, name: str) -> list[Undo]:
        """Called before a module is executed; returns the functions to call afterwards."""
        return [patch.while_importing() for patch in self._table.patches if patch.module == name and patch.while_importing]

    def run(self, name: str, code):
        """Returns the code of a module that runs as the program, changed by the patches."""
        for patch in self._table.patches:
            if patch.module == name and patch.run:
                code = patch.run(code)
        return code

    def imported(self, name: str) -> None:
        """Applies the patches of a module."""
        if self._finder not in sys.meta_path or name not in sys.modules:  # disabled meanwhile, or the import failed
            return
        for patch in self._table.patches:
            if patch.module == name and not self.applied(patch):
                try:
                    self._undo.append((patch, patch.apply(sys.modules[name])))
                except Exception as error:  # the library must work as without the patch
                    self.failures[patch.what] = f"{type(error).__name__}: {error}"
                    self._failed(self._table.library, patch.what, error)
