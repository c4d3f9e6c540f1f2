"""The page as one file: every style, script and number that `page.html` names is put into it."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from importlib import resources

import pandas as pd
import vl_convert

from ckptbench.decide.choices import Choices
from ckptbench.decide.rates import FailureRate
from ckptbench.page.payload import payload

STYLE = re.compile(r'<link rel="stylesheet" href="([\w.]+)">')
SCRIPT = re.compile(r'<script((?: type="application/json" id="[\w-]+")?) src="([\w.]+)"></script>')
VEGA = "/* {license} */\n(function () {{\n{bundle}\n}})();"
BUNDLED = "globalThis.vegaEmbed = vegaEmbed;"


def page(costs: pd.DataFrame, rates: Sequence[FailureRate], choices: Choices) -> str:
    """The text of the file, from the table `decision_costs`. Raises ConfigError where the chosen rate is none of `rates`."""
    made = {
        "study.json": _json(payload(costs, rates, choices)),
        "chart.json": _json(json.loads(_own("chart.json"))),
        "vega.js": VEGA.format(
            license=_own("vega-license.txt"), bundle=vl_convert.javascript_bundle(BUNDLED)
        ),
    }

    def content(name: str) -> str:
        return made[name] if name in made else _own(name)

    def script(match: re.Match[str]) -> str:
        # In HTML a script ends at the first of these, wherever that stands.
        text = content(match[2]).replace("</script", "<\\/script")
        return f"<script{match[1]}>\n{text}\n</script>"

    with_style = STYLE.sub(lambda match: f"<style>\n{content(match[1])}</style>", _own("page.html"))
    return SCRIPT.sub(script, with_style)


def _json(value: object) -> str:
    return json.dumps(value, allow_nan=False, separators=(",", ":")).replace("<", "\\u003c")


def _own(name: str) -> str:
    return (resources.files("ckptbench.page") / name).read_text(encoding="utf-8")
