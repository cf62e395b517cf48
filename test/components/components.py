"""Checks the repository layout: which component may include and call which, and the size limits of files and folders.

    components.py [--root DIR] [--objects FILE]

Reads the includes and the imports of Python below --root, and with --objects (a list of object files of
torch_backend_hal, one a line) their symbols. Fails if a dependency points to a higher component, if the includes of
files, or the subjects of one component, are circular, if a folder has more than 40 files or a file more than 500 lines,
if the operators' functions have grown, or if a known violation listed below no longer exists. These lists may only
shrink.
"""
import argparse
import re
import subprocess
import sys
from pathlib import Path

import c_types
import first_lines
import fork_locks
import python_imports

MOST_FILES = 40
MOST_LINES = 500
SUFFIXES = {".c", ".h", ".cpp", ".pk", ".inc", ".def"}
FOLDERS = ("hal", "plugins", "csrc", "codegen", "torch_backend")  # where sizes are held

PACKAGE = "torch_backend/src/torch_backend"

# component: (its files, the components it may include directly; those below them are also allowed)
COMPONENTS = {
    # The plugin ABI, which has no dependencies, and the code linked into plugins.
    "abi": (["hal/include/hal/api.h", "hal/include/hal/plugin.h", "hal/include/hal/plugin_base.h", "hal/include/hal/plugin_op.h",
             "hal/include/hal/plugin_program.h", "hal/include/hal/plugin_sensor.h", "hal/include/hal/plugin_kernels.h",
             "hal/include/hal/plugin_ops.def", "hal/include/hal/plugin_groups.def"], []),
    "tools": ([f"hal/include/hal/plugin_{name}.h" for name in ("library", "worker", "watch", "count", "records", "binary", "spirv", "clang", "process", "setting", "transfer", "shared_event", "flags")], ["abi"]),
    "sdk": (["hal/sdk/"], ["tools"]),
    "helper": (["hal/helper/"], ["sdk"]),  # the program in which plugins are tried
    "plugins": (["plugins/"], ["tools"]),
    # The HAL.
    "base": (["hal/src/base/", "hal/include/hal/status.h", "hal/include/hal/log.h"], ["abi"]),
    "plugin": (["hal/src/plugin/", "hal/include/hal/registry.h"], ["base", "sdk"]),
    "queue": (["hal/src/queue/"], ["plugin"]),  # the interface of a stream's queue, and the implementation that calls the plugin
    "device": (["hal/src/device/"] + [f"hal/include/hal/{name}.h" for name in
                                      ("device", "event", "stream", "generator", "profile", "sensor")], ["queue", "kernels"]),
    "memory": (["hal/src/memory/", "hal/include/hal/memory.h", "hal/include/hal/host_memory.h"], ["device"]),
    "op": (["hal/src/op/", "hal/include/hal/op.h", "hal/include/hal/kernel.h", "hal_op_ids.h", "hal_op_sizes.h", "hal_op_source.inc"], ["memory"]),
    "comm": (["hal/src/comm/", "hal/include/hal/comm.h"], ["op"]),  # collectives between processes
    # Work that is recorded. The public header of lazy mode has types that all four use: descriptions, counts, metrics.
    "capture": (["hal/src/capture/", "hal/include/hal/program.h", "hal/include/hal/lazy.h"], ["op"]),
    "fusion": (["hal/src/fusion/"], ["capture"]),
    "compile": (["hal/src/compile/", "hal/include/hal/compiler.h"], ["fusion"]),
    "deferred": (["hal/src/lazy/"], ["compile"]),
    "kernels": (["hal/kernels/", "pk_table.inc"], ["abi"]),
    "ops": (["hal/ops/", "hal_op_variants.h", "hal_op_table.inc", "hal_op_copy.inc"], ["op", "kernels"]),
    "components": (["hal/src/"], ["op", "ops", "deferred"]),  # hal/src/components.c, which connects the components
    "hal": (["hal/include/hal/hal.h"], ["op", "deferred", "comm"]),  # all public headers at once
    # the conformance suite: the loader, the calls, and packs
    "cts": (["hal/cts/", "hal_cts_rules.inc", "hal_cts_operators.inc"], ["op"]),
    "packing": (["hal/pack/"], ["op", "cts"]),  # the program that builds packs of kernels ahead of time
    # The torch side.
    "core": (["csrc/core/", "csrc/precompiled.h"], ["hal"]),
    "prepare": (["csrc/aten/prepare/"], ["core"]),
    "fallback": (["csrc/aten/fallback/"], ["prepare"]),
    "aten": (["csrc/aten/"], ["fallback"]),  # one folder per subject
    "amp": (["csrc/amp/"], ["core"]),
    "lazy": (["csrc/lazy/"], ["core"]),
    "profiler": (["csrc/profiler/"], ["core"]),
    "api": (["csrc/api/"], ["prepare"]),
    "distributed": (["csrc/distributed/"], ["core"]),
    "python": (["csrc/python/"], ["aten", "api", "amp", "distributed", "lazy", "profiler"]),
    # The Python packages: the imports allowed in the modules of each package, also inside functions; "registry" is the
    # state that all may import.
    "registry": ([f"{PACKAGE}/_registry.py"], []),
    "files": ([f"{PACKAGE}/{name}.py" for name in ("_builds", "_first_use", "_hal", "_imports", "_pictures", "_receiving")], ["registry"]),
    "extension": ([f"{PACKAGE}/_C", f"{PACKAGE}/_extension.py"], ["registry"]),
    "device module": ([f"{PACKAGE}/backend/"], ["extension", "files"]),
    "lazy mode": ([f"{PACKAGE}/lazy/"], ["extension", "files"]),
    "operators": ([f"{PACKAGE}/{name}.py" for name in ("fallback", "ops", "_coverage", "custom")] + [f"{PACKAGE}/meta/"], ["extension", "files"]),
    "autocompare": ([f"{PACKAGE}/_autocompare/"], ["extension", "files"]),
    "leaves": ([f"{PACKAGE}/_{name}.py" for name in ("data_parallel", "device_lists", "dlpack", "multiprocessing", "optimizers", "packages", "profiler", "serialization")],
               ["files", "lazy mode"]),
    "process groups": ([f"{PACKAGE}/distributed/"], ["extension", "files"]),
    "integrations": ([f"{PACKAGE}/integrations/"], ["device module", "operators"]),
    "dynamo": ([f"{PACKAGE}/dynamo/"], ["triton"]),
    "triton": ([f"{PACKAGE}/triton/"], ["device module"]),
    "inductor": ([f"{PACKAGE}/inductor/"], ["dynamo"]),
    "registration": ([f"{PACKAGE}/_register.py"], ["leaves", "integrations", "inductor", "process groups"]),
    "activation": ([f"{PACKAGE}/_activation.py"], ["registration"]),
    "package": ([f"{PACKAGE}/__init__.py"], ["activation", "autocompare"]),
    "xla": ([f"{PACKAGE}/xla/"], ["activation"]),
    "programs": ([f"{PACKAGE}/__main__.py", f"{PACKAGE}/cli/", f"{PACKAGE}/demo.py"], ["package"]),
    "lazy_tensor_core": (["torch_backend/src/lazy_tensor_core/"], ["xla"]),
    "codegen": (["codegen/"], []),
}

