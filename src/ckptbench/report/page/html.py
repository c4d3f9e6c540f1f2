"""The page as one file: every style, script and number that `page.html` names is put into it."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from functools import cache
from importlib import resources

import pandas as pd
import vl_convert

from ckptbench.config.decision import DecisionSection
from ckptbench.decide.rates import FailureRate
from ckptbench.report.page.start import Log, payload
from ckptbench.report.page.translate import javascript

STYLE = re.compile(r'<link rel="stylesheet" href="([\w.]+)">')
SCRIPT = re.compile(r'<script((?: type="application/json" id="[\w-]+")?) src="([\w.]+)"></script>')
VEGA = "/* {license} */\n(function () {{\n{bundle}\n}})();"
BUNDLED = f"""import {{ View, parse, expressionFunction }} from "/npm/vega@{vl_convert.get_vega_version()}/+esm";
globalThis.vega = {{ View, parse, expressionFunction }};"""
"""Vega-Lite, a third of the usual bundle, is left out: the chart is compiled here."""


def page(
    costs: pd.DataFrame | None,
    rates: Sequence[FailureRate],
    choices: DecisionSection,
    log: Log | None = None,
    also: Sequence[tuple[str, str]] = (),
) -> str:
    """The text of the file. `log` is what the log that the costs are from says besides, and `also` are further fields, by the options of the command. It starts with the first setup of the table `decision_costs`, else with an example. The chosen rate is one of `rates`."""
    made = {
        "start.json": _json(payload(costs, rates, choices, log, also)),
        "chart.json": _chart(),
        "formulas.js": javascript(_text("ckptbench.decide", "formulas.py"), "decide/formulas.py"),
        "vega.js": _vega(),
    }

    def content(name: str) -> str:
        return made[name] if name in made else _own(name)

    def script(match: re.Match[str]) -> str:
        # In HTML a script ends at the first of these, wherever that stands.
        text = content(match[2]).replace("</script", "<\\/script")
        return f"<script{match[1]}>\n{text}\n</script>"

    with_style = STYLE.sub(lambda match: f"<style>\n{content(match[1])}</style>", _own("page.html"))
    return SCRIPT.sub(script, with_style)


@cache
def _chart() -> str:
    return _json(vl_convert.vegalite_to_vega(json.loads(_own("chart.json"))))


@cache
def _vega() -> str:
    """It takes a second, and is the same in all pages."""
    bundle = vl_convert.javascript_bundle(BUNDLED)
    return VEGA.format(license=_own("vega-license.txt"), bundle=bundle)


def _json(value: object) -> str:
    return json.dumps(value, allow_nan=False, separators=(",", ":")).replace("<", "\\u003c")


def _own(name: str) -> str:
    return _text("ckptbench.report.page", name)


def _text(package: str, name: str) -> str:
    return (resources.files(package) / name).read_text(encoding="utf-8")
