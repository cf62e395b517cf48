"""Writes the headers of a stand-in for the next minor version of the plugin ABI: this version's, with one slot, a field of three structs and
a function of the host appended.

    next.py --include hal/include OUTPUT_FOLDER
"""
import argparse
import re
from pathlib import Path

SLOT = """
/* Adds 1 to a number. Default: HAL_UNIMPLEMENTED. Since the next minor. */
HAL_OP(%d, U, NONE, OPTIONAL, next_minor, (int32_t device, uint32_t value, int64_t *out_value),
       (device, value, out_value))
"""


def append_field(text, struct, field):
    new, count = re.subn(rf"\n}} {struct};", f"\n  {field}\n}} {struct};", text)
    assert count == 1, struct
    return new


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--include", type=Path, required=True)
    parser.add_argument("output", type=Path)
    arguments = parser.parse_args()
    texts = {path.name: path.read_text() for path in (arguments.include / "hal").iterdir()}
    minor = int(re.search(r"#define HAL_ABI_MINOR (\d+)", texts["plugin_base.h"]).group(1)) + 1
    texts["plugin_base.h"] = re.sub(r"#define HAL_ABI_MINOR \d+", f"#define HAL_ABI_NEXT\n#define HAL_ABI_MINOR {minor}", texts["plugin_base.h"])
    texts["plugin_ops.def"] += SLOT % minor
    for struct, field in (("hal_device_info_t", "uint64_t next_fact;"), ("hal_stream_desc_t", "uint32_t next_wish;"),
                          ("hal_kernel_info_t", "uint64_t next_fact;"), ("hal_host_api_t", "int64_t (*next_service)(void);")):
        texts["plugin.h"] = append_field(texts["plugin.h"], struct, field)
    texts["plugin.h"] = texts["plugin.h"].replace("HAL_ENGINE_ANY, 0 }", "HAL_ENGINE_ANY, 0, 0 }")
    for name, text in texts.items():
        path = arguments.output / "hal" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if not path.exists() or path.read_text() != text:  # else all that includes it would be built again
            path.write_text(text)


if __name__ == "__main__":
    main()