SUBJECTS = {"aten", "core", "ops"}  # components whose folders must not include each other circularly

# The folders in which an include is searched, after the folder of its own file.
SEARCH = ("hal/include", "hal/src", "hal", "hal/sdk", "hal/kernels", "hal/cts", "hal/pack", "csrc")

# Tables that a lower component declares and a higher one defines: a call of a higher component goes through one of
# them.
HOOKS = {"hal_host_api", "hal_life_hooks", "hal_registry_hooks", "hal_device_hooks", "hal_op_infos", "hal_op_families", "hal_op_dtype_tokens"}

# Operators as data: the lines of code (without blank lines, comments or directives) in the folders of csrc/aten that
# have operators' functions, except functions that entries name by `meta`, `precomputed` and `fallback_if`. The number
# may only shrink; a decrease by OPERATOR_SLACK lines lowers it. Operators for which ATen has no function to reuse raise
# it by their functions: _int_mm, _weight_int8pack_mm and _scaled_mm by 66, attention of packed sequences with dropout
# by 161, nonzero_static, whose elements ATen's function reads by the host, by 8, products with weights of 4 bits and
# _scaled_mm_v2 by 70, _scaled_grouped_mm by 59, _scaled_mm of float4 and of small blocks by 73, LSTM as one node of
# autograd by 105, kaiser_window by 12.
OPERATOR_COMPONENT, MOST_OPERATOR_LINES, OPERATOR_SLACK = "aten", 4236, 20

