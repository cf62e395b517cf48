"""Writes a C program that prints the layout of the types in the plugin ABI. It prints a line for each field (offset and
size), each struct without struct_size (its size) and each constant of the plugin headers.

    abi_structs.py --include hal/include OUTPUT.c

New structs, fields and constants need no change here: the script reads the headers.
"""
import argparse
import re
from pathlib import Path

# Types that a plugin and the host exchange. plugin_flags.h, plugin_worker.h and similar belong to the SDK: only the
# plugin compiles them.
HEADERS = ("plugin_base.h", "plugin_op.h", "plugin_program.h", "plugin_sensor.h", "plugin_kernels.h", "plugin.h")
NO_NUMBER = ("HAL_PLUGIN_EXPORT", "HAL_ABI_MAJOR", "HAL_ABI_MINOR", "HAL_ABI_MINOR_OLDEST")


def without_comments(text):
    return re.sub(r"/\*.*?\*/", " ", text, flags=re.S)


def structs(text):
    """Yields (type, names of its fields)."""
    for tag, body, name in re.findall(r"typedef struct (\w+) \{(.*?)\n\} (\w+);", text, re.S):
        body = re.sub(r"^#.*(?:\\\n.*)*$", "", body, flags=re.M)
        body = re.sub(r"union \{.*?\} (\w+);", r"int \1;", body, flags=re.S)
        fields = []
        for declaration in body.split(";"):
            function = re.search(r"\(\*(\w+)\)", declaration)
            if function:
                fields.append(function.group(1))
            elif declaration.strip():
                fields += [re.search(r"(\w+)\s*(?:\[\w+\])?\s*$", part).group(1) for part in declaration.split(",")]
        assert fields, tag
        yield name, fields


def constants(text):
    """Yields the names of enumerators, of numeric macros, and of the entries of tables such as HAL_SENSORS."""
    text = re.sub(r"enum \{\n#.*?\};", "", text, flags=re.S)  # those of tables
    for body in re.findall(r"\benum \{(.*?)\}", text, re.S):
        for name in re.findall(r"\b(HAL_\w+)\s*(?:=|,|$)", body.strip()):
            yield name
    for name in re.findall(r"^#define (HAL_\w+)[ \\]", text, re.M):  # without parameters
        if name not in NO_NUMBER:
            yield name
    for prefix, table in re.findall(r"^#define (HAL_\w+)S\(X\)((?:.*\\\n)+.*)", text, re.M):  # HAL_SENSORS, HAL_DEVICE_EVENTS
        for name in re.findall(r"X\(\d+, (\w+), \"", table):
            yield f"{prefix}_{name}"


def listed(text):
    """Returns the types that the rules of plugin.h list as types without struct_size."""
    frozen = re.search(r"These never change: (.*?)\.", text, re.S).group(1)
    strided = re.search(r"These may grow[^:]*: (.*?)\.", text, re.S).group(1)
    return set(re.findall(r"hal_\w+_t", f"{frozen} {strided}"))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--include", type=Path, required=True)
    parser.add_argument("output", type=Path)
    arguments = parser.parse_args()
    texts = {name: (arguments.include / "hal" / name).read_text() for name in HEADERS}
    found = [struct for text in texts.values() for struct in structs(without_comments(text))]
    sizeless = [name for name, fields in found if fields[0] != "struct_size"]
    rules = re.sub(r"\s*\n \*\s*", " ", texts["plugin.h"])
    if set(sizeless) != listed(rules):
        raise SystemExit(f"the rules of plugin.h list other structs without struct_size than there are: {sorted(set(sizeless) ^ listed(rules))}")
    lines = [f'  printf("{name}.{field} at %zu, %zu bytes\\n", offsetof({name}, {field}), sizeof((({name} *)0)->{field}));'
             for name, fields in found for field in fields]
    lines += [f'  printf("{name} has %zu bytes\\n", sizeof({name}));' for name in sizeless]
    lines += [f'  printf("{name} is %lld\\n", (long long)({name}));'
              for text in texts.values() for name in dict.fromkeys(constants(without_comments(text)))]
    arguments.output.parent.mkdir(parents=True, exist_ok=True)
    arguments.output.write_text("/* Written by abi_structs.py. */\n#include <hal/plugin.h>\n#include <hal/plugin_kernels.h>\n#include <stdio.h>\n\n"
                                "int main(void) {\n" + "\n".join(lines) + "\n  return 0;\n}\n")


if __name__ == "__main__":
    main()
