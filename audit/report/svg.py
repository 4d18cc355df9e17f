"""A chart becomes SVG inside a page: no network, no script, colours that follow the page.

vl-convert renders Vega-Lite without a browser. What it returns is parsed and rebuilt from a list of
allowed elements, since names from strangers are in it; ids are made unique, since several charts
share a page; and the few colours of text and lines become classes that the page styles.
"""

from __future__ import annotations

import re
from xml.etree import ElementTree

from audit.errors import MissingExtraError
from audit.report.charts.base import Drawing

_NAMESPACE = "{http://www.w3.org/2000/svg}"
_ALLOWED = {
    "svg", "g", "path", "rect", "line", "text", "tspan", "circle", "clipPath", "defs", "title",
}  # fmt: skip
_ATTRIBUTES = re.compile(
    r"width|height|viewBox|class|d|x|y|x1|x2|y1|y2|cx|cy|r|rx|dx|dy|transform|opacity|id|clip-path|"
    r"(fill|stroke)(-[a-z]+)?|font-[a-z]+|text-anchor|role|aria-[a-z]+"
)
INK, LINE = "#010203", "#040506"
"""Stand for the page's colours of text and of lines; see `_CONFIG`."""
_CONFIG = {
    "background": "transparent",
    "font": "Helvetica, Arial, sans-serif",
    "view": {"stroke": None},
    "axis": {
        "labelColor": INK, "titleColor": INK, "gridColor": LINE, "domainColor": LINE,
        "tickColor": LINE, "labelFontSize": 11, "titleFontSize": 11, "titleFontWeight": "normal",
        "titlePadding": 10,
    },
    "legend": {
        "labelColor": INK, "titleColor": INK, "labelFontSize": 11, "orient": "top",
        "symbolSize": 60, "offset": 6, "columnPadding": 18,
        "symbolBaseFillColor": INK, "symbolBaseStrokeColor": INK,
        "layout": {"top": {"anchor": "start", "margin": 22}},
    },
    "header": {"labelColor": INK, "titleColor": INK},
}  # fmt: skip


def svg_of(drawing: Drawing, prefix: str) -> str:
    """The chart of a drawing as an inline SVG element, without its title, which the page sets.

    Args:
        prefix: of all ids in it, unique on the page.

    Raises:
        MissingExtraError: vl-convert is not installed.
        ValueError: the drawing has no chart, or the SVG holds what it should not.
    """
    if drawing.chart is None:
        raise ValueError(f"{drawing.name} has no chart: {drawing.reason}")
    try:
        import vl_convert
    except ImportError as error:
        raise MissingExtraError(
            "charts need vl-convert", hint="pip install 'head-audit[html]'"
        ) from error
    spec = drawing.chart.to_dict()
    spec.pop("title", None)
    text = vl_convert.vegalite_to_svg(spec, config=_CONFIG, allowed_base_urls=[])
    root = ElementTree.fromstring(text)
    _check(root)
    _embed(root, drawing, prefix)
    return ElementTree.tostring(root, encoding="unicode").replace("ns0:", "").replace(":ns0", "")


def _check(root: ElementTree.Element) -> None:
    for element in root.iter():
        name = element.tag.removeprefix(_NAMESPACE)
        if name not in _ALLOWED:
            raise ValueError(f"the chart holds a {name} element")
        for attribute in [key for key in element.attrib if not _ATTRIBUTES.fullmatch(key)]:
            del element.attrib[attribute]


def _embed(root: ElementTree.Element, drawing: Drawing, prefix: str) -> None:
    """One image with a text alternative for all, ids of its own, and the page's colours."""
    for element in root.iter():
        for key, value in list(element.attrib.items()):
            if key == "id":
                element.set(key, f"{prefix}-{value}")
            elif value.startswith("url(#"):
                element.set(key, f"url(#{prefix}-{value[5:]}")
            elif key.startswith("aria-") or key == "role":
                del element.attrib[key]
    root.set("role", "img")
    root.set("aria-label", drawing.alternative)