# Only the implementations know which queue a stream has (hal/src/queue/queue.h). No other file compares a queue or its
# table, or queries the kind of recording or whether a stream has a handle. The exceptions of each file:
QUEUE_COMPONENTS = {"queue", "capture", "deferred"}
QUEUE_QUESTION = re.compile(r"""
    \b\w*queue\s*[!=]=(?!\s*NULL) | [!=]=\s*&?[\w.>-]*\bdirect\.queue\b | [!=]=\s*hal_stream_queue\b | hal_stream_queue\([^()]*\)\s*[!=]=
    | \bcalls\s*[!=]= | [!=]=\s*[\w.>-]*->calls\b | [!=]=\s*&hal_(?:direct|program)_calls
    | \bcalls->is_recording\b | \bhal_program_calls\b | \bhal_(?:lazy|program)_of_stream\b | \bhal_stream_is_recorded\s*\((?!hal_stream_t)
    | ![\w.>-]*\bdirect\.handle\b | \bdirect\.handle\s*(?:&&|\|\||\?|[!=]=\s*NULL) | (?:if|while)\s*\([\w.>-]*\bdirect\.handle\)
    | \bis_(?:lazy|deferred|captured)\b\s*\(\s*\w*(?:stream|queue)""", re.VERBOSE)
QUEUE_ANSWERED = {
    # hal_op_run: one comparison, which avoids calls of kernels
    "hal/src/op/dispatch.c": ("queue !=", "!= &target->stream->direct.queue"),
    "hal/src/device/stream.c": ("calls->is_recording",),  # the public question
}

# Known violations. These lists may only shrink.
KNOWN_ARROWS = set()
KNOWN_LONG = {}
ABI_LIST = "hal/include/hal/plugin_ops.def"  # one list, to which each minor version appends: it has no limit


def component_of(path):
    """The component with the longest matching pattern."""
    matches = [(len(pattern), component) for component, (patterns, _) in COMPONENTS.items() for pattern in patterns
               if path == pattern or (pattern.endswith("/") and path.startswith(pattern))]
    return max(matches)[1] if matches else None


def allowed(component):
    """The components that a component may include: its own and all below."""
    found, todo = set(), [component]
    while todo:
        at = todo.pop()
        if at not in found:
            found.add(at)
            todo += COMPONENTS[at][1]
    return found


def source_files(root):
    folders = sorted({pattern.split("/")[0] for patterns, _ in COMPONENTS.values() for pattern in patterns if "/" in pattern})
    return [path for folder in folders for path in sorted((root / folder).rglob("*"))
            if path.suffix in SUFFIXES and path.is_file()]


def includes(root, path):
    """The included files of this project, relative to the root; generated ones by their bare name."""
    for name in re.findall(r'^\s*#\s*include\s*["<]([^">]+)[">]', path.read_text(), re.MULTILINE):
        for folder in [path.parent, *(root / folder for folder in SEARCH)]:
            if (folder / name).is_file():
                yield (folder / name).resolve().relative_to(root).as_posix()
                break
        else:
            if component_of(name):
                yield name


