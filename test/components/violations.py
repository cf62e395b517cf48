"""Tests components.py: it reports each defect of a small repository.

    violations.py CC
"""
import subprocess
import sys
import tempfile
from pathlib import Path

import components


def write(root, name, text="", first=None):
    """Writes a file, whose first line names it: or which begins with `first`."""
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    named = path.suffix in components.SUFFIXES and first is None
    comment = f"// {path.name}: a file\n" if name.startswith("csrc/") else f"/* {path.name}: a file */\n"
    path.write_text((comment if named else first or "") + text)
    return path


def compiled(root, compiler, name, text):
    """An object where the build would have it."""
    source = write(root, f"objects/{Path(name).name}", text)
    result = root / "torch_backend_hal_objects.dir" / f"{name.removeprefix('hal/')}.o"
    result.parent.mkdir(parents=True, exist_ok=True)
    subprocess.run([compiler, "-c", source, "-o", result], check=True)
    return str(result)


def problems(plant, compiler):
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder).resolve()
        write(root, "hal/src/base/log.c", '#include "base/log.h"\n')
        write(root, "hal/src/base/log.h")
        write(root, "hal/src/device/device.h", '#include "base/log.h"\n')
        return components.check(root, plant(root, compiler) or ())


def nothing(root, compiler):
    write(root, "hal/src/device/device.c", '#include "device/device.h"\n#include "base/log.h"\n')
    return [compiled(root, compiler, "hal/src/base/log.c", "int hal_x(void); int hal_x(void) { return 1; }"),
            compiled(root, compiler, "hal/src/device/device.c", "int hal_x(void); int hal_y(void); int hal_y(void) { return hal_x(); }")]


def an_arrow_up(root, compiler):
    write(root, "hal/src/base/text.c", '#include "device/device.h"\n')


def a_private_header_in_a_plugin(root, compiler):
    write(root, "plugins/fake/run.c", '#include "../../hal/src/base/log.h"\n')


def a_circle(root, compiler):
    write(root, "hal/src/base/one.h", '#include "base/two.h"\n')
    write(root, "hal/src/base/two.h", '#include "base/one.h"\n')


def a_circle_of_subjects(root, compiler):
    write(root, "csrc/aten/copy/copy.h")
    write(root, "csrc/aten/fill/fill.h")
    write(root, "csrc/aten/copy/copy.cpp", '#include "aten/fill/fill.h"\n')
    write(root, "csrc/aten/fill/fill.cpp", '#include "aten/copy/copy.h"\n')


def a_circle_in_the_core(root, compiler):
    write(root, "csrc/core/status.cpp", '#include "core/stream/stream.h"\n')
    write(root, "csrc/core/status.h")
    write(root, "csrc/core/stream/stream.h", '#include "core/status.h"\n')


def a_full_folder(root, compiler):
    for number in range(components.MOST_FILES + 1):
        write(root, f"hal/src/memory/part{number}.c")


def a_long_file(root, compiler):
    write(root, "hal/src/memory/pool.c", "\n" * components.MOST_LINES)


