"""A parser by which Snakemake's report takes a part of the page: `.. include:: index.html` with `:parser: ckptbench.report.study_page.fragment`."""

from __future__ import annotations

import re

from docutils import nodes, parsers

LINK = re.compile(r"\s*<a [^>]*>.*?</a>")
"""To a file beside the page, which the report does not have."""


class Parser(parsers.Parser):  # type: ignore[misc]  # docutils has no types
    """Takes the HTML as it is, without its links."""

    def parse(self, inputstring: str, document: nodes.document) -> None:
        self.setup_parse(inputstring, document)
        document += nodes.raw("", LINK.sub("", inputstring), format="html")
        self.finish_parse()
