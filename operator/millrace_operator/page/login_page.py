"""The form by which a reader logs in with a token of the cluster."""

from __future__ import annotations

from xml.etree.ElementTree import Element

from millrace_support.pages.elements import element
from millrace_support.pages.verdict import PageFinding, Severity, page_document

MOST_TOKEN = 12 << 10
"""Maximum length of a token, in characters."""


def login_page(problem: str = "", root: str = "") -> bytes:
    """Return the form as an HTML document in UTF-8, with the reason why a login failed, if one did."""
    main = element("main", _form(problem, root), id="main")
    body = (element("header", element("h1", "Millrace: the fleet")), main)
    finding = PageFinding(Severity.NOTE, "log in", "")
    return page_document(finding, "fleet", body, lost="", root=root, seconds=0)


def problem_page(title: str, reason: str, remedy: str, root: str = "") -> bytes:
    """Return a page that says why there is no other one, as an HTML document in UTF-8."""
    again = element("p", element("a", "Back to the fleet", href=root or "./", id="to-fleet"))
    text = element("section", element("h2", title), element("p", f"{reason}: {remedy}."), again, id="problem")
    body = (element("header", element("h1", "Millrace: the fleet")), element("main", text, id="main"))
    return page_document(
        PageFinding(Severity.WARNING, title, reason, remedy), "fleet", body, lost="", root=root, seconds=0
    )


def _form(problem: str, root: str) -> Element:
    form = element(
        "form",
        element("label", "Token", for_="token"),
        element(
            "input",
            id="token",
            name="token",
            type="password",
            required=True,
            autofocus=True,
            autocomplete="off",
            spellcheck="false",
            maxlength=MOST_TOKEN,
        ),
        element("button", "Log in"),
        method="post",
        action=f"{root}login",
    )
    command = element("code", "kubectl create token ACCOUNT -n NAMESPACE")
    return element(
        "section",
        element("h2", "Log in with a token of the cluster"),
        element("p", problem, class_="problem", role="alert") if problem else None,
        form,
        element(
            "p", "You see the queries that the token's account may list, as ", element("code", "kubectl get"), " does."
        ),
        element(
            "p", command, " prints a token of a service account. A session ends after eight hours, or with its token."
        ),
        id="login-form",
    )