def check_arrows(graph):
    known = set(KNOWN_ARROWS)
    for source, targets in graph.items():
        component = component_of(source)
        if component is None:
            yield f"{source} belongs to no component; name its folder in test/components/components.py"
            continue
        for target in targets:
            if component_of(target) in allowed(component):
                continue
            if (source, target) in known:
                known.discard((source, target))
                continue
            verb, cure = ("imports", "let the lower one be given a function") if source.endswith(".py") else (
                "includes", "let the lower component declare a table of function pointers that a higher one defines")
            yield f"{source} (component {component}) {verb} {target} (component {component_of(target)}), which is not below it; {cure}"
    for source, target in sorted(known):
        if source in graph:
            yield f"{source} does not include {target} any more: take the line out of KNOWN_ARROWS"


def check_circles(graph):
    state = {}  # file -> 1 in progress, 2 done

    def visit(path, way):
        state[path] = 1
        for target in graph.get(path, ()):
            if state.get(target) == 1 and target != path:
                circle = way[way.index(target):] + [target] if target in way else [path, target]
                yield f"a circle of {'imports' if path.endswith('.py') else 'includes'}: " + " -> ".join(circle)
            elif target not in state:
                yield from visit(target, way + [target])
        state[path] = 2

    for path in graph:
        if path not in state:
            yield from visit(path, [path])


def folder_of(path):
    return path.rsplit("/", 1)[0]


def check_subjects(graph):
    """In some components, each folder is a subject."""
    folders = {}
    for source, targets in graph.items():
        if component_of(source) not in SUBJECTS:
            continue
        inside = [t for t in targets if "/" in t and component_of(t) == component_of(source) and folder_of(t) != folder_of(source)]
        folders.setdefault(folder_of(source), set()).update(folder_of(target) for target in inside)
    yield from check_circles(folders)


def check_settings(root):
    """Plugins, and code linked into them, read the environment by hal_setting, which ignores it in a privileged
    process."""
    for path in source_files(root):
        name = path.relative_to(root).as_posix()
        if name.startswith(("plugins/", "hal/sdk/")) and re.search(r"\bgetenv\(", path.read_text()):
            yield f"{name}: getenv; read settings by hal_setting (hal/plugin_setting.h)"


def check_forks(root):
    """A fork of a process with threads may call only async-signal-safe functions: work runs in the helper program or a
    compiler's process."""
    for path in source_files(root):
        name = path.relative_to(root).as_posix()
        if name.startswith(("plugins/", "hal/sdk/", "hal/src/", "csrc/")) and re.search(r"\bv?fork\(\)\s*;", path.read_text()):
            yield f"{name}: fork; start a program by posix_spawn (hal/sdk/helper.h, hal/plugin_process.h)"


def check_sizes(root):
    long = set(KNOWN_LONG)
    for folder in FOLDERS:
        paths = [path for path in sorted((root / folder).rglob("*")) if path.is_file() and "__pycache__" not in path.parts]
        counts = {}
        for path in paths:
            name = path.relative_to(root).as_posix()
            counts[path.parent] = counts.get(path.parent, 0) + 1
            if path.suffix not in SUFFIXES | {".py", ".yaml"}:
                continue
            if name == ABI_LIST:
                continue
            lines = path.read_text().count("\n")
            if lines > MOST_LINES and name not in long:
                yield f"{name} has {lines} lines, and a file has at most {MOST_LINES}; it has more than one subject"
            if lines <= MOST_LINES and name in long:
                yield f"{name} is short enough now: take the line out of KNOWN_LONG"
        for parent, count in sorted(counts.items()):
            if count > MOST_FILES:
                yield f"{parent.relative_to(root).as_posix()} has {count} files, and a folder has at most {MOST_FILES}; divide it"


def operator_lines(root):
    """The number of lines of code of the operators' functions."""
    paths = [path for path in source_files(root) if component_of(path.relative_to(root).as_posix()) == OPERATOR_COMPONENT
             and path.stem not in ("conditions", "meta")]
    lines = (line.strip() for path in paths for line in path.read_text().splitlines())
    return sum(bool(line) and not line.startswith(("//", "#")) for line in lines)


