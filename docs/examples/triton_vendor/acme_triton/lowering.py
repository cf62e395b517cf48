"""Triton IR to C, for kernels without control flow on one-dimensional blocks. A value of a block is an array, and each
operation is a loop. An operation that is not here is an error that names it."""

import re

TYPES = {"f32": "float", "f64": "double", "i1": "_Bool", "i8": "int8_t", "i16": "int16_t", "i32": "int32_t", "i64": "int64_t"}
INFIX = {"addi": "+", "subi": "-", "muli": "*", "divsi": "/", "remsi": "%", "andi": "&", "ori": "|", "xori": "^", "shli": "<<",
         "addf": "+", "subf": "-", "mulf": "*", "divf": "/"}  # fmt: skip
CALLS = {"maxnumf": "fmax", "minnumf": "fmin", "maxsi": "HIGH", "minsi": "LOW", "exp": "exp", "log": "log", "sqrt": "sqrt", "absf": "fabs"}
CASTS = {"extsi", "trunci", "sitofp", "fptosi", "extf", "truncf"}
COMPARE = {"slt": "<", "sle": "<=", "sgt": ">", "sge": ">=", "eq": "==", "ne": "!=", "olt": "<", "ole": "<=", "ogt": ">", "oge": ">=", "oeq": "==", "une": "!="}

HEAD = """#include <math.h>
#include <stdint.h>
#define HIGH(a, b) ((a) > (b) ? (a) : (b))
#define LOW(a, b) ((a) < (b) ? (a) : (b))
typedef struct { uint64_t begin, end; } range_t; /* the numbers of the blocks that a call computes */
typedef struct { /* hal_host_kernel_t of hal/plugin_kernels.h */
  const char *name;
  void (*fn)(const range_t *range, void *const *args);
  uint32_t arg_count, unit, grain, reserved;
} kernel_t;
"""


def name_of(value):
    return "v_" + value.strip().lstrip("%").replace("#", "_")


def type_of(text):
    """Returns the C type of an element and the number of elements; 0: not a block."""
    block = re.fullmatch(r"tensor<(\d+)x(.*)>", text.strip())
    element = block[2] if block else text.strip()
    pointer = re.fullmatch(r"!tt\.ptr<(\w+)>", element)
    kind = TYPES.get(pointer[1] if pointer else element)
    if kind is None:
        raise NotImplementedError(f"acme: the type {text} is not supported")
    return kind + (" *" if pointer else ""), int(block[1]) if block else 0


class Function:
    """The C text of one kernel."""

    def __init__(self):
        self.lines, self.counts = [], {}

    def at(self, value):
        """Returns the expression of a value's element `i`."""
        return name_of(value) + ("[i]" if self.counts[value.strip()] else "")

    def define(self, value, kind, expression):
        """Adds a value, whose element `i` has this expression."""
        element, count = type_of(kind)
        self.counts[value] = count
        name = name_of(value)
        self.lines.append(f"{element} {name}{f'[{count}]' if count else ''};")
        self.lines.append(f"for (int i = 0; i < {count}; i++) {name}[i] = {expression};" if count else f"{name} = {expression};")

    def store(self, operands):
        pointer, value, *mask = operands
        count = self.counts[pointer] or 1
        condition = f"if ({self.at(mask[0])}) " if mask else ""
        self.lines.append(f"for (int i = 0; i < {count}; i++) {condition}*{self.at(pointer)} = {self.at(value)};")

    def reduce(self, value, operand, operation):
        name, count = name_of(value), self.counts[operand]
        self.counts[value] = 0
        self.lines.append(f"{self.kinds[operand]} {name} = {name_of(operand)}[0];")
        self.lines.append(f"for (int i = 1; i < {count}; i++) {name} = {combined(operation, name, f'{name_of(operand)}[i]')};")


def combined(operation, left, right):
    short = operation.rpartition(".")[2]
    if short in INFIX:
        return f"{left} {INFIX[short]} {right}"
    if short in CALLS:
        return f"{CALLS[short]}({left}, {right})"
    raise NotImplementedError(f"acme: the operation {operation} is not supported")


