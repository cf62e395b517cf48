"""Functions that change a library in memory. Each returns the function that removes the change.

Modules copy functions from each other (`from x import f`). So a function is changed in place, by its code, if
possible. Then every copy of it is changed, and undoing is exact.
"""

from __future__ import annotations

import functools
import re
import sys
import types
from typing import Callable, Iterable

from torch_backend._registry import device_name

from ._table import Undo


def together(*undos: Undo) -> Undo:
    """Returns one function that calls several, the last one first."""

    def undo() -> None:
        for one in reversed(undos):
            one()

    return undo


def replace(owner, name: str, value) -> Undo:
    """Sets an attribute of a class or module. Undoing restores the class's own attribute, or removes the new one if it
    was inherited.
    """
    own = vars(owner)
    had, before = name in own, own.get(name)
    setattr(owner, name, value)

    def undo() -> None:
        if had:
            setattr(owner, name, before)
        else:
            delattr(owner, name)

    return undo


def exchange(value, by) -> Undo:
    """Replaces an object that cannot be changed in place, such as a class of an extension, in all imported modules.

    Modules imported meanwhile have the replacement, so undoing searches all modules again.
    """

    def swap(value, by) -> None:
        for module in list(sys.modules.values()):
            if isinstance(module, types.ModuleType):
                for name in [name for name, held in list(vars(module).items()) if held is value]:
                    setattr(module, name, by)

    swap(value, by)
    return lambda: swap(by, value)


def wrap(owner, name: str, around: Callable) -> Undo:
    """Wraps a method or function of a module: `around(original, *arguments, **options)`."""
    held = vars(owner)[name]
    original = held.__func__ if isinstance(held, staticmethod) else held

    @functools.wraps(original)
    def wrapped(*arguments, **options):
        return around(original, *arguments, **options)

    return replace(owner, name, staticmethod(wrapped) if isinstance(held, staticmethod) else wrapped)


def innermost(function):
    """Returns the plain function in caches, decorators, properties and methods of classes."""
    for inner in ("__func__", "fget", "func", "__wrapped__"):
        while not isinstance(function, types.FunctionType) and hasattr(function, inner):
            function = getattr(function, inner)
    while hasattr(function, "__wrapped__"):
        function = function.__wrapped__
    return function


def answer(function, by: Callable) -> Undo:
    """Replaces the code of a function, which may be cached, by that of `by`: a function without free variables, with
    the same parameters.
    """
    plain = innermost(function)
    defaults = plain.__defaults__

    def restore() -> None:
        plain.__defaults__ = defaults
        forget(function)

    forget(function)
    plain.__defaults__ = by.__defaults__
    return together(restore, _code(plain, by.__code__))


def forget(function) -> None:
    """Clears the cache of a cached function, whose results may be different now."""
    clear = getattr(function, "cache_clear", None)
    if clear is not None:
        clear()


def forget_all(module: types.ModuleType) -> Undo:
    """Clears the caches of all functions of a module, now and when undone."""
    held = [held for _, held in functions_of(module)]

    def empty() -> None:
        for function in held:
            forget(function)

    empty()
    return empty


def _code(function: types.FunctionType, code: types.CodeType) -> Undo:
    before = function.__code__
    function.__code__ = code

    def undo() -> None:
        function.__code__ = before

    return undo


def say_our_name(module: types.ModuleType, word: str, only: Iterable[str] = (), leave: Iterable[str] = ()) -> Undo:
    """Makes the branches that a library wrote for the device `word` serve the active device.

    `torch.musa.device_count()` and "musa:0" in the functions of a module become `torch.fake.device_count()` and
    "fake:0". `only` names the functions, "f" or "Class.f"; without it, all functions except `leave` are changed.

    Raises:
        LookupError: there is nothing to change, because the library differs from the supported version.
    """
    names = list(only)
    functions = dict(functions_of(module))
    missing = [name for name in (*names, *leave) if name not in functions]
    if missing:
        raise LookupError(f"{module.__name__} has no {', '.join(missing)}")
    undos = []
    for name, held in functions.items():
        plain = innermost(held)
        if (name in names if names else name not in leave) and says(plain.__code__, word):
            forget(held)
            undos += [functools.partial(forget, held), _code(plain, renamed(plain.__code__, word, device_name()))]
    if not undos:
        raise LookupError(f"{module.__name__} does not name '{word}'")
    return together(*undos)


def functions_of(module: types.ModuleType):
    """Returns (name, owner) of all functions that a module defines, methods as "Class.method".

    Some libraries set a class's `__module__` to the module that exports it; its methods have that of their file.
    """

    def is_own(held):
        plain = innermost(held)
        return isinstance(plain, types.FunctionType) and plain.__module__ == module.__name__

    for name, value in list(vars(module).items()):
        if isinstance(value, type):
            yield from ((f"{name}.{method}", held) for method, held in list(vars(value).items()) if is_own(held))
        elif is_own(value):
            yield name, value


def says(code: types.CodeType, word: str) -> bool:
    """Returns whether a function contains the name of a device, as an attribute or in a string."""
    return renamed(code, word, word + "_") != code


def renamed(code: types.CodeType, word: str, name: str) -> types.CodeType:
    """Returns code in which attributes `word`, and `word` and `WORD` in strings, are replaced by another name."""

    def constant(value):
        if isinstance(value, str):
            value = re.sub(rf"\b{word}\b", name, value)
            return re.sub(rf"\b{word.upper()}\b", name.upper(), value)
        if isinstance(value, (tuple, frozenset)):
            return type(value)(map(constant, value))
        return renamed(value, word, name) if isinstance(value, types.CodeType) else value

    names = tuple(name if attribute == word else attribute for attribute in code.co_names)
    return code.replace(co_names=names, co_consts=tuple(map(constant, code.co_consts)))
