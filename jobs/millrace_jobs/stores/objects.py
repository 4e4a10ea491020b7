"""Places in an object store, with the methods of ``pathlib.Path`` that checkpoints use.

They are the same for S3 and Azure; ``clients`` says how each is reached.
"""

from __future__ import annotations

import calendar
import errno
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from html import unescape
from io import SEEK_CUR, SEEK_END, SEEK_SET, BufferedReader, RawIOBase
from typing import TYPE_CHECKING, Any, NamedTuple, Self

from millrace_api.validation.places import bucket_and_prefix
from millrace_jobs.stores.clients import AZURE, client_of
from millrace_jobs.stores.requests import PAGE, Request, count, pages

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer
    from obstore import ListResult, ObjectMeta
    from obstore.store import AzureStore, S3Store
    from typing_extensions import Buffer

_READ_BYTES = 4 << 20
"""Bytes of an object that a request fetches at most."""

_PART_BYTES = 10 << 20
"""Bytes of a part, in which larger objects are sent."""

_CODE, _MESSAGE = (re.compile(rf"<{name}>([^<]{{1,300}})</{name}>") for name in ("Code", "Message"))
"""What a store answers in XML."""

_NO_BUCKET = ("NoSuchBucket", "ContainerNotFound")
"""Codes for a bucket that does not exist."""

_IS_FOLDER = "hdi_isfolder"
"""Metadata of an empty object that stands for a folder, in Azure."""

_REFUSED = re.compile(
    r"\b(?:AccessDenied|SignatureDoesNotMatch|InvalidAccessKeyId|ExpiredToken|TokenRefreshRequired|InvalidToken)\b|"
    r"\b(?:403 Forbidden|401 Unauthorized)\b"
)
"""What a store says that refuses the login: the client reports some of it, such as of a listing, as a fault."""


