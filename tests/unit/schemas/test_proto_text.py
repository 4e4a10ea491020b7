"""The text of .proto files, read as protoc reads it."""

import pytest
from google.protobuf import descriptor_pb2, descriptor_pool

from millrace_jobs.schemas.proto_text import read_proto
from millrace_jobs.schemas.protobuf_schemas import ProtobufSchema, check_schema, descriptor_set
from protobuf import FILES, SET


def resolved(files, name):
    """Return a file as a pool of descriptors has it, with names resolved."""
    pool = descriptor_pool.DescriptorPool()
    for file in files:
        pool.Add(file)
    found = descriptor_pb2.FileDescriptorProto()
    pool.FindFileByName(name).CopyToProto(found)
    return found


def without_json_names(message):
    for field in message.field:
        field.ClearField("json_name")
    for each in message.nested_type:
        without_json_names(each)


@pytest.mark.parametrize("name", ["orders.proto", "legacy.proto"])
def test_a_file_has_the_messages_that_protoc_finds_in_it(name):
    files = descriptor_pb2.FileDescriptorSet.FromString(SET).file
    wanted = resolved(files, name)
    text = FILES.with_name(name).read_text()
    found = resolved([*(file for file in files if file.name.startswith("google/")), read_proto(text, name)], name)
    for file in (found, wanted):
        for message in file.message_type:
            without_json_names(message)
            message.ClearField("extension_range")
    assert list(found.message_type) == list(wanted.message_type)
    assert list(found.enum_type) == list(wanted.enum_type)
    assert (found.package, list(found.dependency)) == (wanted.package, list(wanted.dependency))


ODD = r"""
/* A comment
   of two lines */ syntax = 'proto' "2"; // texts are joined
package a.b;
option java_package = "x;y"; option (my.opt).inner = { a: 1 b { c: "}" } };
import public "google/protobuf/any.proto";
message message { // keywords may be names
  optional int32 option = 1 [deprecated = true, (my.opt) = { x: [1, 2] }, default = -0x1F];
  optional string reserved = 0x2 [default = 'a\n\x41\101"', json_name = "r"];
  optional E e = 3 [default = TWO];
  required .a.b.message.Inner inner = 4;
  reserved 5 to 9, 20 to max; reserved "old", "older";
  oneof kind { option (x) = 1; bool oneof = 010; Inner.Deep deep = 11; }
  message Inner { message Deep {}; map<string, Deep> map = 1; repeated E es = 3; optional float f = 2 [default = 1.5e3]; }
  enum E { option allow_alias = true; ONE = 1; TWO = 2 [deprecated = true]; ZWEI = 2; MINUS = -1; reserved 7; }
  extensions 100 to 199 [verification = UNVERIFIED];
  extend message { optional int32 more = 100; }
  ;
}
service S { rpc Get (message) returns (stream message) { option (x) = "}"; } }
"""


def test_what_does_not_concern_messages_is_passed_over():
    file = read_proto(ODD)
    check_schema(ProtobufSchema(descriptor_set([file]), "a.b.message"))
    kind = ProtobufSchema(descriptor_set([file]), "a.b.message").descriptor
    assert {field.name: field.number for field in kind.fields} == {
        "option": 1,
        "reserved": 2,
        "e": 3,
        "inner": 4,
        "oneof": 8,
        "deep": 11,
    }
    fields = kind.fields_by_name
    assert fields["option"].default_value == -31
    assert fields["reserved"].default_value == 'a\nAA"'
    assert fields["e"].default_value == 2
    assert [field.name for field in kind.oneofs_by_name["kind"].fields] == ["oneof", "deep"]
    assert fields["deep"].message_type.full_name == "a.b.message.Inner.Deep"
    inner = fields["inner"].message_type
    value = inner.fields_by_name["map"].message_type.fields_by_name["value"]
    assert value.message_type.full_name == "a.b.message.Inner.Deep"
    assert inner.fields_by_name["es"].enum_type.full_name == "a.b.message.E"
    assert inner.fields_by_name["f"].default_value == 1500.0


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('syntax = "proto4";', "its text has the syntax proto4, not proto2 or proto3"),
        ('edition = "2023";', "its text has the edition 2023, not proto2 or proto3"),
        ("message A {", "its text ends too early"),
        ("message A { int32 a = x; }", "its text has 'x' where 'a number' is expected"),
        ("message A { int32 a = 99999999999; }", "where 'a number of 32 bits' is expected"),
        ("message A { int32 a 1; }", "its text has '1' where '=' is expected"),
        ("\n\nmessage A { § }", "its text is not Protobuf's in line 3: '§ }'"),
        ("syntax = proto3;", "its text has 'proto3' where 'a text' is expected"),
        ("record A {}", "its text has 'record'"),
        ("message A {" * 50, "more than 32 levels within each other"),
        (" " * (1 << 20) + "x", "longer than 1 MiB"),
        ("option x = {", "its text ends too early"),
    ],
)
def test_what_is_no_proto_file_is_refused(text, said):
    with pytest.raises(ValueError, match=said):
        read_proto(text)


def test_types_that_are_nowhere_are_refused_when_the_message_is_used():
    file = read_proto('syntax = "proto3"; message A { B b = 1; }')
    with pytest.raises(ValueError, match=r"the file schema\.proto cannot be used: .*B"):
        check_schema(ProtobufSchema(descriptor_set([file]), "A"))
