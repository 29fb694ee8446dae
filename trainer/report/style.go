package report

import (
	"fmt"

	"github.com/weir-ml/weir/internal/palette"
)

// style returns the page's style sheet.
func style() string {
	rules := palette.Variables() + palette.TextRules
	for color := range palette.NumColors {
		rules += fmt.Sprintf(".c%d{color:var(--c%[1]d)}", color)
	}
	return rules + shapes
}

// shapes are the rules that do not define colors.
const shapes = `
*{box-sizing:border-box}
body{margin:0;background:var(--back);color:var(--ink);font:15px/1.5 system-ui,-apple-system,"Segoe UI",Roboto,"Helvetica Neue",Arial,sans-serif}
header,main,footer{max-width:1040px;margin:0 auto;padding:0 20px}
header{padding-top:36px}
h1{font-size:26px;line-height:1.2;margin:0;letter-spacing:-.01em}
header p{margin:6px 0 20px;color:var(--soft)}
h2{font-size:16px;margin:0}
figcaption p{margin:3px 0 0;color:var(--soft);font-size:13.5px;max-width:100ch}
figure,.card,details,.fact{background:var(--card);border:1px solid var(--rule);border-radius:10px}
figure,.card,details{margin:0 0 18px;padding:18px 20px}
.facts{display:grid;grid-template-columns:repeat(auto-fit,minmax(185px,1fr));gap:12px;margin:0 0 18px}
@media (min-width:900px){.of5{grid-template-columns:repeat(5,1fr)}.of6,.of11,.of12{grid-template-columns:repeat(6,1fr)}.of5 .fact,.of6 .fact,.of11 .fact,.of12 .fact{padding:12px 13px}.of6 b,.of11 b,.of12 b{font-size:19px}}
.fact{padding:12px 16px;display:flex;flex-direction:column}
.fact span{color:var(--soft);font-size:13px}
.fact b{font-size:22px;font-weight:600;line-height:1.3;font-variant-numeric:tabular-nums}
.fact small{color:var(--soft);font-size:12.5px}
.alert{border:1px solid var(--bad);border-left-width:6px;border-radius:10px;background:var(--card);padding:14px 20px;margin:0 0 18px}
.alert h2{color:var(--bad)}.alert p{margin:4px 0 0;overflow-wrap:anywhere}
.good b{color:var(--good)}.bad b{color:var(--bad)}
.legend{list-style:none;display:flex;flex-wrap:wrap;gap:4px 18px;margin:12px 0 4px;padding:0;font-size:13px;color:var(--soft)}
.legend i{display:inline-block;width:14px;height:10px;margin-right:6px;border-radius:2px;background:currentColor}
.legend i.stroke{height:3px;vertical-align:4px}
.legend i.wash{opacity:.32}
.legend i.dash{height:0;background:none;border-top:2px dashed currentColor;vertical-align:4px}
.legend i.point{width:9px;height:9px;border-radius:50%}
.said{margin:10px 0 0}svg.narrow,.legend li.narrow{display:none}a{color:var(--c0)}
svg{display:block;width:100%;height:auto;overflow:visible;color:var(--ink)}
.grid{stroke:var(--rule);stroke-width:1}.axis{stroke:var(--axis);stroke-width:1}
text{fill:var(--soft);font-size:12.5px}text.bar{font-size:9.5px}
.line{fill:none;stroke:currentColor;stroke-width:2;stroke-linejoin:round}
.dashed{stroke-dasharray:6 4}.area{fill:currentColor;fill-opacity:.86;stroke:var(--card);stroke-width:.6}
.join{fill:none;stroke:currentColor;stroke-width:2}text.end{fill:var(--ink)}
line.note{stroke:var(--bad);stroke-width:1.2}text.note{fill:var(--bad);font-weight:600}
.thin{fill:none;stroke:currentColor;stroke-width:1;stroke-dasharray:3 3;opacity:.7}
.level{stroke:currentColor;stroke-width:1.5;stroke-dasharray:7 5}
.band{fill:currentColor;fill-opacity:.28;stroke:currentColor;stroke-width:.75;stroke-opacity:.6}
.fill{fill:currentColor}
.dot{fill:currentColor;stroke:var(--card);stroke-width:1.5}
.hit{fill:var(--ink);fill-opacity:0}.hit:hover{fill-opacity:.07}
#tip{position:fixed;pointer-events:none;background:var(--ink);color:var(--card);padding:7px 10px;border-radius:6px;font-size:12.5px;line-height:1.45;white-space:pre;z-index:1}
.panels{display:grid;grid-template-columns:repeat(auto-fill,minmax(290px,1fr));gap:14px 18px;margin-top:12px}
.panels h3{font-size:13px;font-weight:600;margin:0}.panels h3 small{color:var(--soft);font-weight:400;margin-left:8px}.panels text{font-size:11px}.panels .bad h3{color:var(--bad)}
.scroll{overflow-x:auto}.wide{min-width:720px;margin-top:12px}
.span{fill:currentColor;stroke:var(--card);stroke-width:.6}.n text{font-size:11px}
table{border-collapse:collapse;font-size:13.5px;font-variant-numeric:tabular-nums;margin-top:10px}
th,td{text-align:left;padding:4px 24px 4px 0;border-bottom:1px solid var(--rule);white-space:nowrap}
td.share{width:30%;min-width:120px;padding-right:0}td.share i{display:block;height:9px;background:var(--c0);border-radius:2px;opacity:.75}
.card>p{margin:3px 0 0;color:var(--soft);font-size:13.5px;max-width:100ch}
th{color:var(--soft);font-weight:500}
summary{cursor:pointer;font-weight:600}
footer{color:var(--soft);font-size:13px;padding-bottom:40px}
@media (max-width:640px){figure{padding:14px 10px}text.bar,text.side,svg.wide{display:none}svg.narrow{display:block}.legend li.narrow{display:block}.facts{grid-template-columns:1fr 1fr}.fact b{font-size:19px;overflow-wrap:anywhere}header,main,footer{padding:0 12px}header{padding-top:16px}figure,.card,details{padding:14px 12px}
.led tr{display:flex;flex-wrap:wrap;gap:2px 14px;padding:5px 0;border-bottom:1px solid var(--rule)}.led th,.led td{border:0;padding:0}.led{width:100%}
.led .lead{order:-1;flex:0 0 100%;white-space:normal;overflow-wrap:anywhere}.led td.share{flex:1;min-width:60px;width:auto;align-self:center}}
`

// script shows the tooltip of the column under the pointer. Without it, the page lacks only
// tooltips.
const script = `
const tip=document.getElementById("tip");
addEventListener("pointermove",e=>{
 const text=e.target.dataset&&e.target.dataset.tip;
 tip.hidden=!text;
 if(!text)return;
 tip.textContent=text;
 const box=tip.getBoundingClientRect();
 tip.style.left=Math.min(e.clientX+14,innerWidth-box.width-8)+"px";
 tip.style.top=Math.max(8,Math.min(e.clientY-box.height-10,innerHeight-box.height-8))+"px";
});
`
