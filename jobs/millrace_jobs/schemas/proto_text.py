"""The text of ``.proto`` files, as registries keep it, read to descriptors.

What has no influence on how messages are read is passed over: comments, services, extensions, and options except
``default``, ``packed`` and ``allow_alias``. Names of types stay as they are written; Protobuf's own pool of descriptors
resolves them, and checks numbers and types.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from google.protobuf import descriptor_pb2

_MOST_CHARACTERS = 1 << 20
_MOST_LEVELS = 32
_TOKEN = re.compile(
    r"""\s+|//[^\n]*|/\*.*?\*/|(?P<text>"(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*')"""
    r"""|(?P<word>\.?[A-Za-z_][A-Za-z0-9_]*(?:\.[A-Za-z_][A-Za-z0-9_]*)*)"""
    r"""|(?P<number>(?:0[xX][0-9a-fA-F]+|(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)f?)|(?P<mark>[{}\[\]()<>=;,:.+/-])""",
    re.DOTALL,
)
_ESCAPES = re.compile(r"\\(x[0-9a-fA-F]{1,2}|[0-7]{1,3}|u[0-9a-fA-F]{4}|U[0-9a-fA-F]{8}|.)", re.DOTALL)
_SIMPLE = {"n": "\n", "r": "\r", "t": "\t", "a": "\a", "b": "\b", "f": "\f", "v": "\v"}
_Field = descriptor_pb2.FieldDescriptorProto
_NAMES = "double float int64 uint64 int32 fixed64 fixed32 bool string bytes uint32 sfixed32 sfixed64 sint32 sint64"
_SCALARS = {name: _Field.Type.Value(f"TYPE_{name.upper()}") for name in _NAMES.split()}
_LABELS = {name: _Field.Label.Value(f"LABEL_{name.upper()}") for name in ("optional", "required", "repeated")}


def read_proto(text: str, name: str = "schema.proto") -> descriptor_pb2.FileDescriptorProto:
    """Return the descriptors of a file. Raises ValueError if its text is not Protobuf's, or has an edition."""
    if len(text) > _MOST_CHARACTERS:
        raise ValueError(f"its text is longer than {_MOST_CHARACTERS >> 20} MiB")
    return _ProtoParser(text).file(name)


