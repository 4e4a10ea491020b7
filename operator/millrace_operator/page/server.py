"""The HTTP server of the page: who asks, what they ask for, and nothing beyond what they may see."""

from __future__ import annotations

import logging
import re
import socket
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from email.message import Message
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler
from threading import BoundedSemaphore
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

from kubernetes.client import ApiException
from urllib3.exceptions import HTTPError

from millrace_support.bounded_server import BoundedServer
from millrace_support.http_server import Page
from millrace_support.pages.serving import HEADERS, asset, html_page
from millrace_support.pages.verdict import PageFinding, Severity

from ..kube.review_api import User
from ..lifecycle.query_view import QueryView
from ..lifecycle.token_buckets import TokenBuckets
from ..resources.names import Owner
from ..telemetry.logs import in_short
from .access import Access
from .driver_page import FRAME_HEADERS, PAGE_HEADERS, DriverPages
from .fleet import FleetQueries
from .fleet_view import FleetRequest, fleet_page
from .login_page import MOST_TOKEN, login_page, problem_page
from .query_page import ROOT, driver_frame_page, query_page
from .sessions import Sessions

COOKIE = "millrace-session"
"""Name of the cookie with the number of a session."""

MOST_BODY = 16 << 10
"""Maximum number of bytes of a form."""

_COOKIES = re.compile(rf"(?:^|;)[ \t]*{COOKIE}=([^;]*)")
_NUMBER = re.compile(r"[A-Za-z0-9_-]{43}")
RENDERINGS = 2
"""Maximum number of pages that are rendered at the same time; others wait, so that the operator's work goes on."""

_QUERY = re.compile(r"/queries/(?P<namespace>[^/]{1,63})/(?P<name>[^/]{1,253})(?P<rest>/live|/driver|/page\.css)?")
_TOKEN = re.compile(rf"[\x21-\x7e]{{1,{MOST_TOKEN}}}")
_NO_QUERY = "there is no such query, or you may not see it"

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Reader:
    """Who asks, with the token by which that is known."""

    user: User
    token: str

    def __repr__(self) -> str:
        """Return the user alone: a token must not be in a log."""
        return f"Reader({self.user.name!r})"


