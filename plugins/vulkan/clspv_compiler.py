"""Compiles a portable kernel from OpenCL C to SPIR-V for Vulkan by clspv (pip install pyclspv; CPython 3.11). A command for
torch-backend pack:

    torch-backend pack --output libhal_vulkan.pack --dialect spirv-vulkan --compiler "python clspv_compiler.py"

    clspv_compiler.py SOURCE OUTPUT [OPTIONS...]

In the modules, each pointer is followed by an offset (PK_POINTER_OFFSETS), because a storage buffer cannot begin at any
address. A device may limit a grid to 65535 blocks in each direction: the number of a block is x + 65535 * y. A string in the
module states that, which the plugin reads. The conformance suite's kernels are compiled as they are: their grids have three
dimensions, and their operands begin at aligned addresses.

If spirv-val is on PATH (Debian: spirv-tools), it checks each module.

On some kernels clspv accesses invalid memory, and ends by a signal in some runs only. It runs in a process of its own, and
again in another one after a signal, so that the kernels of a pack depend less on chance.
"""

import os
import re
import shutil
import struct
import subprocess
import sys

ATTEMPTS = 8
ATTEMPT = "--attempt"  # the first argument of a process that compiles
FOLD = 65535  # what every device of Vulkan supports (maxComputeWorkGroupCount)
MARK = f"torch_backend.fold={FOLD}"
MAGIC, HEADER_WORDS, BOUND = 0x07230203, 5, 3
STRING, TYPE_INT, TYPE_FLOAT, TYPE_VECTOR, CONSTANT, COMPOSITE, BITCAST, OR, AND = 7, 21, 22, 23, 43, 44, 124, 197, 199  # instructions
ACCESS_CHAINS, ADD, PHI = (65, 66, 67, 70), 128, 245
FARTHEST = 1 << 16  # elements before an address that mend_indices corrects

# The masks that clspv writes, and those that fabs and copysign of double need.
MASKS = {0x7FFFFFFF: 0x7FFFFFFFFFFFFFFF, 0xFFFFFFFF80000000: 0x8000000000000000}

# Mesa's llvmpipe 22.3.6 computes wrong numbers in a loop that has an atomic operation or a memory barrier in a
# condition, also if no thread gets there: in a SIMD group with inactive threads the loop ends early
# (scatter_reduce_*). spirv-val accepts the module, and the same loop with plain accesses is right, so the fault is
# the driver's. Portable kernels have both only in reports of invalid values (pk_error.h), where the first item wins.
# With plain accesses the items of one launch may overwrite each other's reports; one is still reported.
PREFIX = f"""\
#define PK_POINTER_OFFSETS 2
#define get_group_id(dimension) (get_group_id(0) + {FOLD}u * get_group_id(1))
#define get_global_id(dimension) ((ulong)get_group_id(0) * get_local_size(0) + get_local_id(0))
#define atomic_cmpxchg(word, expected, wanted) (*(word))
#define atomic_xchg(word, value) (*(word) = (value))
#define mem_fence(flags) (void)0
"""
# clspv truncates the masks of fabs and copysign of double to 32 bits. In its library, such as in log, only mend_masks
# can correct that. It is too late if clspv has applied a mask to a constant, so the kernels have functions of their
# own. They access the upper halves, because LLVM replaces operations on the whole number by fabs and copysign again.
# In double, Mesa's llvmpipe 22.3.6 rounds numbers in the middle of two integers toward zero (rint), loses the sign of
# zeros in rint and trunc, and does not truncate numbers beyond 2^48.
# clspv's sin, cos and tan of float reduce the angle by operations that must be fused (fma). Vulkan does not guarantee
# that, and in llvmpipe they are not: the error is 1e-3 near 1e4. The angle is reduced in double, up to 1e7.
WITH_DOUBLE = """\
static __attribute__((overloadable)) float pk_own_fabs(float x) { return fabs(x); }
static __attribute__((overloadable)) double pk_own_fabs(double x) {
  return as_double((uint2)(as_uint2(x).x, as_uint2(x).y & 0x7fffffffu));
}
static __attribute__((overloadable)) float pk_own_copysign(float x, float y) { return copysign(x, y); }
static __attribute__((overloadable)) double pk_own_copysign(double x, double y) {
  return as_double((uint2)(as_uint2(x).x, (as_uint2(x).y & 0x7fffffffu) | (as_uint2(y).y & 0x80000000u)));
}
static __attribute__((overloadable)) float pk_own_trunc(float x) { return trunc(x); }
static __attribute__((overloadable)) double pk_own_trunc(double x) {
  const uint2 bits = as_uint2(x);
  const int power = (int)(bits.y >> 20 & 0x7ffu) - 1023;
  if (power < 0) return as_double((uint2)(0u, bits.y & 0x80000000u));
  if (power < 20) return as_double((uint2)(0u, bits.y & ~(0xfffffu >> power)));
  return power < 52 ? as_double((uint2)(bits.x & ~(0xffffffffu >> (power - 20)), bits.y)) : x;
}
static __attribute__((overloadable)) float pk_own_rint(float x) { return rint(x); }
static __attribute__((overloadable)) double pk_own_rint(double x) {
  const double whole = pk_own_trunc(x), rest = pk_own_fabs(x - whole);
  if (!(pk_own_fabs(x) < 4503599627370496.0)) return x;
  return rest > 0.5 || (rest == 0.5 && (long)whole & 1) ? whole + pk_own_copysign(1.0, x) : whole;
}
#define rint(x) pk_own_rint(x)
#define trunc(x) pk_own_trunc(x)
#define fabs(x) pk_own_fabs(x)
#define copysign(x, y) pk_own_copysign(x, y)
static int pk_own_turn(float x, double* s, double* c) {
  const double k = rint(x * 0.6366197723675814), r = ((x - k * 1.5707963109016418) - k * 1.5893254712295857e-08) - k * 6.123233995736766e-17, z = r * r;
  *s = r + r * z * (-1.0 / 6 + z * (1.0 / 120 + z * (-1.0 / 5040 + z * (1.0 / 362880 - z * (1.0 / 39916800 - z / 6227020800.0)))));
  *c = 1.0 - z * (0.5 - z * (1.0 / 24 - z * (1.0 / 720 - z * (1.0 / 40320 - z * (1.0 / 3628800 - z / 479001600.0)))));
  return (int)k & 3;
}
static __attribute__((overloadable)) float pk_own_sin(float x) {
  double s, c;
  if (fabs(x) < 1e-4f || fabs(x) >= 1e7f) return fabs(x) < 1e-4f ? x : sin(x);
  const int turn = pk_own_turn(x, &s, &c);
  return (float)((turn & 1 ? c : s) * (turn & 2 ? -1.0 : 1.0));
}
static __attribute__((overloadable)) float pk_own_cos(float x) {
  double s, c;
  if (fabs(x) >= 1e7f) return cos(x);
  const int turn = pk_own_turn(x, &s, &c);
  return (float)((turn & 1 ? s : c) * ((turn + 1) & 2 ? -1.0 : 1.0));
}
static __attribute__((overloadable)) float pk_own_tan(float x) {
  double s, c;
  if (fabs(x) < 1e-4f || fabs(x) >= 1e7f) return fabs(x) < 1e-4f ? x : tan(x);
  return (float)(pk_own_turn(x, &s, &c) & 1 ? -c / s : s / c);
}
static __attribute__((overloadable)) double pk_own_sin(double x) { return sin(x); }
static __attribute__((overloadable)) double pk_own_cos(double x) { return cos(x); }
static __attribute__((overloadable)) double pk_own_tan(double x) { return tan(x); }
#define sin(x) pk_own_sin(x)
#define cos(x) pk_own_cos(x)
#define tan(x) pk_own_tan(x)
"""
WITHOUT_DOUBLE = """\
#undef cl_khr_fp64
#undef __opencl_c_fp64
"""