class _ProtoParser:
    """A parser that goes through the tokens of one file."""

    def __init__(self, text: str) -> None:
        self._tokens = list(_tokens(text))
        self._place = 0
        self._is_proto3 = False

    def file(self, name: str) -> descriptor_pb2.FileDescriptorProto:
        file = descriptor_pb2.FileDescriptorProto(name=name, syntax="proto2")
        while self._next:
            word = self._take()
            if word in ("syntax", "edition"):
                self._expect("=")
                file.syntax = self._text()
                if word == "edition" or file.syntax not in ("proto2", "proto3"):
                    raise ValueError(f"its text has the {word} {file.syntax}, not proto2 or proto3")
                self._is_proto3 = file.syntax == "proto3"
                self._expect(";")
            elif word == "package":
                file.package = self._take()
                self._expect(";")
            elif word == "import":
                if self._next in ("public", "weak") and self._take() == "public":
                    file.public_dependency.append(len(file.dependency))
                file.dependency.append(self._text())
                self._expect(";")
            elif word == "message":
                self._message(file.message_type.add(), 0)
            elif word == "enum":
                self._enum(file.enum_type.add())
            elif word in ("option", "service", "extend"):
                self._pass_over()
            elif word != ";":
                raise self._unexpected(word)
        return file

    def _message(self, message: descriptor_pb2.DescriptorProto, levels: int) -> None:
        message.name = self._take()
        self._body(message, levels)
        for field in message.field:  # the oneofs of optional fields come after the others
            if field.proto3_optional:
                field.oneof_index = len(message.oneof_decl)
                message.oneof_decl.add(name=f"_{field.name}")

    def _body(self, message: descriptor_pb2.DescriptorProto, levels: int) -> None:
        if levels > _MOST_LEVELS:
            raise ValueError(f"its text has messages more than {_MOST_LEVELS} levels within each other")
        self._expect("{")
        while (word := self._take()) != "}":
            if word == "message" and self._after(0) == "{":
                self._message(message.nested_type.add(), levels + 1)
            elif word == "enum" and self._after(0) == "{":
                self._enum(message.enum_type.add())
            elif word == "oneof" and self._after(0) == "{":
                self._oneof(message, levels)
            elif word in ("option", "extensions", "reserved", "extend") and self._after(0) != "=":
                self._pass_over()
            elif word == "map" and self._next == "<":
                self._map(message)
            elif word != ";":
                self._field(message, word, levels)

    def _oneof(self, message: descriptor_pb2.DescriptorProto, levels: int) -> None:
        index = len(message.oneof_decl)
        message.oneof_decl.add(name=self._take())
        self._expect("{")
        while (word := self._take()) != "}":
            if word == "option":
                self._pass_over()
            elif word != ";":
                self._field(message, word, levels, index)

    def _map(self, message: descriptor_pb2.DescriptorProto) -> None:
        self._expect("<")
        key = self._take()
        self._expect(",")
        value = self._take()
        self._expect(">")
        field = message.field.add(name=self._take(), label=_Field.LABEL_REPEATED)
        words = (part[:1].upper() + part[1:] for part in field.name.split("_"))
        entry = message.nested_type.add(name=f"{''.join(words)}Entry")
        entry.options.map_entry = True
        for number, (name, kind) in enumerate((("key", key), ("value", value)), start=1):
            _set_type(entry.field.add(name=name, number=number, label=_Field.LABEL_OPTIONAL), kind)
        field.type, field.type_name = _Field.TYPE_MESSAGE, entry.name
        self._number(field)

    def _field(self, message: descriptor_pb2.DescriptorProto, word: str, levels: int, oneof: int | None = None) -> None:
        field = message.field.add(label=_LABELS.get(word, _Field.LABEL_OPTIONAL))
        kind = self._take() if word in _LABELS else word
        name = self._take()
        if kind == "group":
            field.type, field.type_name, field.name = _Field.TYPE_GROUP, name, name.lower()
        else:
            field.name = name
            _set_type(field, kind)
        if oneof is not None:
            field.oneof_index = oneof
        elif word == "optional" and self._is_proto3:
            field.proto3_optional = True
        self._number(field, is_group=kind == "group")
        if kind == "group":
            self._body(group := message.nested_type.add(name=name), levels + 1)
            group.name = name

    def _number(self, field: descriptor_pb2.FieldDescriptorProto, *, is_group: bool = False) -> None:
        self._expect("=")
        field.number = self._integer()
        if self._next == "[":
            for name, value in self._options():
                if name == "default":
                    field.default_value = value
                elif name == "packed":
                    field.options.packed = value == "true"
        if not is_group:
            self._expect(";")

    def _enum(self, enum: descriptor_pb2.EnumDescriptorProto) -> None:
        enum.name = self._take()
        self._expect("{")
        while (word := self._take()) != "}":
            if word == "option" and self._next == "allow_alias":
                self._take()
                self._expect("=")
                enum.options.allow_alias = self._take() == "true"
                self._expect(";")
            elif word in ("option", "reserved") and self._next != "=":
                self._pass_over()
            elif word != ";":
                value = enum.value.add(name=word)
                self._expect("=")
                value.number = self._integer()
                if self._next == "[":
                    list(self._options())
                self._expect(";")

    def _options(self) -> Iterator[tuple[str, str]]:
        """Yield the options in brackets; those with names of several parts have an empty name."""
        self._expect("[")
        while True:
            name = self._take()
            if name == "(":
                name = ""
            while self._next != "=":
                self._take()
                name = ""
            self._expect("=")
            yield name, self._value()
            if self._take() == "]":
                return

    def _value(self) -> str:
        """Return the value of an option as descriptors have defaults; of values in braces nothing."""
        if self._next == "{":
            self._braces()
            return ""
        if self._next[:1] in ('"', "'"):
            return self._text()
        sign = self._take() if self._next in ("-", "+") else ""
        value = self._take()
        if value[:2].lower() == "0x":
            value = str(int(value, 16))
        return value if sign != "-" else f"-{value}"

    def _pass_over(self) -> None:
        """Pass over a statement: up to its semicolon, or its block."""
        while (mark := self._next) != ";":
            if mark == "{":
                self._braces()
                if self._next == ";":
                    self._take()
                return
            self._take()
        self._take()

    def _braces(self) -> None:
        depth = 0
        while True:
            mark = self._take()
            depth += (mark == "{") - (mark == "}")
            if not depth:
                return

    @property
    def _next(self) -> str:
        return self._after(-1)

    def _after(self, count: int) -> str:
        """Return the token after ``count`` + 1 others; an empty text at the end."""
        place = self._place + count + 1
        return self._tokens[place] if place < len(self._tokens) else ""

    def _take(self) -> str:
        if not (token := self._next):
            raise ValueError("its text ends too early")
        self._place += 1
        return token

    def _expect(self, mark: str) -> None:
        if (token := self._take()) != mark:
            raise self._unexpected(token, mark)

    def _integer(self) -> int:
        sign = -1 if self._next == "-" else 1
        token = self._take() if sign == 1 else (self._take(), self._take())[1]
        try:
            number = sign * int(token, 8 if re.fullmatch("0[0-7]+", token) else 0)
        except ValueError:
            raise self._unexpected(token, "a number") from None
        if not -(1 << 31) <= number < 1 << 31:
            raise self._unexpected(token, "a number of 32 bits")
        return number

    def _text(self) -> str:
        if self._next[:1] not in ('"', "'"):
            raise self._unexpected(self._take(), "a text")
        parts = []
        while self._next[:1] in ('"', "'"):
            parts.append(_ESCAPES.sub(_unescaped, self._take()[1:-1]))
        return "".join(parts)

    def _unexpected(self, token: str, wanted: str = "") -> ValueError:
        return ValueError(f"its text has {token!r}" + (f" where {wanted!r} is expected" if wanted else ""))


def _tokens(text: str) -> Iterator[str]:
    place = 0
    while place < len(text):
        found = _TOKEN.match(text, place)
        if found is None:
            line = text.count("\n", 0, place) + 1
            raise ValueError(f"its text is not Protobuf's in line {line}: {text[place : place + 20]!r}")
        place = found.end()
        if found.lastgroup is not None:
            yield found.group()


def _set_type(field: descriptor_pb2.FieldDescriptorProto, kind: str) -> None:
    if kind in _SCALARS:
        field.type = _SCALARS[kind]
    else:
        field.type_name = kind  # of a message or an enum, which the pool of descriptors finds out


def _unescaped(escape: re.Match[str]) -> str:
    code = escape[1]
    if code[0] in "xuU" and len(code) > 1:
        return chr(int(code[1:], 16))
    return chr(int(code, 8)) if code[0] in "01234567" else _SIMPLE.get(code, code)
