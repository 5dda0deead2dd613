"""The style sheet of the report: light or dark as the reader's system is, and for print."""

STYLE = """\
:root {
  color-scheme: light dark;
  --page: #f6f7f9; --card: #ffffff; --line: #e3e6eb; --text: #1c2430; --soft: #5b6675; --track: #eceff3;
  --published: #2563eb; --delivered: #0f8a6c; --dropped: #d1495b; --expired: #b7791f; --queued: #7c6bc4;
  --good: #0b7a3e; --good-back: #e4f5ea; --bad: #b3261e; --bad-back: #fdeceb; --care: #8a5a00; --care-back: #fdf3dc;
}
@media (prefers-color-scheme: dark) {
  :root {
    --page: #11151b; --card: #1a2029; --line: #2c3542; --text: #e6eaf0; --soft: #9aa6b5; --track: #28313d;
    --published: #6ea8fe; --delivered: #3ecfa5; --dropped: #ff8593; --expired: #e8b45a; --queued: #ab9cf0;
    --good: #63d896; --good-back: #14301f; --bad: #ff9a92; --bad-back: #3a1a1a; --care: #f0c36a; --care-back: #33270f;
  }
}
* { box-sizing: border-box; }
body { margin: 0; background: var(--page); color: var(--text);
  font: 15px/1.5 system-ui, -apple-system, "Segoe UI", Roboto, "DejaVu Sans", sans-serif; }
main { max-width: 1020px; margin: 0 auto; padding: 28px 20px 60px; }
header { margin-bottom: 20px; }
h1 { font-size: 26px; margin: 0; letter-spacing: -0.01em; }
h2 { font-size: 17px; margin: 0 0 2px; }
p { margin: 0; }
.soft { color: var(--soft); }
.verdict { border-radius: 12px; padding: 16px 20px; margin-bottom: 16px; border: 1px solid; }
.verdict strong { font-size: 21px; display: block; }
.verdict.good { color: var(--good); background: var(--good-back); border-color: var(--good); }
.verdict.bad { color: var(--bad); background: var(--bad-back); border-color: var(--bad); }
.verdict.care { color: var(--care); background: var(--care-back); border-color: var(--care); }
.tiles { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 150px), 1fr)); gap: 12px;
  margin: 0 0 16px; }
.tile { background: var(--card); border: 1px solid var(--line); border-radius: 12px; padding: 12px 14px; }
.tile dt { color: var(--soft); font-size: 13px; }
.tile dd { margin: 0; font-size: 20px; font-weight: 650; font-variant-numeric: tabular-nums; overflow-wrap: anywhere; }
section { background: var(--card); border: 1px solid var(--line); border-radius: 12px; padding: 18px 20px;
  margin-bottom: 16px; }
section > p.soft { margin-bottom: 12px; font-size: 14px; }
section h3 { font-size: 14px; margin: 16px 0 4px; }
svg { display: block; width: 100%; height: auto; overflow: visible; font-size: 13px; }
svg text { fill: var(--text); } svg .axis { fill: var(--soft); font-size: 12px; }
svg .strong { font-weight: 650; } svg .figure { font-variant-numeric: tabular-nums; }
svg .marked { fill: var(--soft); font-size: 11px; }
svg .grid { stroke: var(--line); } svg .base { stroke: var(--soft); } svg .track { fill: var(--track); }
svg .mark { stroke: var(--text); stroke-dasharray: 2 3; }
.curve { fill: none; stroke-width: 1.8; stroke-linejoin: round; } .area { opacity: 0.16; }
.curve.published { stroke: var(--published); } .curve.delivered { stroke: var(--delivered); }
.curve.dropped { stroke: var(--dropped); } .curve.expired { stroke: var(--expired); }
.area.delivered, .bar.delivered { fill: var(--delivered); } .bar.published { fill: var(--published); }
.bar.dropped { fill: var(--dropped); } .bar.expired { fill: var(--expired); } .bar.queued { fill: var(--queued); }
.bar.open { fill: var(--soft); }
.legend { display: flex; flex-wrap: wrap; gap: 4px 18px; margin: 8px 0 0; padding: 0;
  list-style: none; font-size: 13px; }
.legend i { display: inline-block; width: 11px; height: 11px; border-radius: 3px; margin-right: 6px;
  vertical-align: -1px; }
.legend .published { background: var(--published); } .legend .delivered { background: var(--delivered); }
.legend .dropped { background: var(--dropped); } .legend .expired { background: var(--expired); }
.legend .queued { background: var(--queued); } .legend .open { background: var(--soft); }
.scroll { overflow-x: auto; margin-top: 8px; }
table { border-collapse: collapse; width: 100%; font-size: 13.5px; font-variant-numeric: tabular-nums; }
caption { text-align: left; color: var(--soft); padding-bottom: 4px; }
th { text-align: left; font-weight: 600; color: var(--soft); white-space: nowrap; }
th, td { padding: 5px 14px 5px 0; border-bottom: 1px solid var(--line); vertical-align: top; }
th.number, td.number { text-align: right; }
td.text { overflow-wrap: anywhere; min-width: 6em; }
td.bad { color: var(--bad); font-weight: 650; } td.good { color: var(--good); } td.care { color: var(--care); }
tr:last-child td { border-bottom: 0; }
details summary { cursor: pointer; font-weight: 650; font-size: 17px; }
footer { color: var(--soft); font-size: 13px; }
@media print { body { background: #fff; } section, .tile { break-inside: avoid; } }
"""
