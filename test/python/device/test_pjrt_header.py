"""plugins/pjrt/api.h declares the PJRT C API as the header of a PJRT plugin's package does. The package is not part of the tests'
environment of `make test`, because it is large: `make test-full` installs it."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
API, HEADER = ROOT / "plugins/pjrt/api.h", ROOT / "build/pjrt-old/xla_plugins/xla_cpu_pjrt/include/pjrt_c_api.h"
# Fields of ours that combine several of the header's.
COMBINED = {"later", "callbacks"}


def fields(text):
    """Returns the names of the fields of a struct's declarations."""
    text = re.sub(r"void \(\*(\w+)\)\([^)]*\)", r"void *\1", text)
    return [name for part in text.split(";") if part.strip() for name in re.findall(r"(\w+)\s*(?:\[\d+\])?\s*(?:,|$)", part)]


def assertions(known):
    """Yields static assertions about the slots `known` of the table, the fields of arguments, and the numbers of enumerations."""
    text = API.read_text()
    for slot in re.findall(r"X\((\w+)\)", text[: text.index("typedef pjrt_error_t *(*pjrt_slot_t)")])[1:]:
        if slot in known:
            yield f"SAME(offsetof(pjrt_table_t, {slot}), offsetof(PJRT_Api, PJRT_{slot}));"
    for slot, body in re.findall(r"^PJRT_ARGUMENTS\((\w+),(.*?)\)\n(?=PJRT|#undef)", text, re.S | re.M):
        for field in fields(re.sub(r"\s+", " ", body)):
            if field not in COMBINED:
                yield f"SAME(offsetof(pjrt_{slot}_t, {field}), offsetof(PJRT_{slot}_Args, {field}));"
    for name in ("PRED", "S64", "U64", "F16", "F64", "BF16", "C64", "C128", "F8E5M2", "F8E4M3FN"):
        yield f"SAME(PJRT_{name}, PJRT_Buffer_Type_{name});"
    for ours, theirs in (("STRING", "kString"), ("INT64", "kInt64"), ("INT64_LIST", "kInt64List"), ("FLOAT", "kFloat"), ("BOOL", "kBool")):
        yield f"SAME(PJRT_{ours}, PJRT_NamedValue_{theirs});"
    for field in ("struct_size", "name", "name_size", "type", "int64_value", "value_size"):
        yield f"SAME(offsetof(pjrt_named_t, {field}), offsetof(PJRT_NamedValue, {field}));"
    for field in ("code", "code_size", "format", "format_size"):
        yield f"SAME(offsetof(pjrt_program_text_t, {field}), offsetof(PJRT_Program, {field}));"
    for field in ("num_send_ops", "launch_id", "non_donatable_input_indices", "num_non_donatable_input_indices"):
        yield f"SAME(offsetof(pjrt_execute_options_t, {field}), offsetof(PJRT_ExecuteOptions, {field}));"
    yield "SAME(PJRT_ONLY_DURING_CALL, PJRT_HostBufferSemantics_kImmutableOnlyDuringCall);"
    yield "SAME(PJRT_MUTABLE_ZERO_COPY, PJRT_HostBufferSemantics_kMutableZeroCopy);"


@pytest.mark.slow  # only `make test-full` installs the package
@pytest.mark.skipif(not HEADER.exists(), reason=f"{HEADER} does not exist; `make test-full` installs it")
def test_declarations_have_the_layout_of_a_shipped_header(tmp_path):
    slots = set(re.findall(r"_PJRT_API_STRUCT_FIELD\(PJRT_(\w+)\)", HEADER.read_text()))
    found = list(assertions(slots))
    assert len(slots) > 100 and len(found) > 150, (len(slots), len(found))
    lines = "\n".join(found)
    source = tmp_path / "layout.c"
    source.write_text(f'#include <stddef.h>\n#include "{HEADER}"\n#include "{API}"\n#define SAME(a, b) _Static_assert((a) == (b), #a " is not " #b)\n{lines}\n')
    done = subprocess.run([shutil.which("cc") or "gcc", "-std=c11", "-fsyntax-only", "-w", source], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[:4000]
