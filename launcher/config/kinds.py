"""Chooses the model of a mapping `{kind: NAME, …}` of `cluster.yaml` by its kind.

Sources, sinks and tasks are written so. Their kinds are built in, or come from other packages by an
entry point whose name is the kind and whose value is the class of its keys. A kind is imported only
if the file names it, so a broken package affects only those who use it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from types import ModuleType
from typing import Annotated, Any, Generic, TypeVar, get_args, get_origin

from pydantic import BaseModel, Field, ValidationError
from pydantic_core import InitErrorDetails

from launcher.config.strict import StrictModel
from launcher.errors import BadInputError, reason

Config = TypeVar("Config", bound=StrictModel)


class FileMark:
    """Marks a key whose value is a path, which begins at the folder of `cluster.yaml`."""


FileName = Annotated[str, Field(min_length=1), FileMark()]
"""A path; `launch --save` makes it absolute."""


class ReadMark(FileMark):
    """Marks a path of a file that is only read, so that several ends may name it."""


ReadFileName = Annotated[str, Field(min_length=1), ReadMark()]
"""A path of a file that is only read; `launch --save` makes it absolute."""

Secret = Annotated[str | None, Field(min_length=1, exclude=True, repr=False)]
"""A password; neither messages nor the `cluster.yaml` of `launch --save` have it."""


@dataclass(frozen=True)
class Kinds(Generic[Config]):
    """The kinds of one thing, a `noun` such as "sink": built in, and of the entry points `group`.

    `built_in` has the place of each kind's model as `module:Class`.
    """

    noun: str
    group: str
    base: type[Config]
    built_in: Mapping[str, str]

    def names(self) -> tuple[str, ...]:
        """All kinds, those of plugins last."""
        plugins = {point.name for point in entry_points(group=self.group)}
        return (*self.built_in, *sorted(plugins - set(self.built_in)))

    def find(self, kind: str) -> type[Config]:
        """Return the model of a kind.

        Raises `ValueError` if there is no such kind, or if its package is broken.
        """
        if kind in self.built_in:
            module, _, name = self.built_in[kind].partition(":")
            found: type[Config] = getattr(import_module(module), name)
            return found
        points = tuple(entry_points(group=self.group, name=kind))
        if not points:
            raise ValueError(
                f"there is no kind of {self.noun} {kind!r}; the kinds are {', '.join(self.names())}"
            )
        if len({point.value for point in points}) > 1:
            packages = " and ".join(map(_package, points))
            raise ValueError(f"the packages {packages} both have a kind {kind!r}; uninstall one")
        return self._loaded(kind, points[0])

    def _loaded(self, kind: str, point: EntryPoint) -> type[Config]:
        named = f"the kind {kind!r} of the package {_package(point)}"
        try:
            found = point.load()
        except Exception as error:
            raise ValueError(f"{named} cannot be imported: {reason(error)}") from error
        if not (isinstance(found, type) and issubclass(found, self.base)):
            raise ValueError(f"{named} is not a {self.base.__name__} but {point.value}")
        if getattr(found, "kind", None) != kind:
            raise ValueError(f"{named} calls itself {getattr(found, 'kind', None)!r}")
        return found

    def parsed(self, value: object) -> Config:
        """Return the mapping as its kind's model; a model is returned as it is.

        Raises `ValidationError` and `ValueError`, as pydantic expects of a validator.
        """
        if isinstance(value, self.base):
            return value
        if not isinstance(value, Mapping):
            raise ValueError(f"must be a mapping with the key kind, such as {self._example()}")
        kind = value.get("kind")
        if "kind" not in value:
            raise _problem("missing", value)
        if not isinstance(kind, str):
            raise _problem("string_type", kind)
        try:
            model = self.find(kind)
        except ValueError as error:
            raise _problem("value_error", kind, error) from error
        return model.model_validate({key: given for key, given in value.items() if key != "kind"})

    def _example(self) -> str:
        return f"{{kind: {next(iter(self.built_in), 'NAME')}, …}}"

    def keys(self, value: object) -> tuple[str, ...]:
        """The keys that the mapping `value` may have; none if its kind is unknown."""
        kind = value.get("kind") if isinstance(value, Mapping) else None
        try:
            model = self.find(kind) if isinstance(kind, str) else None
        except ValueError:
            model = None
        return () if model is None else ("kind", *key_names(model))

    def as_written(self, config: Config) -> dict[str, Any]:
        """Return the mapping from which `parsed` makes `config`, without defaults and secrets."""
        return {"kind": _kind(config), **config.model_dump(mode="json", exclude_defaults=True)}

    def schema(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return the JSON schema of a mapping, and the definitions to which it refers.

        It describes the built-in kinds; a mapping of another kind may have any keys.
        """
        forms: list[dict[str, Any]] = []
        definitions: dict[str, Any] = {}
        for kind in self.built_in:
            form = self.find(kind).model_json_schema(mode="validation")
            definitions |= form.pop("$defs", {})
            form["properties"] = {"kind": {"const": kind}, **form.get("properties", {})}
            form["required"] = ["kind", *form.get("required", [])]
            forms.append(form)
        others = {"type": "string", "not": {"enum": list(self.built_in)}}
        forms.append({"type": "object", "properties": {"kind": others}, "required": ["kind"]})
        return {"anyOf": forms}, definitions


