"""Messages in Protobuf for the tests: ``orders.proto`` and ``legacy.proto``, and classes of Protobuf's own for them.

``shop.binpb`` is what ``protoc --include_imports --descriptor_set_out=shop.binpb orders.proto legacy.proto`` writes.
"""

from pathlib import Path

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

FILES = Path(__file__).with_name("shop.binpb")
SET = FILES.read_bytes()


def message_class(name, files=SET):
    """Return Protobuf's own class of a message of a descriptor set, whose files are in the order of their imports."""
    pool = descriptor_pool.DescriptorPool()
    for file in descriptor_pb2.FileDescriptorSet.FromString(files).file:
        pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName(name))


Order = message_class("shop.orders.Order")
Reading = message_class("shop.legacy.Reading")
