"""Special functions as expressions for expressions.py: polynomials, and sums over equal steps for integrals of analytic functions.

MACROS has the same form as that of expressions.py. The functions compute in double precision, except `log_ndtr`; the limits of the
domains are those of hal/kernels/pk_special.h.
"""
import math
from fractions import Fraction

EULER = "PK_C(0.57721566490153286061)"
BELOW_9 = 9.0  # Airy's function: the asymptotic series is used up to -9


def number(value):
    return f"PK_C({float(value)!r})" if value >= 0 else f"(-PK_C({float(-value)!r}))"


def polynomial(coefficients, x):
    """Returns the polynomial with ascending coefficients by Horner's rule."""
    text = number(coefficients[-1])
    for coefficient in coefficients[-2::-1]:
        text = f"({text} * {x} + {number(coefficient)})"
    return text


def add(terms):
    return " + ".join(terms)


def factorial_series(order, count, factor=lambda k: Fraction(1)):
    """Returns the coefficients factor(k) / (k! (k + order)!)."""
    return [factor(k) / (math.factorial(k) * math.factorial(k + order)) for k in range(count)]


def harmonic(k):
    return sum((Fraction(1, j) for j in range(1, k + 1)), Fraction(0))


def hankel(order, count, signed):
    """Returns the coefficients of Hankel's expansion in 1 / x."""
    terms = [Fraction(1)]
    for k in range(1, count):
        odd = Fraction((2 * k - 1) ** 2 - 4 * order**2, 8 * k)
        terms.append(terms[-1] * (odd if not signed else -odd))
    return terms


def erfcx_far():
    """The asymptotic series in r = 1 / (2 x^2), without the factor 1 / (x sqrt(pi))."""
    terms = [Fraction(1)]
    for k in range(1, 14):
        terms.append(-terms[-1] * (2 * k - 1))
    return polynomial(terms, "r")