def key_names(model: type[BaseModel]) -> tuple[str, ...]:
    """The keys of a model as a user writes them."""
    return tuple(field.alias or name for name, field in model.model_fields.items())


def model_at(model: type[BaseModel], location: Iterable[str | int]) -> type[BaseModel] | None:
    """Return the model of the mapping that a location within `model` leads to; None if it leads to
    another value."""
    found: type[BaseModel] | None = model
    is_member = False  # the next part of the location is the key of a member of a mapping
    for part in location:
        if is_member or isinstance(part, int):
            is_member = False
            continue
        fields = {} if found is None else found.model_fields
        own = {field.alias or name: field.annotation for name, field in fields.items()}
        annotation = own.get(part)
        found, is_member = _model_in(annotation), get_origin(annotation) is dict
    return None if is_member else found


def _model_in(annotation: object) -> type[BaseModel] | None:
    """Return the first model in the annotation of a key."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    return next(filter(None, map(_model_in, get_args(annotation))), None)


def file_names(config: StrictModel, *, written: bool = False) -> dict[str, str]:
    """The keys of `config` that are paths, with their values; or those only that are `written`."""
    found = {}
    for name, field in type(config).model_fields.items():
        marks = tuple(_marks(field.annotation, field.metadata))
        is_read = any(isinstance(mark, ReadMark) for mark in marks)
        if marks and not (written and is_read) and (value := getattr(config, name)) is not None:
            found[name] = str(value)
    return found


def _marks(annotation: object, metadata: Sequence[object] = ()) -> Iterator[FileMark]:
    """Yield the marks of a key's type that is a path, or a union with one."""
    for mark in (*metadata, *getattr(annotation, "__metadata__", ())):
        if isinstance(mark, FileMark):
            yield mark
    for part in get_args(annotation):
        yield from _marks(part)


def imported(module: str, needed_by: str, extra: str) -> ModuleType:
    """Import a module that an extra installs.

    Raises `BadInputError` that says what to install if it is missing.
    """
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        name = module.partition(".")[0]
        raise BadInputError(
            f"{needed_by} needs {name}, which is not installed: install csdf-edge with its extra "
            f"{extra!r} (pip install 'csdf-edge[{extra}]')"
        ) from error


def _kind(config: StrictModel) -> str:
    kind: str = getattr(type(config), "kind")  # noqa: B009 - the base classes declare it
    return kind


def _package(point: EntryPoint) -> str:
    return repr(point.dist.name) if point.dist is not None else "that is not installed"


def _problem(kind: str, given: object, error: ValueError | None = None) -> ValidationError:
    details = InitErrorDetails(type=kind, loc=("kind",), input=given)
    if error is not None:
        details["ctx"] = {"error": error}
    return ValidationError.from_exception_data("kind", [details])
