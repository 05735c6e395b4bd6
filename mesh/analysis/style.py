"""The report's style sheet: variables for light and for dark, from which plots take their colours."""

from __future__ import annotations

from typing import Final

STYLE: Final = """
:root{--bg:#f7f7f4;--surface:#fff;--ink:#1b1b19;--muted:#6c6b66;--line:#e5e4de;--rail:#c9c8c1;--up:#2a7f9e;
--up-soft:#cfe6ee;
--one:#2a6fdb;--two:#17926b;--three:#c77700;--bad:#c8352f;--good:#17855f;--warn:#b26a00;--heat:42,127,158;
--band:rgba(200,53,47,.13)}
@media (prefers-color-scheme:dark){:root{--bg:#161715;--surface:#1f201d;--ink:#ecebe5;--muted:#a09f97;
--line:#30312d;--rail:#4a4b45;
--up:#58b4d4;--up-soft:#1f3e49;--one:#6ea3f7;--two:#4cc39a;--three:#eda23a;--bad:#f2716b;--good:#4cc39a;
--warn:#eda23a;
--heat:88,180,212;--band:rgba(242,113,107,.2)}}
*{box-sizing:border-box}
body{margin:0;background:var(--bg);color:var(--ink);
font:15px/1.5 system-ui,-apple-system,"Segoe UI",Roboto,"Liberation Sans",sans-serif}
main{max-width:1080px;margin:0 auto;padding:36px 20px 80px}
h1{font-size:34px;line-height:1.15;letter-spacing:-.02em;margin:2px 0 8px}
h2{font-size:19px;letter-spacing:-.01em;margin:0 0 14px}
p{margin:6px 0}.over{color:var(--up);font-weight:600;margin:0}.lead{font-size:18px}
.muted{color:var(--muted)}
code{font:13px ui-monospace,"DejaVu Sans Mono",monospace}
section{background:var(--surface);border:1px solid var(--line);border-radius:12px;padding:20px 22px;
margin:18px 0}
.tiles{display:grid;grid-template-columns:repeat(auto-fit,minmax(88px,1fr));gap:4px 18px}
.tile b{display:block;font-size:24px;line-height:1.2;font-variant-numeric:tabular-nums;
letter-spacing:-.02em}
.tile span{color:var(--muted);font-size:13px}
.tile.bad b,.bad{color:var(--bad)}.tile.good b{color:var(--good)}.tile.warn b{color:var(--warn)}
figure{margin:0 0 20px}figure:last-child{margin-bottom:0}figcaption{margin-bottom:8px}
figcaption .muted{font-size:13.5px;margin-left:6px}
svg{display:block;width:100%;height:auto;overflow:visible}
.wide{overflow-x:auto}.wide figure{min-width:640px}
.pair{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,400px),1fr));gap:24px}
.pair figure{margin:0}
svg text{font-family:inherit;fill:var(--ink)}
svg .tick{font-size:11.5px;fill:var(--muted)}svg .label{font-size:13px}svg .cell{font-size:11.5px}
svg .cell.on{fill:var(--surface)}
.grid{stroke:var(--line);stroke-width:1}.rail{stroke:var(--rail);stroke-width:1}
rect.up{fill:var(--up)}rect.down{fill:var(--bad);opacity:.38}rect.band{fill:var(--band)}
rect.whole{fill:var(--up-soft)}rect.split{fill:var(--bad)}rect.blank{fill:var(--line);opacity:.6}
rect.heat{fill:rgba(var(--heat),calc(.08 + .92*var(--s)))}
polyline{fill:none;stroke-width:2;stroke-linejoin:round;stroke-linecap:round}
polyline.one{stroke:var(--one)}polyline.two{stroke:var(--two)}polyline.three{stroke:var(--three)}
.dot.one{fill:var(--one)}.dot.two{fill:var(--two)}.dot.three{fill:var(--three)}
.mark{stroke-width:2.6;stroke:var(--ink);fill:none;stroke-linecap:round;paint-order:stroke}
.mark.failure{stroke:var(--bad)}.mark.rejoin{stroke:var(--surface);stroke-width:1.5;fill:var(--good)}
.mark.join{stroke:none;fill:var(--surface)}.mark.leave{stroke:var(--ink)}
.whisker{stroke:var(--one);stroke-width:1.6}.chord{stroke:var(--rail)}.node{fill:var(--up)}
.cut{stroke:var(--bad);stroke-width:2;stroke-dasharray:5 5}
.meter{width:120px}.meter.wide{width:160px}.sides{margin-top:6px}
.key{white-space:nowrap;margin-right:6px}
.key::before{content:"";display:inline-block;width:9px;height:9px;border-radius:3px;margin-right:6px;
background:var(--muted)}
.key.failure::before{background:var(--bad)}.key.rejoin::before{background:var(--good)}
.key.join::before{background:var(--up)}
.key.leave::before{background:var(--ink)}.key.one::before{background:var(--one)}
.key.two::before{background:var(--two)}
.key.three::before{background:var(--three)}
.scroll{overflow-x:auto}
table{border-collapse:collapse;width:100%;font-size:14px}
th{text-align:left;font-weight:600;color:var(--muted);font-size:12.5px;white-space:nowrap}
th,td{padding:6px 14px 6px 0;border-bottom:1px solid var(--line);vertical-align:middle}
tr:last-child td{border-bottom:0}
.num{text-align:right;font-variant-numeric:tabular-nums;white-space:nowrap}
dl{display:grid;grid-template-columns:max-content 1fr;gap:6px 18px;margin:0}dt{font-weight:600}dd{margin:0;
color:var(--muted)}
@media print{body{background:#fff}section{break-inside:avoid}}
"""
