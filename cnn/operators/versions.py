"""Find the operator sets in which an operator means the same.

A new version of an operator often only admits further element types. Two versions mean the same
here if they have the same inputs, outputs, attributes and description, and differ in no type of
number that NumPy has. Nothing else of their meaning can differ, because ONNX defines it there.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cache
from itertools import pairwise

from onnx import defs

from cnn.operators.standard import NUMBERS

NEWEST = defs.onnx_opset_version()
"""The newest operator set whose operators are known here."""


def same_in(operator: str, version: int) -> range:
    """Return the operator sets in which `operator` means what it does in `version`.

    The range is empty for an operator that `version` does not have.
    """
    for versions in _meanings().get(operator, ()):
        if version in versions:
            return versions
    return range(0)


def common_version(operators: Iterable[tuple[str, int]]) -> int | None:
    """Return the newest operator set in which all `operators` mean what they do in their own.

    Operators are pairs of a name and its operator set. Returns None if there is none.
    """
    ranges = [same_in(operator, version) for operator, version in operators]
    if not ranges or not all(ranges):
        return None
    common = range(max(x.start for x in ranges), min(x.stop for x in ranges))
    return common[-1] if common else None


def least_version(operators: Iterable[str], version: int, oldest: int) -> int:
    """Return the least operator set from `oldest` on in which `operators` mean the same.

    It is at most `version`, which is their own. Operators that it does not have do not count.
    """
    ranges = [same_in(operator, version) for operator in operators]
    return min(version, max([oldest, *(x.start for x in ranges if x)]))


@cache
def _meanings() -> Mapping[str, tuple[range, ...]]:
    """Return, by operator, the ranges of operator sets between which its meaning changes."""
    history: dict[str, list[defs.OpSchema]] = {}
    for schema in defs.get_all_schemas_with_history():
        if schema.domain == "":
            history.setdefault(schema.name, []).append(schema)
    found = {}
    for operator, schemas in history.items():
        schemas.sort(key=lambda schema: schema.since_version)
        firsts = [schemas[0], *(new for old, new in pairwise(schemas) if not _same(old, new))]
        stops = [*(schema.since_version for schema in firsts[1:]), NEWEST + 1]
        found[operator] = tuple(
            range(schema.since_version, stop)
            for schema, stop in zip(firsts, stops, strict=True)
            if not schema.deprecated
        )
    return found


def _same(old: defs.OpSchema, new: defs.OpSchema) -> bool:
    return _form(old) == _form(new) and _numbers(old) == _numbers(new)


def _form(schema: defs.OpSchema) -> tuple[object, ...]:
    def formal(parameters: Iterable[defs.OpSchema.FormalParameter]) -> list[object]:
        return [(x.name, x.option, x.is_homogeneous, x.min_arity) for x in parameters]

    attributes = {
        name: (x.type, x.required, x.default_value.SerializeToString())
        for name, x in schema.attributes.items()
    }
    inputs, outputs = formal(schema.inputs), formal(schema.outputs)
    return inputs, outputs, attributes, schema.doc, schema.deprecated


def _numbers(schema: defs.OpSchema) -> list[set[str]]:
    """Return the types of numbers that each input and output may have."""
    known = {f"tensor({name})" for name in NUMBERS}
    return [known.intersection(x.types) for x in (*schema.inputs, *schema.outputs)]
