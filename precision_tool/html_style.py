"""The style of a report: light, dark and on paper; colours by meaning, never alone (marks are larger and labelled)."""

from __future__ import annotations

POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"
"""Nothing is loaded and nothing runs, whatever name managed to get into the page."""

_LIGHT = """
--page: #ffffff; --text: #1b1f24; --faint: #5b6570; --line: #d5dae0; --band: #f2f4f7;
--bad: #c4261d; --bad-page: #fdecea; --ok: #2563b0; --good: #1a7f37; --unknown: #8a93a0; --limit: #a15c00;
"""

_DARK = """
--page: #14171b; --text: #e6e9ee; --faint: #9aa4b0; --line: #343b44; --band: #1e2329;
--bad: #ff7b72; --bad-page: #3a1d1d; --ok: #79b8ff; --good: #56d364; --unknown: #8b949e; --limit: #e3a04f;
"""

STYLE = f"""
:root {{ color-scheme: light dark; {_LIGHT} }}
@media (prefers-color-scheme: dark) {{ :root {{ {_DARK} }} }}
* {{ box-sizing: border-box; }}
body {{ margin: 0 auto; max-width: 1120px; padding: 24px; background: var(--page); color: var(--text);
  font: 15px/1.5 system-ui, "Segoe UI", Roboto, Helvetica, Arial, sans-serif; }}
h1 {{ font-size: 26px; line-height: 1.3; margin: 8px 0; overflow-wrap: anywhere; }}
h2 {{ font-size: 19px; margin: 34px 0 8px; padding-top: 10px; border-top: 1px solid var(--line); }}
h3 {{ font-size: 16px; margin: 20px 0 4px; }}
p {{ margin: 6px 0; overflow-wrap: anywhere; }}
.kind {{ display: inline-block; padding: 1px 10px; border-radius: 4px; color: var(--page); background: var(--bad);
  font-weight: 600; }}
.kind.clean {{ background: var(--good); }}
.next {{ border-left: 4px solid var(--ok); padding: 6px 14px; background: var(--band); }}
.next ol {{ margin: 4px 0; padding-left: 20px; }}
.cut, .faint, figcaption {{ color: var(--faint); font-size: 13px; }}
dl {{ display: grid; grid-template-columns: max-content 1fr; gap: 3px 18px; margin: 12px 0; }}
dt {{ color: var(--faint); }}
dd, td {{ margin: 0; overflow-wrap: anywhere; unicode-bidi: isolate; }}
.wide {{ overflow-x: auto; }}
table {{ border-collapse: collapse; width: 100%; font-size: 13px; margin: 8px 0; }}
caption {{ text-align: left; font-weight: 600; padding: 4px 0; }}
th, td {{ text-align: left; vertical-align: top; padding: 3px 10px 3px 0; border-bottom: 1px solid var(--line);
  min-width: 4em; }}
.n {{ font-variant-numeric: tabular-nums; white-space: nowrap; }}
tr.bad td {{ background: var(--bad-page); }}
figure {{ margin: 12px 0; overflow-x: auto; }}
svg {{ display: block; width: 100%; min-width: 720px; height: auto; font-size: 11.5px; }}
.graph svg {{ width: auto; max-width: 100%; }}
svg text {{ fill: var(--text); unicode-bidi: isolate; }}
.axis, .grid, .upright, .edge, .order {{ stroke: var(--line); fill: none; }}
.axis {{ stroke: var(--faint); }}
.upright {{ stroke: var(--bad); stroke-dasharray: 2 4; }}
.band {{ fill: var(--band); }}
line.limit {{ stroke: var(--limit); stroke-width: 1.5; stroke-dasharray: 7 4; }}
svg text.limit {{ fill: var(--limit); }}
svg text.mark {{ fill: var(--bad); font-weight: 600; stroke: var(--page); stroke-width: 3px; paint-order: stroke; }}
.ok {{ fill: var(--ok); }}
.bad {{ fill: var(--bad); }}
.unknown {{ fill: var(--unknown); }}
.dots {{ stroke: var(--bad); stroke-width: 7; stroke-linecap: round; }}
.box {{ fill: var(--band); stroke: var(--unknown); }}
.box.ok {{ stroke: var(--ok); }}
.box.bad {{ fill: var(--bad-page); stroke: var(--bad); }}
.box.root {{ stroke-width: 3; }}
.type {{ font-weight: 600; }}
svg text.remark.ok {{ fill: var(--ok); }}
svg text.remark.bad {{ fill: var(--bad); }}
svg text.remark.unknown {{ fill: var(--faint); }}
.edge, .order {{ stroke: var(--faint); }}
.order {{ stroke-dasharray: 4 4; }}
.head {{ fill: var(--faint); }}
.swatch {{ display: inline-block; width: 10px; height: 10px; border-radius: 5px; margin: 0 4px 0 12px; }}
.swatch.ok {{ background: var(--ok); }}
.swatch.bad {{ background: var(--bad); }}
.swatch.unknown {{ background: var(--unknown); }}
@media print {{
  :root {{ {_LIGHT} }}
  body {{ max-width: none; padding: 0; font-size: 11px; }}
  h2, h3, caption {{ break-after: avoid; }}
  figure, tr {{ break-inside: avoid; }}
  .wide, figure {{ overflow: visible; }}
  svg {{ min-width: 0; }}
  * {{ print-color-adjust: exact; }}
}}
"""