def bessel_sum(order, points, weight):
    """Returns sum weight(t) f(t) over one period, f = cos(x sin t) or, for order 1, sin(x sin t); symmetric points are counted once."""
    name, terms = ("cos", "sin")[order], []
    for j in range(points // 4 + 1):
        t = 2 * math.pi * j / points
        factor = weight(t) * (2 if j in (0, points // 4) else 4) / points
        if order and j == 0:
            continue
        terms.append(f"{number(factor)} * {name}(x * {number(math.sin(t))})")
    return add(terms)


def neumann(order, points=128, count=30):
    """Neumann's sums of Bessel functions in Y: of (-1)^k / k J(2k), and of (-1)^k (2k+1) / (k (k+1)) J(2k+1)."""
    if order == 0:
        return bessel_sum(0, points, lambda t: sum((-1) ** k / k * math.cos(2 * k * t) for k in range(1, count)))
    return bessel_sum(1, points, lambda t: sum((-1) ** k * (2 * k + 1) / (k * (k + 1)) * math.sin((2 * k + 1) * t) for k in range(1, count)))


def hankel_parts(order, count=32):
    """Returns p and q / y of Hankel's expansion as polynomials in z = y^2, y = 1 / x."""
    terms = hankel(order, count, True)
    signed = [term if not k & 2 else -term for k, term in enumerate(terms)]
    return polynomial(signed[0::2], "z"), polynomial(signed[1::2], "z")


def k_integral(count=22):
    """e^x K(n, x) / h: the integral of e^(-x (cosh t - 1)) cosh(n t) with steps of h; `root` is sqrt(x)."""
    return "PK_C(0.5) + " + add(f"k_term(root * sinh({number(k / 2)} * h), cosh(n * {number(k)} * h))" for k in range(1, count))


def airy_middle(shift=1.0, step=0.09, count=72):
    """Ai(x) for -9 < x <= 1: its integral along a line above the real axis."""
    terms = []
    for j in range(count):
        t = step * j
        factor = step / math.pi * math.exp(shift**3 / 3 - shift * t * t) * (0.5 if j == 0 else 1)
        terms.append(f"{number(factor)} * cos({number(t**3 / 3 - shift**2 * t)} + x * {number(t)})")
    return f"exp(-x * {number(shift)}) * ({add(terms)})"


def airy_far(count=24):
    """Returns p and q / y of the asymptotic series as polynomials in z = y^2, y = 1 / zeta."""
    terms = [Fraction(1)]
    for k in range(1, count):
        terms.append(terms[-1] * Fraction((6 * k - 5) * (6 * k - 1), 72 * k))
    signed = [term if not k & 2 else -term for k, term in enumerate(terms)]
    return polynomial(signed[0::2], "z"), polynomial(signed[1::2], "z")


def bessel_far(order, second):
    cosine, sine = ("sin(x) - cos(x)", "-(sin(x) + cos(x))") if order else ("cos(x) + sin(x)", "sin(x) - cos(x)")
    value = f"p * ({sine}) + q * ({cosine})" if second else f"p * ({cosine}) - q * ({sine})"
    return f"({value}) / PK_SQRT_PI / sqrt(x)"


def macros():
    found = {
        "i0_series": (("q",), polynomial(factorial_series(0, 48), "q")),
        "i0_far": (("y",), polynomial(hankel(0, 34, False), "y")),
        "i0e_of": (("a",), "a > PK_C(20.0) ? i0_far(PK_C(1.0) / a) / PK_SQRT_2PI / sqrt(a) : exp(-a) * i0_series(PK_C(0.25) * a * a)"),
        "i0_of": (("a", "root"), "a == PK_INFINITY ? PK_C(0.0) / PK_C(0.0) : a > PK_C(20.0) ? i0_far(PK_C(1.0) / a) / PK_SQRT_2PI / sqrt(a) * root * root "
                  ": i0_series(PK_C(0.25) * a * a)"),
        "i0e_f64": (("x",), "i0e_of(abs(x))"),
        "i0_f64": (("x",), "i0_of(abs(x), exp(PK_C(0.5) * abs(x)))"),
        "erfcx_far": (("r", "x"), erfcx_far() + " / PK_SQRT_PI / x"),
        "erfcx_f64": (("x",), "x < PK_C(10.0) ? exp(x * x) * erfc(x) : erfcx_far(PK_C(0.5) / x / x, x)"),
        # In float32 the square rounds as x * x / 2, which torch's gradient subtracts again (pk_special.h).
        "log_ndtr_of": (("x", "t"), "x > -PK_C(1.0) ? log1p(-erfc(t) / PK_C(2.0)) : x > -PK_C(8.0) ? log(erfc(-t) / PK_C(2.0)) "
                        ": log(erfcx_far(PK_C(0.5) / t / t, -t) / PK_C(2.0)) - t * t"),
        "log_ndtr": (("x",), "log_ndtr_of(x, x * PK_SQRT_1_2)"),
        "erfc_step": (("x", "z"), "erfc_correct(x, (z - erfc(x)) * PK_C(0.88622692545275801365) * exp(x * x))"),
        "erfc_correct": (("x", "u"), "x - u / (PK_C(1.0) + x * u)"),
        "erfc_first": (("l", "b"), "sqrt(sqrt(b * b - l / PK_C(0.147)) - b)"),
        "erfc_start": (("l",), "erfc_first(l, PK_C(4.330746750799873) + PK_C(0.5) * l)"),
        "erfc_inverse": (("z",), "erfc_step(erfc_step(erfc_step(erfc_start(log(z * (PK_C(2.0) - z))), z), z), z)"),
        "erfc_tiny_step": (("x", "target"), "erfc_tiny_correct(x, target, erfcx_far(PK_C(0.5) / x / x, x))"),
        "erfc_tiny_correct": (("x", "target", "scaled"), "x + (log(scaled) - x * x - target) * PK_C(0.88622692545275801365) * scaled"),
        "erfc_inverse_tiny": (("target",), "erfc_tiny_step(erfc_tiny_step(erfc_tiny_step(erfc_tiny_step(sqrt(-target), target), target), target), target)"),
        "ndtri_f64": (("p",), "p == 0 ? -PK_INFINITY : p == PK_C(1.0) ? PK_INFINITY : p > 0 && p < PK_C(1.0) ? (p > PK_C(0.5) ? "
                      "PK_SQRT2 * erfc_inverse(PK_C(2.0) * (PK_C(1.0) - p)) : -PK_SQRT2 * (p < PK_C(1e-290) ? erfc_inverse_tiny(log(PK_C(2.0) * p)) "
                      ": erfc_inverse(PK_C(2.0) * p))) : PK_C(0.0) / PK_C(0.0)"),
        "spherical_j0_f64": (("x",), "abs(x) == PK_INFINITY ? PK_C(0.0) : abs(x) < PK_C(0.01) ? PK_C(1.0) - x * x / PK_C(6.0) * "
                             "(PK_C(1.0) - x * x / PK_C(20.0)) : sin(x) / x"),
        "k_term": (("s", "c"), "exp(-PK_C(2.0) * s * s) * c"),
        "k_sum": (("h", "root", "n"), f"h * ({k_integral()})"),
        "k_integral": (("n", "x"), "k_sum(PK_C(0.5) / sqrt(x + PK_C(2.0)), sqrt(x), n)"),
        "k0_series": (("q", "l"), f"{polynomial(factorial_series(0, 20, harmonic), 'q')} - l * {polynomial(factorial_series(0, 20), 'q')}"),
        "k1_series": (("x", "q", "l"), "PK_C(1.0) / x - PK_C(0.5) * x * "
                      f"({polynomial(factorial_series(1, 20, lambda k: harmonic(k) + Fraction(1, 2 * k + 2)), 'q')} "
                      f"- l * {polynomial(factorial_series(1, 20), 'q')})"),
        "k_near0": (("x",), f"k0_series(PK_C(0.25) * x * x, log(PK_C(0.5) * x) + {EULER})"),
        "k_near1": (("x",), f"k1_series(x, PK_C(0.25) * x * x, log(PK_C(0.5) * x) + {EULER})"),
        "airy_above": (("x", "zeta"), "sqrt(x / PK_C(3.0)) / PK_PI * k_integral(PK_C(0.33333333333333333333), zeta) * exp(-zeta)"),
        "airy_middle": (("x",), airy_middle()),
        "airy_below": (("a", "zeta", "z"), "airy_waves(a, zeta - PK_C(0.25) * PK_PI, "
                       f"{airy_far()[0]}, {airy_far()[1]} / zeta)"),
        "airy_waves": (("a", "phase", "p", "q"), "(p * cos(phase) + q * sin(phase)) / (PK_SQRT_PI * sqrt(sqrt(a)))"),
        "airy_of": (("x", "a", "zeta"), "x > PK_C(103.892) ? PK_C(0.0) : x > PK_C(1.0) ? airy_above(x, zeta) "
                    ": x > -PK_C(9.0) ? airy_middle(x) : airy_below(a, zeta, PK_C(1.0) / (zeta * zeta))"),
        "airy_ai_f64": (("x",), "abs(x) == PK_INFINITY || x != x ? PK_C(0.0) / PK_C(0.0) "
                        ": airy_of(x, abs(x), PK_C(0.66666666666666666667) * abs(x) * sqrt(abs(x)))"),
    }  # fmt: skip
    for n in (0, 1):
        p, q = hankel_parts(n)
        kind = f"PK_C({n}.0)"
        found |= {
            f"j{n}_near": (("x",), bessel_sum(n, 64, (lambda t: 1.0, math.sin)[n])),
            f"j{n}_far": (("x", "y", "z"), f"j{n}_waves(x, {p}, y * {q})"),
            f"j{n}_waves": (("x", "p", "q"), bessel_far(n, False)),
            f"y{n}_far": (("x", "y", "z"), f"y{n}_waves(x, {p}, y * {q})"),
            f"y{n}_waves": (("x", "p", "q"), bessel_far(n, True)),
            f"y{n}_rest": (("x",), neumann(n)),
            f"j{n}_of": (("a",), f"a == PK_INFINITY ? PK_C(0.0) / PK_C(0.0) : a < PK_C(25.0) ? j{n}_near(a) : j{n}_far(a, PK_C(1.0) / a, PK_C(1.0) / (a * a))"),
            f"y{n}_of": (("x",), f"x == PK_INFINITY ? PK_C(0.0) / PK_C(0.0) : x < PK_C(25.0) ? y{n}_near(x, log(PK_C(0.5) * x) + {EULER}) "
                         f": y{n}_far(x, PK_C(1.0) / x, PK_C(1.0) / (x * x))"),
            f"k{n}e_f64": (("x",), f"x == 0 ? PK_INFINITY : x == PK_INFINITY ? PK_C(0.0) : x > PK_C(2.0) ? k_integral({kind}, x) : k_near{n}(x) * exp(x)"),
            f"k{n}_f64": (("x",), f"x == 0 ? PK_INFINITY : x == PK_INFINITY ? PK_C(0.0) : x > PK_C(2.0) ? k_integral({kind}, x) * exp(-x) : k_near{n}(x)"),
        }  # fmt: skip
    return found | {
        "j0_f64": (("x",), "j0_of(abs(x))"),
        "j1_f64": (("x",), "x < 0 ? -j1_of(abs(x)) : j1_of(abs(x))"),
        "y0_near": (("x", "l"), "PK_2_PI * (l * j0_near(x) - PK_C(2.0) * (y0_rest(x)))"),
        "y1_near": (("x", "l"), "PK_2_PI * ((l - PK_C(1.0)) * j1_near(x) - (j0_near(x) / x + y1_rest(x)))"),
        "y0_f64": (("x",), "y0_of(x)"),
        "y1_f64": (("x",), "x == 0 ? -PK_INFINITY : y1_of(x)"),
    }  # fmt: skip


MACROS = macros()
