#!/usr/bin/env python3
"""Computes the polynomial coefficients of hal/kernels/pk_float.h, pk_float64.h, pk_angle.h, pk_single.h and
pk_special.h and prints them with their
errors.

Each is the minimax polynomial of its function: Remez's exchange algorithm in 60 decimal digits, for the weighted error
weight(x) * (P(x) - f(x)), where the weight turns the error of P into the relative error of what it is used for.
Needs mpmath.

    minimax.py              prints every polynomial
    minimax.py exp2 erf     prints these
"""
import sys

import mpmath as mp

mp.mp.dps = 60


def solve(function, weight, degree, nodes):
    """Returns the coefficients whose weighted error at the nodes is +e, -e, +e ..."""
    rows, right = [], []
    for i, x in enumerate(nodes):
        rows.append([x**k for k in range(degree + 1)] + [(-1) ** i / weight(x)])
        right.append(function(x))
    return list(mp.lu_solve(mp.matrix(rows), mp.matrix(right)))[:-1]


def extremes(error, low, high, count):
    """Returns the place of the largest error within each run of one sign, `count` of them."""
    points = 60 * count
    grid = [(low + high) / 2 - (high - low) / 2 * mp.cos(mp.pi * i / points) for i in range(points + 1)]
    places = []
    for x in grid:
        value = error(x)
        if places and (value > 0) == (places[-1][1] > 0):
            if abs(value) > abs(places[-1][1]):
                places[-1] = (x, value)
        else:
            places.append((x, value))
    while len(places) > count:
        places.pop(0 if abs(places[0][1]) < abs(places[-1][1]) else -1)
    return places


def remez(function, weight, low, high, degree, rounds=12):
    """Returns the coefficients, lowest first, and the largest weighted error."""
    low, high, count = mp.mpf(low), mp.mpf(high), degree + 2
    nodes = [(low + high) / 2 - (high - low) / 2 * mp.cos(mp.pi * i / (count - 1)) for i in range(count)]
    for _ in range(rounds):
        coefficients = solve(function, weight, degree, nodes)
        places = extremes(lambda x: weight(x) * (mp.polyval(coefficients[::-1], x) - function(x)), low, high, count)
        largest, smallest = max(abs(e) for _, e in places), min(abs(e) for _, e in places)
        if len(places) < count or largest < smallest * mp.mpf("1.001"):
            break
        nodes = [x for x, _ in places]
    return coefficients, largest


def by_taylor(function, at_zero):
    """The function with its limit at 0, where its formula divides by 0."""
    return lambda x: mp.mpf(at_zero) if abs(x) < mp.mpf(10) ** -40 else function(x)


TINY = mp.mpf(10) ** -20
ROOT = mp.sqrt(mp.mpf(1) / 2)
QUARTER = (mp.pi / 4) ** 2 * mp.mpf("1.0001")
EXP2 = by_taylor(lambda r: mp.expm1(r * mp.log(2)) / r, mp.log(2))
LOG = by_taylor(lambda f: mp.log1p(f) / f, 1)
LOG2 = by_taylor(lambda f: mp.log1p(f) / f / mp.log(2), 1 / mp.log(2))
LOG_DOUBLE = by_taylor(lambda z: (2 * mp.atanh(mp.sqrt(z)) / mp.sqrt(z) - 2) / z, mp.mpf(2) / 3)
ERF = by_taylor(lambda a: -mp.log(mp.erfc(a), 2) / a, 2 / mp.sqrt(mp.pi) / mp.log(2))
ERF_SINGLE = by_taylor(lambda a: -mp.log(mp.erfc(a)) / a - 1, 2 / mp.sqrt(mp.pi) - 1)
ATAN = by_taylor(lambda z: mp.atan(mp.sqrt(z)) / mp.sqrt(z), 1)
SIN = by_taylor(lambda z: mp.sin(mp.sqrt(z)) / mp.sqrt(z), 1)


def erfinv_ratio(w):
    """erfinv(x) / x of the x with w = -log(1 - x^2): smooth, also where x approaches 1."""
    x = mp.sqrt(-mp.expm1(-w)) if w > TINY else mp.mpf(0)
    return mp.erfinv(x) / x if x else mp.sqrt(mp.pi) / 2


def relative(function):
    return lambda x: 1 / function(x)


def erf_weight(a):
    """d erf / erf for an error of P in erf = 1 - 2^(-a P)."""
    return a * mp.erfc(a) * mp.log(2) / mp.erf(a) if a > TINY else mp.sqrt(mp.pi) / 2 * mp.log(2)


def erf_single_weight(a):
    """The same in erf = 1 - e^(-a (1 + P))."""
    return erf_weight(a) / mp.log(2)


def erfinv_near(d):
    return erfinv_ratio(d + mp.mpf("2.5"))


def erfinv_far(d):
    return erfinv_ratio((d + 3) ** 2)


# name: (what, function, weight, low, high, degree)
POLYNOMIALS = {
    "exp2": ("(2^r - 1) / r", EXP2, relative(EXP2), -0.5, 0.5, 5),
    "log": ("log(1 + f) / f", LOG, relative(LOG), ROOT - 1, mp.sqrt(2) - 1, 9),
    "log2": ("log2(1 + f) / f", LOG2, relative(LOG2), ROOT - 1, mp.sqrt(2) - 1, 9),
    "log2_long": ("log2(1 + f) / f", LOG2, relative(LOG2), ROOT - 1, mp.sqrt(2) - 1, 15),
    "log_double": ("(2 atanh(s) / s - 2) / s^2 over s^2", LOG_DOUBLE, relative(LOG_DOUBLE), 0, ((1 - ROOT) / (1 + ROOT)) ** 2 * mp.mpf("1.0001"), 7),
    "erf": ("-log2(1 - erf(a)) / a", ERF, erf_weight, 0, 4, 8),
    "erf_single": ("-log(1 - erf(a)) / a - 1", ERF_SINGLE, erf_single_weight, 0, 4, 8),
    "erfinv_near": ("erfinv(x) / x over w - 2.5", erfinv_near, relative(erfinv_near), -2.5, 2.5, 10),
    "erfinv_far": ("erfinv(x) / x over sqrt(w) - 3", erfinv_far, relative(erfinv_far), mp.sqrt(5) - 3, 1.1, 11),
    "sin": ("sin(r) / r over r^2", SIN, relative(SIN), 0, QUARTER, 3),
    "atan": ("atan(t) / t over t^2", ATAN, lambda z: mp.mpf(1), 0, (mp.sqrt(2) - 1) ** 2, 5),
    "cos": ("cos(r) over r^2", lambda z: mp.cos(mp.sqrt(z)), relative(lambda z: mp.cos(mp.sqrt(z))), 0, QUARTER, 4),
}


def main():
    for name in sys.argv[1:] or POLYNOMIALS:
        what, *recipe = POLYNOMIALS[name]
        coefficients, error = remez(*recipe)
        print(f"{name}: {what}, largest error 2^{mp.nstr(mp.log(error, 2), 4)}")
        for k, c in enumerate(coefficients):
            print(f"  c{k} = {float(c)!r}")


if __name__ == "__main__":
    main()
