"""Makes programs in postfix notation of the C expressions of element-wise operators.

The expression of an entry is C over the operands a, b, c and the numbers s0, s1, s2. Its program is text, such as
"a #0 gt a a s0 mul sel" for leaky_relu; emit_expression.c has the instructions. `=0` moves the top of the stack to a register, which
`r0` reads.
"""
import itertools
import re

import special

# Functions with an instruction of the same name.
FUNCTIONS = {"abs": 1, "sign": 1, "maximum": 2, "minimum": 2, "exp": 1, "expm1": 1, "log": 1, "log1p": 1, "sqrt": 1, "sin": 1, "cos": 1,
             "tan": 1, "tanh": 1, "sigmoid": 1, "erf": 1, "erfc": 1, "floor": 1, "ceil": 1, "trunc": 1, "rint": 1, "pow": 2, "atan2": 2,
             "asin": 1, "acos": 1, "sinh": 1, "cosh": 1, "asinh": 1, "acosh": 1, "atanh": 1, "lgamma": 1, "digamma": 1,
             "erfinv": 1, "nextafter": 2, "copysign": 2, "signbit": 1, "remainder_of_c": 2, "div_int": 2, "shl": 2, "shr": 2,
             "i1e": 1, "exponent": 1, "pow2": 1, "opaque": 1}  # fmt: skip

# Functions as expressions, by their parameters. `is_float` and `is_int` select a variant by the operator's type.
MACROS = {
    "atan": (("x",), "atan2(x, opaque(PK_C(1.0)))"),
    "log2": (("x",), "log(x) * PK_C(1.4426950408889634074)"),
    "log10": (("x",), "log(x) * PK_C(0.43429448190325182765)"),
    "exp2": (("x",), "pow(PK_C(2.0), x)"),
    "hypot": (("x", "y"), "abs(x) == PK_INFINITY || abs(y) == PK_INFINITY ? PK_INFINITY : maximum(abs(x), abs(y)) == 0 ? maximum(abs(x), abs(y)) : "
              "maximum(abs(x), abs(y)) * sqrt(PK_C(1.0) + (minimum(abs(x), abs(y)) / maximum(abs(x), abs(y))) "
              "* (minimum(abs(x), abs(y)) / maximum(abs(x), abs(y))))"),
    "fmax": (("x", "y"), "x != x ? y : y != y ? x : maximum(x, y)"),
    "fmin": (("x", "y"), "x != x ? y : y != y ? x : minimum(x, y)"),
    "fmod": (("x", "y"), "is_int && y == 0 ? (T)0 : remainder_of_c(x, y)"),
    "remainder": (("x", "y"), "is_int && y == 0 ? (T)0 : remainder_of_c(x, y) != 0 && (remainder_of_c(x, y) < 0) != (y < 0) "
                  "? remainder_of_c(x, y) + y : remainder_of_c(x, y)"),
    "div_trunc": (("x", "y"), "is_int && y == 0 ? (T)0 : is_int ? div_int(x, y) : trunc(x / y)"),
    "div_floor": (("x", "y"), "is_int ? (y == 0 ? (T)0 : remainder_of_c(x, y) != 0 && (remainder_of_c(x, y) < 0) != (y < 0) ? div_int(x, y) - PK_C(1.0) "
                  ": div_int(x, y)) : y == 0 ? x / y : floor_quotient((x - remainder_of_c(x, y)) / y - ((T)(remainder_of_c(x, y) != 0 && "
                  "(remainder_of_c(x, y) < 0) != (y < 0))), x, y)"),
    "floor_quotient": (("q", "x", "y"), "q == 0 ? copysign(PK_C(0.0), x / y) : q - floor(q) > PK_C(0.5) ? floor(q) + PK_C(1.0) : floor(q)"),
    "shift_left": (("x", "y"), "shl(x, y)"),
    "shift_right": (("x", "y"), "shr(x, y)"),
    "replaced": (("x", "nan", "high", "low"), "x != x ? nan : is_float && x == PK_INFINITY ? high : is_float && x == -PK_INFINITY ? low : x"),
    "is_inf": (("x",), "is_float && x == PK_INFINITY ? PK_C(1.0) : is_float && x == -PK_INFINITY ? PK_C(-1.0) : PK_C(0.0)"),
    "log_sigmoid": (("x",), "minimum(x, PK_C(0.0)) - log1p(exp(-abs(x)))"),
    "logit": (("x",), "log(x / (PK_C(1.0) - x))"),
    "logit_backward": (("g", "x", "eps"), "eps < 0 ? (x < 0 || x > PK_C(1.0) ? PK_C(0.0) / PK_C(0.0) : g / (x * (PK_C(1.0) - x))) "
                       ": x < eps || x > PK_C(1.0) - eps ? PK_C(0.0) : g / (x * (PK_C(1.0) - x))"),
    "gelu_tanh_slope": (("x",), "gelu_slope_at(x, tanh(PK_GELU_SLOPE * (x + PK_C(0.044715) * x * x * x)))"),
    "gelu_slope_at": (("x", "t"), "PK_C(0.5) * (PK_C(1.0) + t) + PK_C(0.5) * x * (PK_C(1.0) - t * t) * PK_GELU_SLOPE * (PK_C(1.0) + PK_C(0.134145) * x * x)"),
    "cross_entropy": (("x", "y"), "(y - PK_C(1.0)) * maximum(log1p(-x), PK_C(-100.0)) - y * maximum(log(x), PK_C(-100.0))"),
    "digamma_f64": (("x",), "digamma(x)"),
    "i1e_f64": (("x",), "i1e(x)"),
    "i1_f64": (("x",), "i1_of(x, exp(PK_C(0.5) * abs(x)))"),
    "i1_of": (("x", "root"), "abs(x) == PK_INFINITY ? PK_C(0.0) / PK_C(0.0) : i1e(x) * root * root"),
    # `exponent` limits a power of two to the normal numbers of the type, so that three of them are all that matter.
    "ldexp": (("x", "y"), "y - y != 0 ? (y != y ? y : x * maximum(y, PK_C(0.0))) : ldexp_whole(x, y, rint(y))"),
    "ldexp_whole": (("x", "y", "whole"), "scale_by(y == whole ? x : x * pow(PK_C(2.0), y - whole), whole, exponent(whole))"),
    "scale_by": (("x", "whole", "first"), "scale_more(x * pow2(first), whole - first, exponent(whole - first))"),
    "scale_more": (("x", "whole", "first"), "x * pow2(first) * pow2(exponent(whole - first))"),
    **special.MACROS,
}  # fmt: skip
CONSTANTS = {"PK_SQRT_1_2": "0.70710678118654752440", "PK_SQRT_1_2PI": "0.39894228040143267794", "PK_GELU_SLOPE": "0.79788456080286535588",
             "PK_PI": "3.14159265358979323846", "PK_INFINITY": "inf", "PK_2_PI": "0.63661977236758134308", "PK_SQRT2": "1.41421356237309504880",
             "PK_SQRT_PI": "1.77245385090551602730", "PK_SQRT_2PI": "2.50662827463100050242"}  # fmt: skip
