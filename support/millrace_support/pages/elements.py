"""Elements of HTML and SVG as a tree: its serializer escapes every text and attribute, so no caller has to.

Names, errors and keys come from users of a cluster. Texts of ``script`` and ``style`` are not escaped, so no text of
theirs is in one: the live page has neither, since they are files of their own, and a report has only that style.
"""

from __future__ import annotations

from collections.abc import Iterable
from xml.etree.ElementTree import Element, tostring

from millrace_support.terminal_texts import printable

Child = Element | str | None
"""A child of an element; None is left out."""

Attribute = str | float | bool
"""A value of an attribute; True writes the attribute without a value, and False leaves it out."""


def element(tag: str, *children: Child | Iterable[Child], **attributes: Attribute) -> Element:
    """Return an element with children.

    Args:
        tag: the element's name.
        children: elements and texts, or iterables of them.
        attributes: attributes by name; ``_`` stands for ``-``, except at the end, as in ``class_``.
    """
    made = Element(tag)
    for name, value in attributes.items():
        if value is not False:
            text = "" if value is True else f"{value:g}" if isinstance(value, float) else str(value)
            made.set(name.rstrip("_").replace("_", "-"), printable(text))
    for child in children:
        for each in [child] if child is None or isinstance(child, str | Element) else child:
            _append(made, each)
    return made


def _append(parent: Element, child: Child) -> None:
    if child is None:
        return
    if isinstance(child, Element):
        parent.append(child)
    elif len(parent):
        parent[-1].tail = (parent[-1].tail or "") + printable(child)
    else:
        parent.text = (parent.text or "") + printable(child)


def document(root: Element) -> bytes:
    """Return a whole HTML document as UTF-8."""
    text = tostring(root, encoding="unicode", method="html")
    return f"<!doctype html>\n{text}\n".encode(errors="backslashreplace")