@dataclass(frozen=True)
class ObjectPath:
    """An object, or what a folder would be: the common beginning of the keys of some objects.

    Nothing but the URI is part of it, so it can be sent to other processes. Methods raise OSError as those of a path
    do, with the store's own words, and FileNotFoundError for an object that does not exist. Conditional writes are
    decided by the store, also between machines.
    """

    scheme: str
    bucket: str
    key: str

    @classmethod
    def of(cls, uri: str) -> ObjectPath:
        """Return the place of a URI such as ``s3a://bucket/prefix``."""
        found = bucket_and_prefix(uri)
        assert found is not None, f"{uri} is not in an object store"
        return cls(*found)

    @classmethod
    def of_file(cls, uri: str) -> ObjectPath:
        """Return the object of a URI that a listing has shown: its key may have any characters."""
        scheme, _, place = uri.partition("://")
        bucket, _, key = place.partition("/")
        return cls(scheme, bucket, key)

    def __str__(self) -> str:
        return f"{self.scheme}://{self.bucket}/{self.key}"

    def __truediv__(self, name: str) -> ObjectPath:
        return ObjectPath(self.scheme, self.bucket, f"{self.key}/{name}")

    @property
    def name(self) -> str:
        """The last part of the key."""
        return self.key.rpartition("/")[2]

    @property
    def parent(self) -> ObjectPath:
        """The place that this one is in."""
        return ObjectPath(self.scheme, self.bucket, self.key.rpartition("/")[0])

    def read_bytes(self) -> bytes:
        """Return the content of the object."""
        return self.read_version()[0]

    def read_text(self, encoding: str = "utf-8", errors: str = "strict") -> str:
        """Return the content of the object as text."""
        return self.read_bytes().decode(encoding, errors)

    def read_version(self) -> tuple[bytes, str]:
        """Return the content of the object and the tag of this version of it."""
        with _request(self, "GET"):
            answer = self._client.get(self.key)
            content = bytes(answer.bytes())
        count("GET", 0, read=len(content))
        return content, str(answer.meta["e_tag"])

    def exists(self) -> bool:
        """Whether there is an object of this key."""
        try:
            self._head()
        except FileNotFoundError:
            return False
        return True

    def is_dir(self) -> bool:
        """Whether there are objects below this place."""
        with _request(self, "LIST"):
            return any(self._client.list(f"{self.key}/", chunk_size=1))

    def iterdir(self) -> Iterator[ObjectPath]:
        """Yield the objects that are directly in this place, in the order of their keys.

        In Azure, empty objects that stand for folders are among them.
        """
        yield from (ObjectPath(self.scheme, self.bucket, each["path"]) for each in self._level()["objects"])

    def objects(self) -> Iterator[tuple[str, int]]:
        """Yield the objects below this place: the key from there on, and the size in bytes.

        Empty objects that stand for folders are left out.
        """
        for each in [each for found in self._below() for each in found]:
            if each["size"] or self._is_object(each["path"]):
                yield each["path"][len(self.key) + 1 :], each["size"]

    def objects_after(self, key: str = "") -> Iterator[ObjectFile]:
        """Yield the objects below this place whose keys come after this one, in their order; 1000 a request."""
        for part in self._below(after=key):
            yield from map(ObjectFile.of, part)

    def listed(self, *, below: bool = False) -> tuple[list[ObjectFile], list[str]]:
        """Return the objects directly in this place, and the names of the places in it; or all objects below it."""
        if below:
            return [ObjectFile.of(each) for part in self._below() for each in part], []
        answer = self._level()
        names = [each.rstrip("/").rpartition("/")[2] for each in answer["common_prefixes"]]
        return [ObjectFile.of(each) for each in answer["objects"]], names

    def look(self) -> ObjectFile:
        """Return what a listing would say of the object."""
        return ObjectFile.of(self._head())

    def tag(self) -> str:
        """Return the tag of this version of the object."""
        return self.size_and_tag()[1]

    def size_and_tag(self) -> tuple[int, str]:
        """Return the size of the object in bytes, and the tag of this version of it."""
        found = self._head()
        return found["size"], str(found["e_tag"])

    def open(self) -> BufferedReader:
        """Return the content of the object as a stream, of which parts are fetched when they are read."""
        return BufferedReader(_ObjectReader(self), _READ_BYTES)

    def read_range(self, begin: int, length: int) -> memoryview:
        """Return a part of the content of the object, which has to be within it."""
        with _request(self, "GET", read=length):
            return memoryview(self._client.get_range(self.key, start=begin, length=length))

    def folders(self) -> Iterator[ObjectPath]:
        """Yield the places directly in this one that have objects below them, in the order of their keys."""
        prefixes = self._level()["common_prefixes"]
        yield from (ObjectPath(self.scheme, self.bucket, each.rstrip("/")) for each in prefixes)

    def write_bytes(self, content: bytes) -> None:
        """Create or replace the object."""
        with _request(self, "PUT", written=len(content)):
            self._client.put(self.key, content)

    def writer(self) -> ObjectWriter:
        """Return a file that becomes the object when it is closed; it is sent in parts as it is written."""
        return ObjectWriter(self)

    def create(self, content: bytes) -> str | None:
        """Create the object, and return the tag of its version; None if it exists."""
        return self._put_if(content, "create")

    def replace_version(self, content: bytes, tag: str) -> str | None:
        """Replace a version of the object, and return the tag of the next one; None if it has another version."""
        return self._put_if(content, {"e_tag": tag})

    def unlink(self, missing_ok: bool = False) -> None:
        """Delete the object; only Azure reports a missing one, as FileNotFoundError unless ``missing_ok``."""
        try:
            with _request(self, "DELETE"):
                self._client.delete(self.key)
        except FileNotFoundError:
            if not missing_ok:
                raise

    def remove_all(self) -> None:
        """Delete all objects below this place."""
        for found in self._below():
            self._delete([each["path"] for each in found])

    def remove(self, names: Sequence[str]) -> None:
        """Delete objects that are directly in this place, of those that exist."""
        self._delete([f"{self.key}/{name}" for name in names])

    def copy_to(self, other: ObjectPath) -> None:
        """Let the store copy the object to another place in the bucket, where it replaces what there is."""
        assert self.bucket == other.bucket
        with _request(self, "COPY"):
            self._client.copy(self.key, other.key)

    def _level(self) -> ListResult[Sequence[ObjectMeta]]:
        with _request(self, "LIST"):
            found = self._client.list_with_delimiter(self._prefix)
        count("LIST", pages(len(found["objects"]) + len(found["common_prefixes"]), self._page) - 1)
        return found

    def _below(self, after: str = "") -> Iterator[Sequence[ObjectMeta]]:
        """Yield the objects below this place whose keys come after this one, in their order; those of one answer."""
        listed = self._client.list(self._prefix, offset=after or None, chunk_size=self._page)
        with _request(self, "LIST"):
            found = next(listed, None)
        while found is not None:
            yield found
            with _os_errors(self):
                found = next(listed, None)
            count("LIST", found is not None)

    def _delete(self, keys: Sequence[str]) -> None:
        if not keys:
            return
        try:
            with _request(self, "DELETE", len(keys) if self.scheme == AZURE else pages(len(keys))):
                self._client.delete(keys)
        except FileNotFoundError:  # of one of them, which may have stopped the deletion of others
            for key in keys:
                ObjectPath(self.scheme, self.bucket, key).unlink(missing_ok=True)

    def _head(self) -> ObjectMeta:
        """Return what the store says of the object without its content."""
        try:
            with _request(self, "HEAD"):
                return self._client.head(self.key)
        except FileNotFoundError:
            raise
        except OSError as error:
            if isinstance(error, PermissionError) or "400 Bad Request" in str(error):
                self.read_range(0, 1)  # a refusal of HEAD has no content and so no reason, and this one has
            raise

    def _put_if(self, content: bytes, mode: Any) -> str | None:
        from obstore.exceptions import AlreadyExistsError, NotFoundError, PreconditionError

        with _request(self, "PUT", written=len(content)):
            try:
                return str(self._client.put(self.key, content, mode=mode)["e_tag"])
            except (AlreadyExistsError, PreconditionError, NotFoundError):
                return None

    def _is_object(self, key: str) -> bool:
        """Return whether an empty object is one, and does not stand for a folder, as Hadoop and consoles make them."""
        if self.scheme == AZURE:
            try:
                with _request(self, "GET"):
                    return _IS_FOLDER not in self._client.get(key).attributes
            except FileNotFoundError:  # another process has deleted it since it was listed
                return False
        # the client drops the slash that such a key ends with
        return ObjectPath(self.scheme, self.bucket, key).exists()

    @property
    def _page(self) -> int:
        return 5 * PAGE if self.scheme == AZURE else PAGE

    @property
    def _prefix(self) -> str:
        """The beginning of the keys of all objects below this place."""
        return f"{self.key}/" if self.key else ""

    @property
    def _client(self) -> S3Store | AzureStore:
        return client_of(self.scheme, self.bucket)


