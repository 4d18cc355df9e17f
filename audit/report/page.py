"""One self-contained HTML page from a template: no script, no network, everything escaped.

The page's policy forbids scripts and any source but its own style, which it names by its hash.
"""

from __future__ import annotations

import base64
import hashlib
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

if TYPE_CHECKING:
    from audit.report.charts import Drawing

CHARTS_MISSING = (
    "Charts are left out, since altair and vl-convert are not installed: "
    "pip install 'head-audit[html]' brings them. All numbers are in the tables."
)


@dataclass(frozen=True, slots=True)
class Figure:
    """A chart as a page shows it, or the reason why there is none."""

    id: str
    title: str
    notes: tuple[str, ...]
    alternative: str
    reason: str
    svg: Markup | None


def figure_of(drawing: Drawing, number: int = 0) -> Figure:
    """A drawing as SVG; `number` tells equal charts of one page apart."""
    from audit.report.svg import svg_of

    name = f"{drawing.name}-{number}" if number else drawing.name
    svg = Markup(svg_of(drawing, name)) if drawing.chart is not None else None
    return Figure(
        name, drawing.title, drawing.notes, drawing.alternative, drawing.reason, svg
    )  # fmt: skip


def charts_installed() -> bool:
    """Whether charts can be drawn and rendered."""
    try:
        import altair  # noqa: F401
        import vl_convert  # noqa: F401
    except ImportError:
        return False
    return True


def render_page(template: str, title: str, **content: Any) -> str:
    """The finished page."""
    style = (files("audit.report") / "templates" / "page.css").read_text(encoding="utf-8")
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    text = _environment().get_template(template)
    page = text.render(title=title, style=Markup(style), style_hash=f"sha256-{digest}", **content)
    return page + "\n"


@cache
def _environment() -> Environment:
    return Environment(
        loader=PackageLoader("audit.report"), autoescape=True, undefined=StrictUndefined,
        trim_blocks=True, lstrip_blocks=True,
    )  # fmt: skip