class FleetPages:
    """Answers to requests for the page.

    Args:
        fleet: the queries.
        access: who may see which of them.
        drivers: the pages of drivers; None shows none.
        health: what of the operator makes figures old, as findings.
        now: returns the current time, by which ages are counted.
    """

    def __init__(
        self,
        fleet: FleetQueries,
        access: Access,
        drivers: DriverPages | None = None,
        health: Callable[[], list[PageFinding]] = list,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._fleet, self._access, self._drivers, self._health = fleet, access, drivers, health
        self._now = now
        self._rendering = BoundedSemaphore(RENDERINGS)
        self._sessions = Sessions()
        self._views = TokenBuckets(burst=20, seconds_each=0.5)
        self._logins = TokenBuckets(burst=20, seconds_each=1.0)
        self._begun = TokenBuckets(burst=10, seconds_each=6.0)
        self._warnings = TokenBuckets(burst=5, seconds_each=10.0)

    def get(self, path: str, parameters: str, headers: Message, address: str) -> Page:
        """Answer a GET request."""
        if path in ("/page.css", "/page.js"):
            return asset(path[1:])
        query = _QUERY.fullmatch(path)
        if query is not None and query["rest"] == "/page.css":  # what a driver's page refers to
            return asset("page.css")
        if path in ("/login", "/logout"):
            return _redirect("./")
        if path != "/" and query is None:
            return _problem(HTTPStatus.NOT_FOUND, "Not found", "there is no such page", "begin at the fleet", "./")
        is_frame = query is not None and query["rest"] == "/driver"
        if is_frame and headers.get("Sec-Fetch-Dest") != "iframe":  # alone, it would look like a page of the operator
            reason, remedy = "what a driver shows is only shown in a frame", "open it from the query's page"
            return _problem(HTTPStatus.FORBIDDEN, "Refused", reason, remedy, "../../../")
        root = "" if query is None else "../../../" if query["rest"] else ROOT
        try:
            reader = self._reader(headers, address)
            if reader is None:
                return _status(HTTPStatus.UNAUTHORIZED, html_page(login_page(root=root)))
            if not self._views.take(reader.user.name):
                return _busy(root)
            if query is None:
                return self._fleet_page(reader, _asked(parameters))
            namespace, name = unquote(query["namespace"]), unquote(query["name"])
            if is_frame:
                return self._driver_page(reader, namespace, name, root)._replace(headers=FRAME_HEADERS)
            return self._query_page(reader, namespace, name, root, live=bool(query["rest"]))
        except TooManyLoginsError:
            reason = "too many tokens of your address were refused"
            return _problem(HTTPStatus.TOO_MANY_REQUESTS, "Too many requests", reason, "reload in a minute", root)
        except (ApiException, HTTPError) as error:
            return self._unreviewed(error, root)

    def post(self, path: str, form: str, headers: Message, address: str) -> Page:
        """Answer a POST request: a login or its end."""
        if not _is_own_form(headers):
            return _problem(HTTPStatus.FORBIDDEN, "Refused", "the form is of another site", "log in on this page", "./")
        if path == "/logout":
            self._sessions.end(_number(headers) or "")
            return _redirect("./", _cookie("", headers, "; Max-Age=0"))
        if path != "/login":
            return _problem(HTTPStatus.NOT_FOUND, "Not found", "there is no such form", "begin at the fleet", "./")
        given: Mapping[str, list[str]] = {}
        with suppress(ValueError):  # more fields than the form has
            given = parse_qs(form, max_num_fields=4)
        token = "".join(given.get("token", ())).strip()
        try:
            user = self._user_of(token, address)
        except (ApiException, HTTPError) as error:
            return self._unreviewed(error, "")
        except TooManyLoginsError:
            return _too_many("Too many logins failed: wait a minute.")
        if user is None:
            problem = "The API server does not accept this token: it may have expired, or be of another cluster."
            return _status(HTTPStatus.UNAUTHORIZED, html_page(login_page(problem)))
        if not self._begun.take(user.name):
            return _too_many("You have logged in too often: wait a minute.")
        return _redirect("./", _cookie(self._sessions.begin(user.name, token), headers))

    def _reader(self, headers: Message, address: str) -> Reader | None:
        """Return who asks, by a bearer token, as proxies send it, or by a session; None if that is not known.

        Raises:
            TooManyLoginsError: the bearer token is not known, and too many of this address were refused.
        """
        scheme, _, token = headers.get("Authorization", "").partition(" ")
        if scheme.lower() == "bearer":
            token = token.strip()
            user = self._user_of(token, address)
        else:
            number = _number(headers) or ""
            token = self._sessions.token(number) or ""
            # without the limit of logins, so that refused tokens of others at this address end no session
            user = self._access.user_of(token) if token else None
            if user is None:
                self._sessions.end(number)  # its token has expired or was revoked
        return None if user is None else Reader(user, token)

    def _user_of(self, token: str, address: str) -> User | None:
        """Return whose token this is; one that is not known is reviewed if not too many of this address were refused.

        Known tokens pass, because behind a proxy all readers have one address, which one of them can use up.

        Raises:
            TooManyLoginsError: too many were.
        """
        if not _TOKEN.fullmatch(token):
            return None
        if self._access.is_known(token):
            return self._access.user_of(token)
        if self._logins.wait(address) > 0:
            raise TooManyLoginsError
        user = self._access.user_of(token)
        if user is None:
            self._logins.spend(address, 1)
        return user

    def _unreviewed(self, error: Exception, root: str) -> Page:
        """Answer that the API server cannot be asked; the log says why, now and then."""
        if self._warnings.take(None):
            _log.warning("the API server does not review who asks for the page: %s", in_short(error))
        reason, remedy = "the API server does not say who you are, or what you may see", "reload the page in a minute"
        return _problem(HTTPStatus.SERVICE_UNAVAILABLE, "Not available", reason, remedy, root)

    def _fleet_page(self, reader: Reader, asked: FleetRequest) -> Page:
        visible = self._access.visible(reader.user, self._fleet.namespaces())
        notes = self._health()
        if not visible.is_complete:
            reason = "your rights in some namespaces are not reviewed yet, so that their queries are missing here"
            notes.append(PageFinding(Severity.WARNING, "Not all is shown", reason, "reload the page"))
        with self._rendering:
            now = self._now()
            rows = self._fleet.rows(visible, now)
            return html_page(fleet_page(rows, notes, asked, reader.user.name, now))

    def _query_page(self, reader: Reader, namespace: str, name: str, root: str, *, live: bool) -> Page:
        view = self._seen(reader, namespace, name)
        if view is None:
            return _problem(HTTPStatus.NOT_FOUND, "Not found", _NO_QUERY, "look for it in the fleet", root)
        has_driver = self._drivers is not None and view.status.driver is not None
        user, now = reader.user.name, self._now()
        if not live:
            with self._rendering:
                return html_page(query_page(view, self._health(), user, now, f"{view.name}/live" if has_driver else ""))
        if not has_driver:
            return _problem(HTTPStatus.NOT_FOUND, "No driver", "the query has no driver now", "look later", root)
        return html_page(driver_frame_page(namespace, name, user, now, "driver"))._replace(headers=PAGE_HEADERS)

    def _driver_page(self, reader: Reader, namespace: str, name: str, root: str) -> Page:
        """Return what the driver shows, or why that cannot be had, for a frame."""
        view = self._seen(reader, namespace, name)
        if view is None or self._drivers is None or view.status.driver is None:
            return _problem(HTTPStatus.NOT_FOUND, "No driver", "the query has no driver now", "look later", root)
        pod = Owner(namespace, name, "").driver_pod  # not the status's, which others may write
        found = self._drivers.get(reader.token, namespace, pod)
        if isinstance(found, Page):
            return found
        remedy = "a driver shows its page once its query is compiled, to those who may get pods/proxy"
        return _problem(HTTPStatus.BAD_GATEWAY, "No page of the driver", found, remedy, root)

    def _seen(self, reader: Reader, namespace: str, name: str) -> QueryView | None:
        """Return a query; None if there is no such query, or the reader may not see it."""
        return self._fleet.query(namespace, name) if self._access.may_see(reader.user, namespace, name) else None


class TooManyLoginsError(Exception):
    """Too many tokens of an address were refused."""


def _asked(parameters: str) -> FleetRequest:
    given: Mapping[str, list[str]] = {}
    with suppress(ValueError):
        given = parse_qs(parameters, max_num_fields=8)
    page = given.get("page", ["1"])[0]
    return FleetRequest(given.get("find", [""])[0][:200].strip(), int(page) if re.fullmatch(r"\d{1,6}", page) else 1)


def _number(headers: Message) -> str | None:
    """Return the number of the session that a request has in its cookie; None if it has two that differ.

    Another program on the host may set a cookie of this name, so that a reader would act in the session of another. Its
    other cookies may be malformed, and are not parsed.
    """
    found = {each.strip() for each in _COOKIES.findall("; ".join(headers.get_all("Cookie", ())))}
    number = found.pop() if len(found) == 1 else ""
    return number if _NUMBER.fullmatch(number) else None


def _cookie(number: str, headers: Message, more: str = "") -> dict[str, str]:
    """Return the header that sets the cookie, for the folder of this page alone."""
    by_tls = headers.get("X-Forwarded-Proto", "").startswith("https") or headers.get("Origin", "").startswith(
        "https://"
    )
    secure = "; Secure" if by_tls else ""
    return {"Set-Cookie": f"{COOKIE}={number}; HttpOnly; SameSite=Strict{secure}{more}"}


def _is_own_form(headers: Message) -> bool:
    """Return whether a form is of this page, as the browser says: by where the request is from, or by its origin."""
    if (site := headers.get("Sec-Fetch-Site")) is not None:
        return site in ("same-origin", "none")
    origin = headers.get("Origin")
    return origin is None or urlsplit(origin).netloc == headers.get("Host")


def _redirect(to: str, headers: Mapping[str, str] | None = None) -> Page:
    return Page(HTTPStatus.SEE_OTHER, "text/plain; charset=utf-8", b"", {**HEADERS, "Location": to, **(headers or {})})


def _status(status: HTTPStatus, page: Page) -> Page:
    return page._replace(status=status)


def _problem(status: HTTPStatus, title: str, reason: str, remedy: str, root: str) -> Page:
    return _status(status, html_page(problem_page(title, reason, remedy, root)))


def _too_many(problem: str) -> Page:
    return _status(HTTPStatus.TOO_MANY_REQUESTS, html_page(login_page(problem)))


def _busy(root: str) -> Page:
    return _problem(HTTPStatus.TOO_MANY_REQUESTS, "Too many requests", "you ask too often", "reload in a minute", root)


class FleetServer(BoundedServer):
    """HTTP server of the page, which listens on creation and answers from ``start`` to ``close``.

    Args:
        pages: answers to requests.
        host: address of this machine to listen on, or ``ALL_ADDRESSES``.
        port: port to listen on; 0 takes a free one.

    Raises:
        MillraceError: the server cannot listen on the address.
    """

    header_seconds = 2.0

    def __init__(self, pages: FleetPages, host: str, port: int) -> None:
        self.pages = pages
        super().__init__(host, port, _FleetHandler, "the page of the fleet")


class _FleetHandler(BaseHTTPRequestHandler):
    """Handler of one request."""

    server: FleetServer
    server_version, sys_version = "Millrace", ""

    def parse_request(self) -> bool:
        """Read the headers, for which a client has less time than for the rest."""
        is_read = super().parse_request()
        self.server.headers_received(self.connection)
        return is_read

    def do_GET(self) -> None:
        """Answer a GET request."""
        self._answer(lambda path, parameters: self.server.pages.get(path, parameters, self.headers, self._address))

    def do_POST(self) -> None:
        """Answer a POST request, whose body must be short."""
        length = self.headers.get("Content-Length", "")
        if not re.fullmatch(r"\d{1,9}", length) or int(length) > MOST_BODY:
            self.send_error(HTTPStatus.REQUEST_ENTITY_TOO_LARGE)
            return
        form = self.rfile.read(int(length)).decode("ascii", "replace")
        self._answer(lambda path, _: self.server.pages.post(path, form, self.headers, self._address))

    @property
    def _address(self) -> str:
        return str(self.client_address[0])

    def _answer(self, ask: Callable[[str, str], Page]) -> None:
        path = parameters = ""
        with suppress(ValueError):  # not a URL
            path, parameters = urlsplit(self.path)[2:4]
        try:
            page = ask(path, parameters)
        except Exception as error:  # the log has the type alone: a message may quote what was asked
            _log.error("the page of the fleet cannot be rendered: %s", type(error).__name__)
            self.send_error(HTTPStatus.INTERNAL_SERVER_ERROR)
            return
        self.send_response(page.status)
        for name, value in page.headers.items():
            self.send_header(name, value)
        self.send_header("Content-Type", page.content_type)
        self.send_header("Content-Length", str(len(page.body)))
        self.end_headers()
        with suppress(socket.timeout, OSError):  # the client has gone
            self.wfile.write(page.body)

    def log_message(self, *_: Any) -> None:
        """Log no requests."""