def expression_of(function, operation, rest, operands):
    """Returns the C expression of an operation's element `i`."""
    short, at = operation.rpartition(".")[2], [function.at(value) for value in operands]
    if short in INFIX or (short in CALLS and len(at) == 2):
        return combined(operation, *at)
    if short in CALLS:
        return f"{CALLS[short]}({at[0]})"
    if short in CASTS or short == "splat":
        return at[0]
    predicate = rest.partition(",")[0].strip()
    if short in ("cmpi", "cmpf") and predicate in COMPARE:
        return f"{at[0]} {COMPARE[predicate]} {at[1]}"
    if short == "select":
        return f"{at[0]} ? {at[1]} : {at[2]}"
    if short == "addptr":
        return f"{at[0]} + {at[1]}"
    if short == "make_range":
        return "i + " + re.search(r"start = (\d+)", rest)[1]
    if short == "get_program_id" and rest.strip().startswith("x"):
        return "(int32_t)block"
    if short == "load":
        return f"{at[1]} ? *{at[0]} : {at[2] if len(at) > 2 else '0'}" if len(at) > 1 else f"*{at[0]}"
    raise NotImplementedError(f"acme: the operation {operation}{rest.rstrip()} is not supported")


def constant(rest):
    """Returns the value of a constant in C: a number, or the bits of one that MLIR does not write in decimal."""
    value = re.match(r"\s*(?:dense<)?([^>:\s]+)", rest)[1]
    if re.fullmatch(r"0x[0-9A-F]{8}", value):
        return f"((union {{ uint32_t bits; float value; }}){{.bits = {value}}}).value"
    return {"true": "1", "false": "0"}.get(value, value)


def translate(text):
    """Returns the name of the kernel and its C text."""
    head = re.search(r"tt\.func public @(\w+)\((.*?)\) attributes", text)
    function, parameters = Function(), [part.split(":", 1) for part in re.findall(r"(%\w+: [^,{]+)", head[2])]
    for index, (value, kind) in enumerate(parameters):
        function.counts[value] = 0
        function.lines.append(f"{type_of(kind)[0]} {name_of(value)} = *({type_of(kind)[0]} *)args[{index}];")
    function.kinds = {}
    lines = iter(text[head.end() :].splitlines()[1:])
    for line in lines:
        line = line.strip()
        found = re.fullmatch(r"(?:(%[\w#]+) = )?\"?([\w.]+)\"?(.*)", line)
        if not found or line in ("}",):
            continue
        value, operation, rest = found[1], found[2], found[3]
        if operation == "tt.return":
            break
        if operation == "tt.reduce":
            next(lines)  # the block's arguments
            body = re.match(r"\s*%[\w#]+ = ([\w.]+)", next(lines))[1]
            end = [next(lines), next(lines)][1]  # tt.reduce.return, then the types
            operand = re.match(r"\((%[\w#]+)\)", rest)[1]
            function.kinds[operand] = type_of(re.search(r"\((tensor<[^)]*>)\)", end)[1])[0]
            function.reduce(value, operand, body)
            continue
        before, _, kind = rest.rpartition(" : ")
        operands = re.findall(r"%[\w#]+", before)
        if operation == "tt.store":
            function.store(operands)
        elif operation == "arith.constant":
            function.define(value, kind, constant(rest))
        else:
            result = kind.rpartition("->")[2] if "->" in kind else kind
            short = operation.rpartition(".")[2]
            if short in ("cmpi", "cmpf"):
                result = re.sub(r"x.*", "xi1>", kind) if "tensor" in kind else "i1"
            elif short == "select":
                result = kind.split(", ")[-1]
            elif short == "addptr":
                result = kind.split(", ")[0]
            elif short == "load":
                result = re.sub(r"!tt\.ptr<(\w+)>", r"\1", kind)
            function.define(value, result, expression_of(function, operation, rest, operands))
    body = "\n    ".join(function.lines)
    return head[1], f"""{HEAD}
static void run(const range_t *range, void *const *args) {{
  for (uint64_t block = range->begin; block < range->end; block++) {{
    {body}
  }}
}}
const kernel_t hal_host_kernel_{head[1]} = {{"{head[1]}", run, {len(parameters)}, 1, 1, 0}};
"""