def check_operators(root):
    lines = operator_lines(root)
    if lines > MOST_OPERATOR_LINES:
        yield (f"the functions of operators have {lines} lines of code, and at most {MOST_OPERATOR_LINES} are allowed; state the rule once: an "
               "entry of codegen/operators, a function of ATen's (`register: reuse`), csrc/aten/prepare")
    if lines and lines < MOST_OPERATOR_LINES - OPERATOR_SLACK:
        yield f"the functions of operators have {lines} lines of code: lower MOST_OPERATOR_LINES of test/components/components.py, {MOST_OPERATOR_LINES}, to that"


def check_symbols(objects):
    """An object of a lower component must not need a symbol that an object of a higher component defines."""
    defined, wanted = {}, []
    for line in subprocess.run(["nm", "-A", *objects], check=True, capture_output=True, text=True).stdout.splitlines():
        path, symbol = line.split(":", 1)
        source = re.sub(r".*/torch_backend_hal_objects\.dir/(?:\./)?(.*)\.o", r"hal/\1", path)
        kind, name = symbol.split()[-2:]
        if kind == "U":
            wanted.append((source, name))
        elif kind.isupper():
            defined[name] = source
    for source, name in wanted:
        if name in defined and name not in HOOKS and component_of(defined[name]) not in allowed(component_of(source)):
            yield (f"{source} (component {component_of(source)}) needs {name} of {defined[name]} (component {component_of(defined[name])}), "
                   "which is above it; let it call through a table that it was given")


def check_queues(root):
    """Outside the implementations of hal/src/queue/queue.h, a file must not query which of them a stream has."""
    for path in source_files(root):
        name = path.relative_to(root).as_posix()
        if not name.startswith(("hal/src/", "hal/ops/")) or component_of(name) in QUEUE_COMPONENTS:
            continue
        code = re.sub(r"/\*.*?\*/", lambda comment: re.sub(r"[^\n]", " ", comment.group()), path.read_text(), flags=re.DOTALL)
        code = "\n".join(line for line in code.split("\n") if not line.lstrip().startswith("#include"))
        for question in QUEUE_QUESTION.finditer(code):
            if " ".join(question.group().split()) not in QUEUE_ANSWERED.get(name, ()):
                line = code.count("\n", 0, question.start()) + 1
                yield (f"{name}:{line}: '{question.group()}' finds out which queue a stream has; make it a function of hal_queue_calls_t "
                       "(hal/src/queue/queue.h), which each implementation implements")


NAMED_FILE = re.compile(r"(?<![\w/])(?:hal/(?:src|ops|kernels|sdk)|csrc/aten|codegen)/[\w/]+\.(?:c|h|cpp|py|pk|def|yaml)\b")


def check_named_files(root):
    """A file that a comment names must exist."""
    for path in source_files(root):
        for name in NAMED_FILE.findall(path.read_text()):
            if not (root / name).exists():
                yield f"{path.relative_to(root).as_posix()} names {name}, which does not exist; name the file that has taken its place"


def check(root, objects=()):
    graph = {path.relative_to(root).as_posix(): list(includes(root, path)) for path in source_files(root)}
    imported, unread = python_imports.imports(root)
    graph.update(imported)
    paths = {path.relative_to(root).as_posix(): path for path in source_files(root)}
    code = {name: c_types.code_of(path) for name, path in paths.items()}
    lines = {name: path.read_text().split("\n", 1)[0] for name, path in paths.items()}
    return [*unread, *check_arrows(graph), *check_circles(graph), *check_subjects(graph), *check_sizes(root), *check_operators(root),
            *check_queues(root), *check_named_files(root), *check_settings(root), *check_forks(root), *c_types.check(code, component_of, allowed),
            *first_lines.check(lines), *fork_locks.check(code), *(check_symbols(objects) if objects else ())]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--root", type=Path, default=Path(__file__).resolve().parents[2])
    parser.add_argument("--objects", type=Path, help="a file that lists the objects of torch_backend_hal")
    options = parser.parse_args()
    objects = options.objects.read_text().split() if options.objects else []
    problems = check(options.root.resolve(), objects)
    print("\n".join(problems) or f"the layout is valid ({len(objects)} objects read)")
    sys.exit(bool(problems))


if __name__ == "__main__":
    main()
