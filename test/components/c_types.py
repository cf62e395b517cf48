"""Finds where the structs of the HAL are defined, and which files name them, including forward declarations, typedefs
and members, which need no include."""
import re

COMMENT = re.compile(r"/\*.*?\*/|//[^\n]*", re.DOTALL)
TAG = re.compile(r"\bstruct\s+(hal_\w+)")
DEFINITION = re.compile(r"\bstruct\s+(hal_\w+)\s*\{")
ALIAS = re.compile(r"\btypedef\s+struct\s+(hal_\w+)\s+(hal_\w+)\s*;")
UNNAMED = re.compile(r"\btypedef\s+struct\s*\{")
NAME = re.compile(r"\bhal_\w+_t\b")


def code_of(path):
    """Returns the text of a file with its comments replaced by blanks, so that positions do not change."""
    return COMMENT.sub(lambda comment: re.sub(r"[^\n]", " ", comment.group()), path.read_text())


def _end_of_body(code, begin):
    """Returns the position after the brace that closes the one before `begin`."""
    depth, at = 1, begin
    while depth and at < len(code):
        depth += {"{": 1, "}": -1}.get(code[at], 0)
        at += 1
    return at


def _names_after(code, end):
    """The typedef name that follows a struct's body."""
    found = re.match(r"\s*(hal_\w+)\s*;", code[end:])
    return [found.group(1)] if found else []


def definitions(sources):
    """{tag or typedef name: file that defines the struct}, of {file: code}."""
    found, aliases = {}, []
    for name, code in sources.items():
        for match in DEFINITION.finditer(code):
            found[f"struct {match.group(1)}"] = name
            for alias in _names_after(code, _end_of_body(code, match.end())):
                found[alias] = name
        for match in UNNAMED.finditer(code):
            for alias in _names_after(code, _end_of_body(code, match.end())):
                found[alias] = name
        aliases += ALIAS.findall(code)
    found.update({alias: found[f"struct {tag}"] for tag, alias in aliases if f"struct {tag}" in found})
    return found


def mentions(code):
    """The structs that a file names, as (key of definitions, line)."""
    for pattern, key in ((TAG, "struct {}"), (NAME, "{}")):
        for match in pattern.finditer(code):
            yield key.format(match.group(1) if pattern is TAG else match.group()), code.count("\n", 0, match.start()) + 1


# Files that pass on pointers of higher components as parameters without accessing them: the types that they may name,
# but not store.
PASSED_ON = {
    "hal/src/queue/queue.h": {"struct hal_stream_s", "struct hal_generator_s", "struct hal_draw_s"},  # hal_queue_calls_t
    "hal/src/queue/direct.c": {"struct hal_stream_s", "struct hal_generator_s", "struct hal_draw_s"},
    # PK_LAUNCHER, for programs that launch their own kernels
    "hal/kernels/pk_args.h": {"hal_kernel_t", "hal_stream_t"},
}

# files where types are checked; the public headers declare types that are opaque to callers
SUBJECTS = ("hal/src/", "hal/ops/", "hal/kernels/")
DEFINING = (*SUBJECTS, "hal/include/")


def _is_stored(code, key):
    return re.search(rf"\b{key}\b[\s*]*(?:const\s+)?\w+\s*(?:\[[^\]]*\]\s*)*;", code) is not None


def check(sources, component_of, allowed):
    """A file may name structs of its own component and of those below it: a higher component's data is an opaque slot
    (device/slot.h)."""
    defined = definitions({name: code for name, code in sources.items() if name.startswith(DEFINING)})
    unused = {(name, key) for name, keys in PASSED_ON.items() for key in keys if name in sources}
    for name, code in sources.items():
        if not name.startswith(SUBJECTS):
            continue
        below, reported = allowed(component_of(name)), set()
        for key, line in mentions(code):
            if key in reported or key not in defined or component_of(defined[key]) in below:
                continue
            unused.discard((name, key))
            if key in PASSED_ON.get(name, ()) and not _is_stored(code, key):
                continue
            reported.add(key)
            yield (f"{name}:{line} (component {component_of(name)}) names {key} of {defined[key]} (component {component_of(defined[key])}), which "
                   "is above it; store it in a slot (hal/src/device/slot.h), or let the higher component pass a table of functions")
    for name, key in sorted(unused):
        yield f"{name} no longer names {key}: remove it from PASSED_ON"