def more_operator_code(root, compiler):
    write(root, "csrc/aten/copy/copy.cpp", "// Not counted.\n\n#define NOR_THIS\n" + "int x;\n" * (components.MOST_OPERATOR_LINES % 400 + 1))
    for number in range(components.MOST_OPERATOR_LINES // 400):
        write(root, f"csrc/aten/copy/part{number}.cpp", "int x;\n" * 400)


def a_number_that_could_be_lower(root, compiler):
    write(root, "csrc/aten/copy/copy.cpp", "int x;\n")


def a_call_up(root, compiler):
    return [compiled(root, compiler, "hal/src/base/log.c", "int hal_y(void); int hal_x(void); int hal_x(void) { return hal_y(); }"),
            compiled(root, compiler, "hal/src/device/device.c", "int hal_y(void); int hal_y(void) { return 1; }")]


def questions_of_the_queue(root, compiler):
    write(root, "hal/src/memory/copy.c", "int f(void) { return stream->queue != &stream->direct.queue; }\n")
    write(root, "hal/src/memory/event.c", "int f(void) { return queue->calls == table; }\n")
    write(root, "hal/src/memory/pending.c", "int f(void) { return use->stream->direct.handle ? 1 : 0; }\n")
    write(root, "hal/src/memory/close.c", "int f(void) { return queue->calls->is_recording(queue); }\n")
    write(root, "hal/src/op/kernel.c", "int f(void) { return hal_stream_queue(stream) == other; }\n")
    write(root, "hal/src/fusion/fuse.c", "int f(void) { return queue->calls == table; }\n")
    write(root, "hal/src/device/event.c", "int f(void) { return hal_lazy_of_stream(stream) != 0; }\n")


def uses_of_the_queue(root, compiler):
    write(root, "hal/src/memory/copy.c", "/* queue != NULL */ int f(void) { return queue->calls->flush(queue, \"x\"); }\n")
    write(root, "hal/src/lazy/lazy.c", "int f(void) { return queue->calls == &calls_table; }\n")


def a_forward_declaration_up(root, compiler):
    write(root, "hal/src/fusion/fuse.h", "typedef struct hal_fuse_s {\n  int count;\n} hal_fuse_t;\n")
    write(root, "hal/src/device/stream.h", "struct hal_fuse_s;\nvoid f(struct hal_fuse_s *fuse);\n")


def a_member_of_a_higher_type(root, compiler):
    write(root, "hal/src/fusion/fuse.c", "struct hal_fuse_s {\n  struct { int a; } b;\n};\n")
    write(root, "hal/src/device/stream.h", "struct hal_x_s {\n  struct hal_fuse_s *fuse;\n};\n")


def a_typedef_of_a_higher_type(root, compiler):
    write(root, "hal/src/memory/pool.c", "typedef struct hal_pool_s hal_pool_t;\nstruct hal_pool_s {\n  int a;\n};\n")
    write(root, "hal/src/device/stream.h", "struct hal_x_s {\n  hal_pool_t *pools[2];\n};\n")


PASSED_ON = "void f(struct hal_stream_s *a, struct hal_generator_s *b, struct hal_draw_s *c);\n"
HIGHER = "struct hal_stream_s {\n  int a;\n};\nstruct hal_generator_s {\n  int a;\n};\nstruct hal_draw_s {\n  int a;\n};\n"


def types_that_are_passed_on(root, compiler):
    write(root, "hal/src/device/stream.c", HIGHER + "/* struct hal_fuse_s */ void *slots[2];\n")
    write(root, "hal/src/queue/queue.h", PASSED_ON)
    write(root, "hal/src/fusion/fuse.c", "struct hal_fuse_s {\n  int a;\n};\nvoid f(struct hal_stream_s *stream);\n")


def a_type_that_is_passed_on_and_stored(root, compiler):
    write(root, "hal/src/device/stream.c", HIGHER)
    write(root, "hal/src/queue/queue.h", PASSED_ON + "struct hal_queue_s {\n  struct hal_stream_s *stream;\n};\n")


def a_type_that_is_no_longer_passed_on(root, compiler):
    write(root, "hal/src/device/stream.c", HIGHER)
    write(root, "hal/src/queue/queue.h", PASSED_ON.replace("hal_draw_s", "hal_other_s"))


def a_mutex_that_a_fork_leaves_locked(root, compiler):
    write(root, "hal/src/memory/pool.c", "static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;\n")


def locks_that_a_fork_frees(root, compiler):
    write(root, "hal/src/memory/pool.c", "/* no pthread_mutex_t lock; */ static hal_lock_t lock;\nvoid f(pthread_mutex_t *lock);\n")
    write(root, "hal/src/op/pack.c", "static pthread_mutex_t lock;\n")


def a_mutex_that_is_gone(root, compiler):
    write(root, "hal/src/op/pack.c")


def a_first_line_of_another_file(root, compiler):
    write(root, "hal/ops/copy/copy.c", first="/* op_copy.c: copies */\n")


def a_first_line_of_no_file(root, compiler):
    write(root, "csrc/core/status.cpp", first="#include <a>\n")


def a_comment_that_names_no_file(root, compiler):
    write(root, "hal/src/device/device.c", "/* see hal/src/device/queue.c */\n")


def a_fork(root, compiler):
    write(root, "hal/src/plugin/trial.c", "int f(void) { const pid_t child = fork(); return child; }\n")


def no_fork(root, compiler):
    write(root, "hal/src/plugin/trial.c", "/* after fork() */ void hal_after_fork(void); void f(void) { hal_after_fork(); }\n")


def python(root, name, text=""):
    write(root, f"{components.PACKAGE}/{name}.py", text)


def imports_down(root, compiler):
    python(root, "_registry")
    python(root, "backend/__init__", "from . import memory\nfrom .memory import empty_cache\n")
    python(root, "backend/memory", "from torch_backend import _C\nfrom .._registry import device_name\nimport torch\n")
    python(root, "_activation", "def use():\n    from . import _register\n")
    python(root, "_register", "from .backend import memory\n")


def an_import_up(root, compiler):
    python(root, "_activation")
    python(root, "lazy/__init__", "def enable():\n    from torch_backend._activation import use\n")


def an_import_of_the_package_by_its_module(root, compiler):
    python(root, "__init__", "from . import backend\n")
    python(root, "backend/__init__", "import torch_backend\n")


def state_that_imports(root, compiler):
    python(root, "_hal")
    python(root, "_registry", "from . import _hal\n")


def a_circle_of_imports(root, compiler):
    python(root, "lazy/one", "from .two import f\n")
    python(root, "lazy/two", "def g():\n    from torch_backend.lazy import one\n")


def a_circle_through_a_call(root, compiler):
    python(root, "xla/one", "import importlib\nimportlib.import_module('torch_backend.xla.two')\n")
    python(root, "xla/two", "from . import one\n")


def a_circle_of_generators(root, compiler):
    write(root, "codegen/kernels.py", "import oplist\n")
    write(root, "codegen/oplist.py", "import kernels\n")


def a_computed_import(root, compiler):
    python(root, "ops", "import importlib\nimportlib.import_module(f'{__package__}.fallback')\n")


def a_module_of_no_component(root, compiler):
    python(root, "surprise")


def main():
    expected = {nothing: "", an_arrow_up: "includes hal/src/device/device.h", a_private_header_in_a_plugin: "component plugins",
                a_circle: "a circle of includes", a_circle_of_subjects: "a circle of includes: csrc/aten/",
                a_circle_in_the_core: "a circle of includes: csrc/core", a_full_folder: "41 files", a_long_file: "501 lines", more_operator_code: "at most",
                a_number_that_could_be_lower: "lower MOST_OPERATOR_LINES", a_call_up: "needs hal_y", imports_down: "",
                an_import_up: "lazy/__init__.py (component lazy mode) imports", an_import_of_the_package_by_its_module: "torch_backend/__init__.py",
                state_that_imports: "_registry.py (component registry) imports", a_circle_of_imports: "a circle of imports: torch_backend/",
                a_circle_through_a_call: "a circle of imports: torch_backend/", a_circle_of_generators: "a circle of imports: codegen/",
                a_forward_declaration_up: "stream.h:2 (component device) names struct hal_fuse_s of hal/src/fusion/fuse.h",
                a_member_of_a_higher_type: "names struct hal_fuse_s of hal/src/fusion/fuse.c",
                a_typedef_of_a_higher_type: "names hal_pool_t of hal/src/memory/pool.c", types_that_are_passed_on: "",
                a_type_that_is_passed_on_and_stored: "names struct hal_stream_s of hal/src/device/stream.c",
                a_type_that_is_no_longer_passed_on: "no longer names struct hal_draw_s",
                a_mutex_that_a_fork_leaves_locked: "pool.c has a mutex", locks_that_a_fork_frees: "",
                a_mutex_that_is_gone: "pack.c has no mutex",
                a_first_line_of_another_file: "names op_copy.c; write copy.c", a_first_line_of_no_file: "begins with 'status.cpp: '",
                a_comment_that_names_no_file: "names hal/src/device/queue.c, which does not exist",
                a_fork: "posix_spawn", no_fork: "", questions_of_the_queue: "finds out which queue", uses_of_the_queue: "",
                a_computed_import: "names it computes", a_module_of_no_component: "belongs to no component"}
    for plant, words in expected.items():
        found = problems(plant, sys.argv[1])
        if bool(found) != bool(words) or not all(words in line for line in found):
            sys.exit(f"{plant.__name__}: expected '{words}', found {found}")
    print(f"{len(expected)} small repositories checked")


if __name__ == "__main__":
    main()
