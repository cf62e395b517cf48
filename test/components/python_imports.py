"""Reads which Python files of the project import which others, at any position in a file: an import in a function is a
dependency as well."""
import ast

# Folders in which imports are looked for, and the module that is built from C++.
SEARCH = ("torch_backend/src", "codegen")
EXTENSION = "torch_backend/src/torch_backend/_C"

# Files that import modules of their own whose names they compute.
COMPUTED = {"torch_backend/src/torch_backend/xla/__init__.py"}  # install_as: each of its own modules, under another name


def module_files(root):
    """The files by the names under which they are imported."""
    found = {"torch_backend._C": EXTENSION}
    for folder in SEARCH:
        for path in sorted((root / folder).rglob("*.py")):
            parts = path.relative_to(root / folder).with_suffix("").parts
            name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
            found[name] = path.relative_to(root).as_posix()
    return found


def _package(name, path):
    """The package to which relative imports of a module refer."""
    return name if path.endswith("/__init__.py") else name.rpartition(".")[0]


def _base(node, package):
    """The module that `from base import ...` names."""
    if not node.level:
        return node.module or ""
    parts = package.split(".")[: len(package.split(".")) - node.level + 1]
    return ".".join([*parts, *([node.module] if node.module else [])])


def _is_import_call(node):
    name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
    return name in ("import_module", "__import__") and bool(node.args)


def _imported(node, package):
    """The names of modules that a node of the syntax tree may import."""
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    if isinstance(node, ast.ImportFrom):
        base = _base(node, package)
        return [name for alias in node.names for name in (f"{base}.{alias.name}" if base else alias.name, base)]
    if isinstance(node, ast.Call) and _is_import_call(node) and isinstance(node.args[0], ast.Constant):
        return [str(node.args[0].value)]
    return []


def imports(root):
    """The graph of imports, as {file: [files]}, and the problems of imports that cannot be read."""
    files = module_files(root)
    graph, problems = {}, []
    for name, path in files.items():
        if path == EXTENSION:
            continue
        package, targets = _package(name, path), {}
        for node in ast.walk(ast.parse((root / path).read_text(), path)):
            names = _imported(node, package)
            if isinstance(node, ast.ImportFrom):  # a submodule, or else what the module itself defines
                names = [sub if sub in files else base for sub, base in zip(names[::2], names[1::2])]
            targets.update({files[one]: None for one in names if one in files})
            if isinstance(node, ast.Call) and _is_import_call(node) and "__" in ast.unparse(node.args[0]) and path not in COMPUTED:
                problems.append(f"{path}:{node.lineno} imports modules whose names it computes; name them")
        targets.pop(path, None)
        graph[path] = list(targets)
    return graph, problems
