"""Pages of HTML as tests read them, by the standard library's parser."""

from html.parser import HTMLParser

HOSTILE = "</p><script>alert('x')</script><img src=x onerror=\"alert(1)\">&amp;\x00\x1b[31m\u202e"
"""A text that breaks a page where it is not escaped."""


class ParsedPage(HTMLParser):
    """The elements of a page with their attributes, and its texts by the section that they are in."""

    def __init__(self, page):
        super().__init__()
        self.elements = []
        self.texts = {"": ""}
        self._section = ""
        self.feed(page)

    def handle_starttag(self, tag, attributes):
        self.elements.append((tag, dict(attributes)))
        if tag == "section":
            self._section = dict(attributes)["id"]
            self.texts[self._section] = ""

    def handle_endtag(self, tag):
        if tag == "section":
            self._section = ""

    def handle_data(self, text):
        self.texts[self._section] += text

    def tags(self):
        return {tag for tag, _ in self.elements}

    def all(self, wanted):
        return [attributes for tag, attributes in self.elements if tag == wanted]
