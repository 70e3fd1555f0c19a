"""Read untrusted XML, bounded in size and depth and without entities, and escape text for XML.

The tree keeps elements, attributes and line numbers, but no text between elements. Escaping is the
same as in Python's `xml.sax.saxutils`, whose import would load network modules.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from xml.parsers import expat

from csdf.errors import CsdfError

_TEXT = str.maketrans({"&": "&amp;", "<": "&lt;", ">": "&gt;"})
_ATTRIBUTE = _TEXT | str.maketrans({'"': "&quot;", "\t": "&#9;", "\n": "&#10;", "\r": "&#13;"})

MAX_BYTES = 32 << 20

MAX_ELEMENTS = 1_000_000

MAX_DEPTH = 64


def escaped(text: str) -> str:
    """Escape `text` for between tags; control characters, which XML cannot hold, are replaced."""
    shown = (c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in text)
    return "".join(shown).translate(_TEXT)


def quoted(text: str) -> str:
    """Return `text` as the value of an attribute, in double quotes."""
    return f'"{text.translate(_ATTRIBUTE)}"'


class XmlError(CsdfError):
    """The data are not XML, or XML that is refused; the message names the line."""


class NotXmlError(XmlError):
    """The data are not XML."""


@dataclass(slots=True)
class Element:
    """An element: its tag, attributes and children, and the line on which it starts."""

    tag: str
    attributes: dict[str, str]
    line: int
    children: list[Element] = field(default_factory=list)

    def all(self, tag: str) -> list[Element]:
        """Return the children with this tag."""
        return [child for child in self.children if child.tag == tag]


def parse(data: bytes) -> Element:
    """Return the root element of `data`. Raises `XmlError`."""
    if len(data) > MAX_BYTES:
        raise XmlError(f"is larger than {MAX_BYTES >> 20} MiB")
    builder = _Builder()
    parser = builder.parser
    try:
        parser.Parse(data, True)
    except expat.ExpatError as error:
        reason = expat.ErrorString(error.code)
        raise NotXmlError(f"is not well-formed XML: line {error.lineno}: {reason}") from None
    except (LookupError, ValueError) as error:  # an encoding that Python does not know
        raise NotXmlError(f"is not readable XML: {error}") from None
    return builder.root.children[0]


class _Builder:
    def __init__(self) -> None:
        self.root = Element("", {}, 0)
        self._open = [self.root]
        self._elements = 0
        self.parser = expat.ParserCreate()
        self.parser.StartElementHandler = self._start
        self.parser.EndElementHandler = self._end
        self.parser.EntityDeclHandler = self._refuse_entity
        self.parser.ExternalEntityRefHandler = self._refuse_external
        self.parser.SkippedEntityHandler = self._refuse_skipped
        self.parser.SetParamEntityParsing(expat.XML_PARAM_ENTITY_PARSING_NEVER)

    def _start(self, tag: str, attributes: dict[str, str]) -> None:
        self._elements += 1
        if self._elements > MAX_ELEMENTS:
            raise XmlError(f"has more than {MAX_ELEMENTS} elements")
        if len(self._open) > MAX_DEPTH:
            raise XmlError(
                f"line {self.parser.CurrentLineNumber}: is nested deeper than {MAX_DEPTH}"
            )
        if any("\n" in value for value in attributes.values()):  # written as &#10;
            raise XmlError(
                f"line {self.parser.CurrentLineNumber}: an attribute of {tag!r} has several lines"
            )
        element = Element(tag, attributes, self.parser.CurrentLineNumber)
        self._open[-1].children.append(element)
        self._open.append(element)

    def _end(self, _tag: str) -> None:
        self._open.pop()

    def _refuse_entity(self, name: str, *_about: object) -> None:
        raise XmlError(
            f"line {self.parser.CurrentLineNumber}: declares the entity {name!r}; "
            "entities are not read"
        )

    def _refuse_external(self, *_about: object) -> int:
        raise XmlError(
            f"line {self.parser.CurrentLineNumber}: refers to an external entity; "
            "nothing outside the file is read"
        )

    def _refuse_skipped(self, name: str, *_about: object) -> None:
        raise XmlError(f"line {self.parser.CurrentLineNumber}: uses the undeclared entity {name!r}")