# clspv does not end on copies between half precision and other dtypes whose elements are loaded and stored in runs of
# 16 bytes. These kernels take the path for addresses that are not aligned to that, which copies element by element.
# Those of strided operands have no runs.
HALF_COPY = re.compile(r"copy_(b?f16_\w+|\w+_b?f16)_contig")
RUNS, ELEMENTS = "PK_ADDRESS(out) | PK_ADDRESS(a)", "1"


def define(option):
    """Returns the line of source for an option -DNAME or -DNAME=VALUE; an empty line for other options."""
    match = re.fullmatch(r"-D(\w+)(?:=(.*))?", option)
    return f"#define {match[1]} {match[2] or 1}\n" if match else ""


def instructions(words):
    """Yields the place of each instruction, its number, and its operands."""
    at = HEADER_WORDS
    while at < len(words):
        length = words[at] >> 16
        yield at, words[at] & 0xFFFF, words[at + 1 : at + length]
        at += length


def mark(words):
    """Inserts MARK as the first string. Strings precede names and types, and follow OpSource."""
    at = next((at for at, number, _ in instructions(words) if number == STRING), None)
    if at is None:
        sys.exit("clspv wrote no reflection")
    text = MARK.encode() + b"\0"
    text += b"\0" * (-len(text) % 4)
    words[at:at] = [(2 + len(text) // 4) << 16 | STRING, words[BOUND], *struct.unpack(f"<{len(text) // 4}I", text)]
    words[BOUND] += 1


def mend_masks(words):
    """Replaces the masks with which a module accesses the bits of doubles. Others of 64 bits remain."""
    doubles, longs, values, bits = set(), set(), set(), set()  # ids of types, then of results
    masks, uses = {}, []
    for at, number, operands in instructions(words):
        if number in (TYPE_FLOAT, TYPE_INT) and operands[1] == 64:
            (doubles if number == TYPE_FLOAT else longs).add(operands[0])
        elif number == TYPE_VECTOR:
            for types in (doubles, longs):
                if operands[1] in types:
                    types.add(operands[0])
        elif number == CONSTANT and operands[0] in longs and operands[2] | operands[3] << 32 in MASKS:
            masks[operands[1]] = at
        elif number == COMPOSITE and operands[0] in longs and set(operands[2:]) <= masks.keys():
            masks[operands[1]] = at
        elif operands and operands[0] in doubles:
            values.add(operands[1])
        elif number == BITCAST and operands[0] in longs and operands[2] in values:
            bits.add(operands[1])
        elif number in (AND, OR) and not bits.isdisjoint(operands[2:]):
            bits.add(operands[1])
            uses += [place for place in (at + 3, at + 4) if number == AND and words[place] in masks]
    if not uses:
        return
    mended, added = {}, []
    for mask, at in masks.items():
        head, kind, _, *operands = words[at : at + (words[at] >> 16)]
        is_number = head & 0xFFFF == CONSTANT
        value = MASKS[operands[0] | operands[1] << 32] if is_number else 0
        mended[mask] = words[BOUND]
        added += [head, kind, words[BOUND], *((value & 0xFFFFFFFF, value >> 32) if is_number else (mended[part] for part in operands))]
        words[BOUND] += 1
    for place in uses:
        words[place] = mended[words[place]]
    last = max(masks.values())
    end = last + (words[last] >> 16)
    words[end:end] = added


def negative(value):
    """Returns a negative distance in elements that was divided by their size without a sign, as a number of 32 bits; or
    None."""
    for shift in range(1, 6):
        if 0 < (1 << 32 - shift) - value <= FARTHEST:
            return value - (1 << 32 - shift) & 0xFFFFFFFF
    return None


def mend_indices(words):
    """Corrects indices that add a negative constant. clspv divides distances in bytes by the size of an element without
    their sign: a[i - 1] of 4-byte elements becomes a[i + 0x3fffffff]. No element of a buffer is that far away."""
    integers, constants, additions, phis, indices = set(), {}, [], [], set()
    for at, number, operands in instructions(words):
        if number == TYPE_INT and operands[1] == 32:
            integers.add(operands[0])
        elif number == CONSTANT and operands[0] in integers and negative(operands[2]) is not None:
            constants[operands[1]] = at
        elif number == ADD:
            additions.append((at, operands[1], operands[2:]))
        elif number == PHI:
            phis.append((operands[1], operands[2::2]))
        elif number in ACCESS_CHAINS:
            indices.update(operands[3:])
    before = -1
    while constants and before != len(indices):
        before = len(indices)
        for result, values in phis + [addition[1:] for addition in reversed(additions)]:
            if result in indices:
                indices.update(values)
    uses = [at + 3 + i for at, result, values in additions if result in indices for i in (0, 1) if values[i] in constants]
    mended, added = {}, []
    for place in uses:
        constant = words[place]
        if constant not in mended:
            head, kind, _, value = words[constants[constant] : constants[constant] + 4]
            mended[constant] = words[BOUND]
            added += [head, kind, words[BOUND], negative(value)]
            words[BOUND] += 1
        words[place] = mended[constant]
    if mended:
        end = max(constants[constant] for constant in mended) + 4
        words[end:end] = added


def compile_once(source, output, options):
    import pyclspv  # some 0.1 s

    kernel = os.environ.get("HAL_PACK_KERNEL", "")
    of_suite = kernel.startswith(("cts", "hal_cts"))  # the conformance suite's
    prefix = "".join(map(define, options)) + ("" if of_suite else PREFIX)
    if os.environ.get("HAL_PACK_FP64") == "0":
        prefix += WITHOUT_DOUBLE
    elif not of_suite:
        prefix += WITH_DOUBLE
    with open(source, encoding="utf-8") as file:
        text = file.read()
    if HALF_COPY.fullmatch(kernel):
        if RUNS not in text:
            sys.exit(f"{kernel}: its source has no '{RUNS}', without which clspv does not end")
        text = text.replace(RUNS, ELEMENTS)
    module = pyclspv.compile(prefix + text)
    if len(module) < 4 * HEADER_WORDS or struct.unpack_from("<I", module)[0] != MAGIC:
        sys.exit("clspv wrote no module")
    words = list(struct.unpack(f"<{len(module) // 4}I", module))
    mend_masks(words)
    mend_indices(words)
    if not of_suite:
        mark(words)
    with open(output, "wb") as file:
        file.write(struct.pack(f"<{len(words)}I", *words))
    validate(output)


def validate(path):
    """Ends the program if the module is invalid. Some of clspv's are, which a driver rejects or computes wrong."""
    validator = shutil.which("spirv-val")
    if validator is None:
        return
    done = subprocess.run([validator, "--target-env", "vulkan1.2", path], capture_output=True, text=True, check=False)
    if done.returncode:
        os.unlink(path)
        sys.exit(f"clspv wrote an invalid module: {' '.join((done.stdout + done.stderr).split())[:200]}")


def main():
    """Returns the exit code of the first attempt that ends without a signal, or of the last one."""
    arguments = sys.argv[1:]
    if arguments[0] == ATTEMPT:
        compile_once(arguments[1], arguments[2], arguments[3:])
        return 0
    for _ in range(ATTEMPTS):
        code = subprocess.run([sys.executable, "-P", __file__, ATTEMPT, *arguments], check=False).returncode
        if code >= 0:
            return code
    print(f"clspv ended by signal {-code} in each of {ATTEMPTS} runs", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main())
