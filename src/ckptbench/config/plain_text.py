"""A parser by which reStructuredText includes a text that is no markup: `.. include:: x.txt` with `:parser: ckptbench.config.plain_text`."""

from __future__ import annotations

from docutils import nodes, parsers


class Parser(parsers.Parser):  # type: ignore[misc]  # docutils has no types
    """Makes a paragraph of each block of lines, whatever is written in them."""

    def parse(self, inputstring: str, document: nodes.document) -> None:
        self.setup_parse(inputstring, document)
        for block in inputstring.split("\n\n"):
            if block.strip():
                document += nodes.paragraph("", block.strip())
        self.finish_parse()
