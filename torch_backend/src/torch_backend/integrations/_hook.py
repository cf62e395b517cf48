"""Applies a library's patches when its modules are imported, also when they were imported before."""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import sys
from typing import Callable

from ._table import Patch, Table, Undo


enabled: dict[str, Hook] = {}  # by library


class Hook:
    """The patches of one library while they are enabled."""

    def __init__(self, table: Table, failed: Callable[[str, str, Exception], None]):
        self._table = table
        self._failed = failed
        self._undo: list[tuple[Patch, Undo]] = []
        self.failures: dict[str, str] = {}
        self._finder = _Finder({patch.module for patch in table.patches}, self)

    def applied(self, patch: Patch) -> bool:
        """Tells whether a patch is in force."""
        return any(done is patch for done, _ in self._undo)

    def start(self) -> None:
        """Patches what is imported, and waits for the rest; does nothing for a version that the table does not know."""
        if not self._table.knows(self._table.version()):
            return
        sys.meta_path.insert(0, self._finder)
        for name in {patch.module: None for patch in self._table.patches}:
            if name in sys.modules:
                when_imported(sys.modules[name], lambda name=name: self.imported(name))

    def stop(self) -> None:
        """Takes everything back, the last patch first."""
        if self._finder in sys.meta_path:
            sys.meta_path.remove(self._finder)
        while self._undo:
            self._undo.pop()[1]()

    def importing(self, name: str) -> list[Undo]:
        """Prepares the execution of a module; gives what ends that."""
        return [patch.while_importing() for patch in self._table.patches if patch.module == name and patch.while_importing]

    def run(self, name: str, code):
        """Gives the code of a module that runs as the program, as the patches want it."""
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
                except Exception as error:  # the library must work as it did without us
                    self.failures[patch.what] = f"{type(error).__name__}: {error}"
                    self._failed(self._table.library, patch.what, error)


def when_imported(module, call: Callable[[], None]) -> None:
    """Calls back now, or, for a module that is being executed, when it is done.

    torch may be imported by the very module that a patch is for, and then loads us by itself. No one tells when such a module is done but
    the import system, in its spec.
    """
    spec = getattr(module, "__spec__", None)
    if not getattr(spec, "_initializing", False):
        call()
        return

    class Watched(type(spec)):
        @property
        def _initializing(self):
            return True

        @_initializing.setter
        def _initializing(self, value):
            self.__class__ = Watched.__base__
            self._initializing = value
            if not value:
                call()

    del spec._initializing
    spec.__class__ = Watched


class _Finder(importlib.abc.MetaPathFinder):
    """Finds a module as Python does, and calls back before and after it is executed."""

    def __init__(self, names: set, hook: Hook):
        self._names = names
        self._hook = hook

    def find_spec(self, name, path=None, target=None):
        if name not in self._names:
            return None
        for finder in sys.meta_path[sys.meta_path.index(self) + 1 :]:  # other libraries' finders are asked, too
            find = getattr(finder, "find_spec", None)
            spec = find(name, path, target) if find else None
            if spec is not None:
                if spec.loader is not None and hasattr(spec.loader, "exec_module"):
                    spec.loader = _Loader(spec.loader, self._hook)
                return spec
        return None


class _Loader(importlib.abc.Loader):
    """Another loader, with a call before and after; everything else is asked of that one."""

    def __init__(self, loader, hook: Hook):
        self._loader = loader
        self._hook = hook

    def get_code(self, name):
        return self._hook.run(name, self._loader.get_code(name))

    def create_module(self, spec):
        return self._loader.create_module(spec)

    def exec_module(self, module) -> None:
        module.__loader__ = module.__spec__.loader = self._loader  # as if we had not been there
        undos = self._hook.importing(module.__name__)
        try:
            self._loader.exec_module(module)
        finally:
            for undo in undos:
                undo()
        self._hook.imported(module.__name__)

    def __getattr__(self, name):
        return getattr(self._loader, name)
