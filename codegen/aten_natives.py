"""ATen's operators in the installed torch, by torchgen: their schemas, their overloads, their functions for the CPU."""
from __future__ import annotations

import difflib
import re
from importlib.metadata import version
from pathlib import Path

import torchgen
from torchgen.gen import get_grouped_native_functions, parse_native_yaml
from torchgen.model import DispatchKey, NativeFunction, NativeFunctionsGroup


class Natives:
    """The native functions of the installed torch."""

    def __init__(self):
        folder = Path(torchgen.__file__).parent / "packaged" / "ATen" / "native"
        parsed = parse_native_yaml(str(folder / "native_functions.yaml"), str(folder / "tags.yaml"))
        self._cpu = parsed.backend_indices[DispatchKey.CPU]
        self.version = version("torch")
        self.groups = {}  # {name of each overload: its group, or the native function if it has none}
        for group in get_grouped_native_functions(parsed.native_functions):
            for native in group.functions() if isinstance(group, NativeFunctionsGroup) else [group]:
                self.groups[str(native.func.name)] = group

    def find(self, entry, name):
        """Returns the native function of an entry and its group, or None if it has no group. Raises EntryError."""
        found = self.groups.get(name)
        if found is None:
            close = difflib.get_close_matches(name, self.groups, n=1)
            key = "op" if name == entry.name else "overloads" if name in entry.overloads else "function"
            raise entry.at(key).error(f"torch {self.version} has no operator aten::{name}; {f'did you mean {close[0]!r}? ' if close else ''}"
                                      "An operator that only some versions of torch have needs the key 'torch'")
        if isinstance(found, NativeFunction):
            return found, None
        return next(native for native in found.functions() if str(native.func.name) == name), found

    def has_function(self, name):
        """Whether ATen has an operator of a name without overload."""
        return any(each.split(".")[0] == name for each in self.groups)

    def cpu_function(self, native):
        """Returns the name of ATen's function for the CPU in at::native; None if ATen composes the operator of others."""
        metadata = self._cpu.get_kernel(native)
        return metadata.kernel if metadata else None

    def needs_kernel(self, native):
        """Returns whether a backend needs its own kernel for an overload, because ATen does not derive it from others."""
        return self.cpu_function(native) is not None and "generated" not in native.tags

    def root_of(self, identifier):
        """Returns the name in the headers of the operator whose class in at::_ops is `identifier`."""
        for group in self.groups.values():
            for native in [group] if isinstance(group, NativeFunction) else group.functions():
                if native.func.name.unambiguous_name() == identifier:
                    return native.root_name
        return None

    def has(self, entry):
        """Returns whether an entry is for the installed version of torch."""
        minor = tuple(int(part) for part in self.version.split(".")[:2])
        bounds = re.findall(r"(>=|<)(\d+)\.(\d+)", entry.torch)
        return all((minor >= (int(a), int(b))) == (sign == ">=") for sign, a, b in bounds)