class ObjectFile(NamedTuple):
    """What a listing says of an object: its key, its size in bytes, and when it was written in ns since 1970.

    The time is in whole seconds: stores say more of it in a listing than of a single object.
    """

    key: str
    size: int
    mtime_ns: int

    @classmethod
    def of(cls, meta: ObjectMeta) -> Self:
        """Return what an answer of the client says."""
        return cls(meta["path"], meta["size"], calendar.timegm(meta["last_modified"].utctimetuple()) * 10**9)


class _ObjectReader(RawIOBase):
    """The content of an object, of which each read is a request."""

    def __init__(self, path: ObjectPath) -> None:
        super().__init__()
        self._path, self._size, self._at = path, path.look().size, 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = SEEK_SET) -> int:
        self._at = offset + {SEEK_SET: 0, SEEK_CUR: self._at, SEEK_END: self._size}[whence]
        return self._at

    def readinto(self, buffer: WriteableBuffer) -> int:
        view = memoryview(buffer).cast("B")
        length = max(min(len(view), self._size - self._at, _READ_BYTES), 0)  # a request has a time-out
        if length:
            view[:length] = self._path.read_range(self._at, length)
            self._at += length
        return length


class ObjectWriter:
    """An object that is being written; without ``close``, it never exists."""

    def __init__(self, path: ObjectPath) -> None:
        from obstore import open_writer

        self._path, self._written, self.closed = path, 0, False
        with _os_errors(path):
            self._writer = open_writer(path._client, path.key, buffer_size=_PART_BYTES)

    def write(self, content: Buffer) -> int:
        """Write bytes; return how many."""
        with _os_errors(self._path):
            self._writer.write(content)
        size = memoryview(content).nbytes
        self._written += size
        return size

    def tell(self) -> int:
        """Return the number of bytes written."""
        return self._written

    def flush(self) -> None:
        """Do nothing: a part is sent when it is large enough."""

    def close(self) -> None:
        """Send the rest, and create the object."""
        if not self.closed:
            self.closed = True
            parts = -(-self._written // _PART_BYTES)
            with _request(self._path, "PUT", 1 if self._written < _PART_BYTES else parts + 2, written=self._written):
                self._writer.close()


@contextmanager
def _request(path: ObjectPath, request: Request, times: int = 1, *, read: int = 0, written: int = 0) -> Iterator[None]:
    """Count requests, and what they have read or written, and raise the store's errors as OSError."""
    count(request, times)
    with _os_errors(path):
        yield
    count(request, 0, read=read, written=written)


@contextmanager
def _os_errors(path: ObjectPath) -> Iterator[None]:
    """Raise the store's errors as OSError, in one line."""
    from obstore.exceptions import BaseError, NotFoundError, PermissionDeniedError, UnauthenticatedError

    try:
        yield
    except (NotFoundError, FileNotFoundError) as error:
        if _number_of(str(error)) == errno.ENXIO:
            raise OSError(errno.ENXIO, in_short(str(error)), str(path)) from error
        raise FileNotFoundError(errno.ENOENT, "it does not exist", str(path)) from error
    except (PermissionDeniedError, UnauthenticatedError, PermissionError) as error:
        raise PermissionError(errno.EACCES, in_short(str(error)), str(path)) from error
    except BaseError as error:
        raise OSError(_number_of(str(error)), in_short(str(error)), str(path)) from error


def _number_of(text: str) -> int:
    if any(code in text for code in _NO_BUCKET):
        return errno.ENXIO
    return errno.EACCES if _REFUSED.search(text) else errno.EIO


def in_short(text: str) -> str:
    """Return what went wrong, from a client's text: the store's own code and message, or else its first line."""
    code, message = _CODE.search(text), _MESSAGE.search(text)
    if code is not None:
        return f"{code[1]}: {unescape(message[1]).rstrip('.')}" if message is not None else code[1]
    return text.partition("\n")[0].strip().rstrip(".")[:300]
