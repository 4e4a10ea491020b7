"""Pages and their files as the HTTP server answers with them."""

from __future__ import annotations

from functools import cache
from http import HTTPStatus
from importlib.resources import files

from millrace_support.http_server import Page

POLICY = (
    "default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self'; img-src data:; form-action 'self'; "
    "base-uri 'none'; frame-ancestors 'none'"
)
"""Content-Security-Policy: nothing from elsewhere, and neither scripts nor styles within the page."""

HEADERS = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "same-origin",
    "X-DNS-Prefetch-Control": "off",
    "Cache-Control": "no-store",
}
"""Headers of all pages and their files.

No referrer leaves the site. With ``no-referrer``, the forms of a page would have the origin ``null``, as those of a
sandbox have.
"""

_KINDS = {"page.css": "text/css", "page.js": "text/javascript"}


def html_page(body: bytes) -> Page:
    """Return the answer that is a page."""
    return Page(HTTPStatus.OK, "text/html; charset=utf-8", body, HEADERS)


@cache
def asset(name: str) -> Page:
    """Return the answer that is a file of the pages: ``page.css`` or ``page.js``."""
    body = files("millrace_support.pages").joinpath("assets", name).read_bytes()
    return Page(HTTPStatus.OK, f"{_KINDS[name]}; charset=utf-8", body, HEADERS)
