"""Calls functions when a module is imported, or at once if it has been imported already. Never imports the module."""

from __future__ import annotations

import importlib.abc
import sys
from typing import Callable, Protocol


class Listener(Protocol):
    """The interface that a `Finder` calls for the modules that it watches."""

    def run(self, name: str, code):
        """Returns the code of a module that runs as the program."""

    def importing(self, name: str) -> list[Callable[[], None]]:
        """Called before a module is executed; returns the functions to call afterwards."""

    def imported(self, name: str) -> None:
        """Called after a module has been executed."""


def when_imported(module, call: Callable[[], None]) -> None:
    """Calls back now, or, for a module that is being executed, when its execution ends.

    torch may be imported by the module that is awaited, and then loads this package automatically. Only the import
    system knows when such a module has been executed, and records it in the module's spec.
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


class Finder(importlib.abc.MetaPathFinder):
    """Finds a module as Python does, and calls a listener before and after it is executed. Active while it is in
    sys.meta_path.
    """

    def __init__(self, names: set, listener: Listener):
        self._names = names
        self._listener = listener

    def find_spec(self, name, path=None, target=None):
        if name not in self._names:
            return None
        for finder in sys.meta_path[sys.meta_path.index(self) + 1 :]:  # finders of other libraries are called, too
            find = getattr(finder, "find_spec", None)
            spec = find(name, path, target) if find else None
            if spec is not None:
                if spec.loader is not None and hasattr(spec.loader, "exec_module"):
                    spec.loader = _Loader(spec.loader, self._listener)
                return spec
        return None


class _Loader(importlib.abc.Loader):
    """Wraps another loader with a call before and a call after; forwards everything else."""

    def __init__(self, loader, listener: Listener):
        self._loader = loader
        self._listener = listener

    def get_code(self, name):
        return self._listener.run(name, self._loader.get_code(name))

    def create_module(self, spec):
        return self._loader.create_module(spec)

    def exec_module(self, module) -> None:
        module.__loader__ = module.__spec__.loader = self._loader  # as without this loader
        undos = self._listener.importing(module.__name__)
        try:
            self._loader.exec_module(module)
        finally:
            for undo in undos:
                undo()
        self._listener.imported(module.__name__)

    def __getattr__(self, name):
        return getattr(self._loader, name)


class _Once:
    """The listener of `after_import`."""

    def __init__(self, call: Callable[[], None]):
        self._call = call
        self.finder: Finder | None = None

    def run(self, name: str, code):
        return code

    def importing(self, name: str) -> list[Callable[[], None]]:
        return []

    def imported(self, name: str) -> None:
        if self.finder in sys.meta_path:
            sys.meta_path.remove(self.finder)
            self._call()


def after_import(name: str, call: Callable[[], None]) -> None:
    """Calls a function once a module has been imported: now or later."""
    if name in sys.modules:
        when_imported(sys.modules[name], call)
        return
    listener = _Once(call)
    listener.finder = Finder({name}, listener)
    sys.meta_path.insert(0, listener.finder)
