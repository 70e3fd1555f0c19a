"""Polynomials in named parameters with integer coefficients, such as `2*p*q + 1`.

They are rates, initial tokens, capacities and times of graphs with parameters.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from csdf.errors import CsdfError

Monomial = tuple[tuple[str, int], ...]
"""Parameters with their exponents above 0, sorted by name; empty for a constant."""

NAME = re.compile(r"[A-Za-z_]\w{0,63}", re.ASCII)

_TERM = re.compile(r"([+-]?)([^+-]+)")
_FACTOR = re.compile(r"(\d{1,18})|([A-Za-z_]\w{0,63})(?:\^([1-9]))?", re.ASCII)

LONGEST = 500
"""Characters of the longest text that is read."""


@dataclass(frozen=True)
class Polynomial:
    """A sum of products: monomials with their coefficients, none of which is 0, sorted.

    >>> p, q = Polynomial.read("2*p + 1"), Polynomial.read("p^2")
    >>> str(p * q), (p * q).at({"p": 3})
    ('2*p^3 + p^2', 63)
    """

    terms: tuple[tuple[Monomial, int], ...]

    @classmethod
    def of(cls, terms: Mapping[Monomial, int]) -> Polynomial:
        """Return the polynomial with these terms."""
        kept = [(monomial, count) for monomial, count in terms.items() if count]
        return cls(tuple(sorted(kept, key=lambda term: (-sum(e for _, e in term[0]), term[0]))))

    @classmethod
    def constant(cls, number: int) -> Polynomial:
        """Return a number as a polynomial."""
        return cls.of({(): number})

    @classmethod
    def read(cls, text: str) -> Polynomial:
        """Parse a sum of products of numbers, parameters and powers (`p^2`, up to 9).

        Raises `CsdfError` if `text` is anything else.
        """
        terms: Counter[Monomial] = Counter()
        dense = "".join(text.split())
        if len(text) > LONGEST or "".join(map("".join, _TERM.findall(dense))) != dense or not dense:
            raise CsdfError(f"{text[:40]!r} is not a sum of products like 2*p + 1")
        for sign, product in _TERM.findall(dense):
            count, powers = -1 if sign == "-" else 1, Counter[str]()
            for factor in product.split("*"):
                found = _FACTOR.fullmatch(factor)
                if found is None:
                    raise CsdfError(f"{text[:40]!r} is not a sum of products like 2*p + 1")
                number, name, power = found.groups()
                if number:
                    count *= int(number)
                else:
                    powers[name] += int(power or 1)
            terms[tuple(sorted(powers.items()))] += count
        return cls.of(terms)

    def __add__(self, other: Polynomial) -> Polynomial:
        """Return the sum."""
        terms = Counter(dict(self.terms))
        for monomial, count in other.terms:
            terms[monomial] += count
        return Polynomial.of(terms)

    def __mul__(self, other: Polynomial) -> Polynomial:
        """Return the product."""
        terms: Counter[Monomial] = Counter()
        for one, a in self.terms:
            for two, b in other.terms:
                powers = Counter(dict(one)) + Counter(dict(two))
                terms[tuple(sorted(powers.items()))] += a * b
        return Polynomial.of(terms)

    def __str__(self) -> str:
        """Return text that `read` parses."""
        shown = ""
        for monomial, count in self.terms:
            factors = [f"{name}^{power}" if power > 1 else name for name, power in monomial]
            if abs(count) != 1 or not factors:
                factors.insert(0, str(abs(count)))
            sign = "-" if count < 0 else "+"
            product = "*".join(factors)
            shown += f" {sign} {product}" if shown else ("-" if count < 0 else "") + product
        return shown or "0"

    @property
    def names(self) -> frozenset[str]:
        """The parameters."""
        return frozenset(name for monomial, _ in self.terms for name, _ in monomial)

    def at(self, values: Mapping[str, int]) -> int:
        """Return the value where each parameter has the value given."""
        return sum(
            count * math.prod(values[name] ** power for name, power in monomial)
            for monomial, count in self.terms
        )

    def factors(self) -> tuple[int, Counter[Polynomial]]:
        """Return a number and polynomials with exponents, whose product this is.

        The polynomials are single parameters, and what remains after these are taken out. The
        number is above 0, so what remains is wherever this polynomial and the parameters are.
        """
        number = math.gcd(*(count for _, count in self.terms))
        common = Counter(dict(self.terms[0][0]))
        for monomial, _ in self.terms[1:]:
            common &= Counter(dict(monomial))
        rest = Polynomial.of(
            {
                tuple(sorted((Counter(dict(monomial)) - common).items())): count // number
                for monomial, count in self.terms
            }
        )
        found = Counter({Polynomial.of({((name, 1),): 1}): e for name, e in common.items()})
        if rest != ONE:
            found[rest] += 1
        return number, found


ONE = Polynomial.constant(1)


def product(number: int, factors: Mapping[Polynomial, int]) -> Polynomial:
    """Return a number times polynomials with exponents of 0 or more."""
    found = Polynomial.constant(number)
    for factor, power in factors.items():
        for _ in range(power):
            found *= factor
    return found


def total(polynomials: Iterable[Polynomial]) -> Polynomial:
    """Return the sum."""
    found = Polynomial(())
    for one in polynomials:
        found += one
    return found
