"""What a driver's own page shows, got through the API server with the reader's token, so that their rights count.

A driver's pod runs the code of a tenant. So its page is shown as it is now, without its script, in a sandbox: it can
neither run anything in the reader's session nor send anything elsewhere. It is only shown in a frame of a page of the
operator that says whose it is, since it may look like the form for tokens.
"""

from __future__ import annotations

import re
import ssl
import time
from http import HTTPStatus
from urllib.parse import quote

from kubernetes.client import Configuration
from urllib3 import PoolManager, Timeout
from urllib3.exceptions import HTTPError

from millrace_support.http_server import Page
from millrace_support.pages.serving import HEADERS, POLICY

from ..resources.names import METRICS_PORT

MOST_BYTES = 1 << 20
"""Maximum size of a driver's page; a larger one is not shown."""

SECONDS = 5.0
"""Total time in seconds within which a driver's page has to arrive."""

_LABEL = r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?"
_NAMESPACE, _POD = re.compile(_LABEL), re.compile(rf"{_LABEL}(\.{_LABEL})*")
"""Names of namespaces are DNS labels, and those of pods DNS subdomains (RFC 1123)."""

FRAME_HEADERS = {
    **HEADERS,
    "Referrer-Policy": "no-referrer",
    "Content-Security-Policy": "sandbox; default-src 'none'; style-src 'self'; img-src data:; form-action 'none'; "
    "base-uri 'none'; frame-ancestors 'self'",
}
"""Headers of a driver's page, and of why there is none, which only a page of the operator has in a frame."""

PAGE_HEADERS = {**HEADERS, "Content-Security-Policy": f"{POLICY}; frame-src 'self'"}
"""Headers of the page with the frame; what is in the frame cannot lead it to another site."""


class DriverPages:
    """The pages of drivers, through the API server of a configuration, of which no credentials are used."""

    def __init__(self, configuration: Configuration) -> None:
        self._server = str(configuration.host).rstrip("/")
        context = ssl.create_default_context(cafile=configuration.ssl_ca_cert)
        if not configuration.verify_ssl:
            context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        self._pool = PoolManager(num_pools=1, maxsize=8, ssl_context=context)

    def get(self, token: str, namespace: str, pod: str) -> Page | str:
        """Return the page of a driver, or why it cannot be had; names that are not of DNS are refused."""
        if not _NAMESPACE.fullmatch(namespace) or not _POD.fullmatch(pod):
            return "the query has a name that no driver's pod can have"
        # quoted although nothing in such a name needs it: another path would get the reader's token
        path = f"/api/v1/namespaces/{quote(namespace, safe='')}/pods/{quote(pod, safe='')}:{METRICS_PORT}/proxy/"
        headers = {"Authorization": f"Bearer {token}", "Accept": "text/html"}
        until = time.monotonic() + SECONDS
        try:
            answer = self._pool.request(
                "GET",
                f"{self._server}{path}",
                headers=headers,
                timeout=Timeout(connect=2.0, read=SECONDS),
                retries=False,
                redirect=False,
                preload_content=False,
                decode_content=False,
            )
            try:
                if answer.status == HTTPStatus.FORBIDDEN:
                    return f"you may not get pods/proxy in namespace {namespace}"
                if answer.status != HTTPStatus.OK or not answer.headers.get("Content-Type", "").startswith("text/html"):
                    return f"the driver's pod {pod} does not answer with a page (status {answer.status})"
                body = b""
                while piece := answer.read1(1 << 16):
                    body += piece
                    if len(body) > MOST_BYTES:
                        return f"the page of {pod} has more than {MOST_BYTES >> 20} MiB"
                    if time.monotonic() > until:
                        return f"the page of {pod} does not arrive within {SECONDS:.0f} s"
            finally:
                answer.close()
        except (HTTPError, OSError) as error:
            return f"the driver's pod {pod} cannot be reached ({type(error).__name__})"
        return Page(HTTPStatus.OK, "text/html; charset=utf-8", body, FRAME_HEADERS)