BINARY = [{"||": "lor"}, {"&&": "land"}, {"|": "or"}, {"^": "xor"}, {"&": "and"}, {"==": "eq", "!=": "ne"},
          {"<": "lt", "<=": "le", ">": "gt", ">=": "ge"}, {"+": "add", "-": "sub"}, {"*": "mul", "/": "div"}]  # fmt: skip
TOKEN = re.compile(r"\s*(\d+\.?\d*(?:e[-+]?\d+)?|\w+|==|!=|<=|>=|&&|\|\||[-+*/?:()<>!~&|^,.])")


class Unsupported(Exception):
    """An expression that has no program."""


class Parser:
    """Parses an expression into a program: a list of instructions."""

    def __init__(self, text, names, registers):
        self.tokens = TOKEN.findall(text)
        self.registers = registers
        if "".join(self.tokens) != re.sub(r"\s", "", text):
            raise Unsupported(text)
        self.names, self.at = names, 0

    def peek(self):
        return self.tokens[self.at] if self.at < len(self.tokens) else ""

    def take(self, expected=None):
        token = self.peek()
        if not token or (expected and token != expected):
            raise Unsupported(f"{token} in place of {expected}")
        self.at += 1
        return token

    def whole(self):
        program = self.choice()
        if self.peek():
            raise Unsupported(self.peek())
        return program

    def choice(self):
        condition = self.binary(0)
        if self.peek() != "?":
            return condition
        self.take()
        first = self.choice()
        self.take(":")
        return condition + first + self.choice() + ["sel"]

    def binary(self, level):
        if level == len(BINARY):
            return self.unary()
        left = self.binary(level + 1)
        while self.peek() in BINARY[level]:
            word = BINARY[level][self.take()]
            left = left + self.binary(level + 1) + [word]
        return left

    def unary(self):
        words = {"-": "neg", "!": "not", "~": "compl"}
        if self.peek() in words:
            word = words[self.take()]
            program = self.unary()
            if word == "neg" and len(program) == 1 and program[0][0] == "#" and program[0][1] != "-":
                return [f"#-{program[0][1:]}"]
            return program + [word]
        if self.peek() == "(" and self.tokens[self.at + 1: self.at + 3] == ["T", ")"]:
            self.at += 3
            return self.unary() + ["cast"]
        return self.primary()

    def primary(self):
        token = self.take()
        if token == "(":
            inner = self.choice()
            self.take(")")
            return inner
        if token[0].isdigit():
            return [f"#{token}"]
        if token in self.names:
            return self.names[token]
        if token in CONSTANTS:
            return [f"#{CONSTANTS[token]}"]
        if token in ("is_int", "is_float"):
            return [token]
        if self.peek() == "(":
            return self.call(token)
        raise Unsupported(token)

    def call(self, name):
        self.take("(")
        arguments = [self.choice()]
        while self.peek() == ",":
            self.take()
            arguments.append(self.choice())
        self.take(")")
        if name == "PK_C":
            return arguments[0]
        name = name.removeprefix("pk_")
        if FUNCTIONS.get(name) == len(arguments):
            return sum(arguments, []) + [name]
        if name in MACROS and len(MACROS[name][0]) == len(arguments):
            return self.expand(*MACROS[name], arguments)
        raise Unsupported(name)

    def expand(self, parameters, body, arguments):
        """Returns a macro's program. An argument that it uses several times is computed once."""
        program, names = [], {}
        for parameter, argument in zip(parameters, arguments):
            if len(argument) > 1 and len(re.findall(rf"\b{parameter}\b", body)) > 1:
                register = next(self.registers)
                program += [*argument, f"={register}"]
                argument = [f"r{register}"]
            names[parameter] = argument
        return program + Parser(body, names, self.registers).whole()


def program(expression):
    """Returns the program of a C expression as text; None if it has a function that is not in FUNCTIONS or MACROS."""
    names = {name: [name] for name in ("a", "b", "c", "s0", "s1", "s2")}
    try:
        return " ".join(Parser(expression, names, itertools.count()).whole())
    except Unsupported:
        return None
