package report

import (
	"fmt"
	"html/template"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
)

// Page is a report. Strings are plain text, which the page escapes.
type Page struct {
	Title    string
	Subtitle string
	Alert    Alert // shown above everything else
	Facts    []Fact
	Figures  []Figure
	Timeline *Timeline // may be nil
	Panels   []Panels
	Tables   []Table
	Footer   string
	// Files are links, relative to the page, to the files that contain its numbers.
	Files []string
}

// Alert is the page's most important message, such as why a run failed. If Title is empty, the
// page shows no alert.
type Alert struct{ Title, Text string }

// Fact is one number at the top of the page, with its meaning. Good and Bad highlight it.
type Fact struct {
	Label, Value, Note string
	Good, Bad          bool
}

// Panels are small figures of the same kind side by side, for example one for each rank. Each
// figure shows its title and its caption in one line. All share the legend of the first figure.
type Panels struct {
	Title, Caption string
	Figures        []Figure
}

// Table holds rows of text under a heading, which are collapsed if Folded is set. A page omits a
// table without rows.
//
// Shares, if there are any, are fractions of 1 that are drawn as bars behind the rows. Lead, if
// it is not 0, is the index of the column that comes first on a phone.
type Table struct {
	Title  string
	Head   []string
	Rows   [][]string
	Shares []float64
	Lead   int
	Folded bool
}

// Text writes the table for a terminal, without its title.
func (t Table) Text(w io.Writer) error {
	lines := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, row := range append([][]string{t.Head}, t.Rows...) {
		if row != nil {
			fmt.Fprintln(lines, strings.Join(row, "\t"))
		}
	}
	return lines.Flush()
}

// Share returns the length of a row's bar in percent.
func (t Table) Share(row int) float64 {
	if row >= len(t.Shares) {
		return 0
	}
	return 100 * min(max(t.Shares[row], 0), 1)
}

// Write writes the page as one HTML document.
func (p *Page) Write(w io.Writer) error {
	type legend struct {
		Label
		Shape  string
		Narrow bool // shown only on narrow screens; on wide ones, the names are next to the lines
	}
	legendOf := func(f *Figure) (list []legend) {
		for i := range f.Series {
			s := &f.Series[i]
			shape := [...]string{Line: "stroke", Band: "wash", Dots: "point", Level: "dash", Bars: "block", Dash: "dash", Area: "block", Ticks: "stroke"}[s.Mark]
			if one := (legend{Label{s.Name, s.Color}, shape, f.named(s)}); s.Name != "" && !slices.Contains(list, one) {
				list = append(list, one)
			}
		}
		return list
	}
	type figure struct {
		Title, Caption, Sentence string
		Legend                   []legend
		SVG                      template.HTML
	}
	type panels struct {
		Title, Caption string
		Legend         []legend
		Plots          []figure
	}
	view := struct {
		*Page
		Style  template.CSS
		Script template.JS
		Plots  []figure
		Time   figure
		Small  []panels
	}{Page: p, Style: template.CSS(style()), Script: script}
	for i := range p.Figures {
		f := &p.Figures[i]
		if f.empty() {
			continue
		}
		plot := figure{Title: f.Title, Caption: f.Caption, Sentence: f.sentence()}
		if plot.Sentence != "" {
			view.Plots = append(view.Plots, plot)
			continue
		}
		plot.SVG = template.HTML(f.svg() + f.draw(narrow))
		plot.Legend = legendOf(f)
		view.Plots = append(view.Plots, plot)
	}
	if p.Timeline != nil {
		view.Time = figure{Title: p.Timeline.Title, Caption: p.Timeline.Caption, SVG: p.Timeline.svg()}
		for _, label := range p.Timeline.Legend {
			view.Time.Legend = append(view.Time.Legend, legend{label, "block", false})
		}
	}
	for _, group := range p.Panels {
		small := panels{Title: group.Title, Caption: group.Caption}
		for i := range group.Figures {
			if f := &group.Figures[i]; !f.empty() {
				if small.Legend == nil {
					small.Legend = legendOf(f)
				}
				small.Plots = append(small.Plots, figure{Title: f.Title, Caption: f.Caption, SVG: template.HTML(f.draw(panel))})
			}
		}
		view.Small = append(view.Small, small)
	}
	return pageTemplate.Execute(w, view)
}

var pageTemplate = template.Must(template.New("page").Parse(`<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>{{.Title}}</title>
<style>{{.Style}}</style>
</head>
<body>
<header><h1>{{.Title}}</h1><p>{{.Subtitle}}{{range $i, $f := .Files}}{{if $i}},{{else}}. The numbers:{{end}} <a href="{{.}}">{{.}}</a>{{end}}</p></header>
<main>
{{- with .Alert}}{{if .Title}}
<section class="alert" role="alert"><h2>{{.Title}}</h2><p>{{.Text}}</p></section>
{{- end}}{{end}}
<section class="facts of{{len .Facts}}">
{{- range .Facts}}
<div class="fact{{if .Good}} good{{end}}{{if .Bad}} bad{{end}}"><span>{{.Label}}</span><b>{{.Value}}</b><small>{{.Note}}</small></div>
{{- end}}
</section>
{{- range .Plots}}
<figure>
<figcaption><h2>{{.Title}}</h2><p>{{.Caption}}</p></figcaption>
{{with .Sentence}}<p class="said">{{.}}</p>{{end}}
{{with .Legend}}<ul class="legend">{{range .}}<li{{if .Narrow}} class="narrow"{{end}}><i class="c{{.Color}} {{.Shape}}"></i>{{.Name}}</li>{{end}}</ul>{{end}}
{{.SVG}}
</figure>
{{- end}}
{{- with .Time}}{{if .SVG}}
<figure>
<figcaption><h2>{{.Title}}</h2><p>{{.Caption}}</p></figcaption>
{{with .Legend}}<ul class="legend">{{range .}}<li{{if .Narrow}} class="narrow"{{end}}><i class="c{{.Color}} {{.Shape}}"></i>{{.Name}}</li>{{end}}</ul>{{end}}
<div class="scroll"><div class="wide">{{.SVG}}</div></div>
</figure>
{{- end}}{{end}}
{{- range .Small}}
<section class="card"><h2>{{.Title}}</h2><p>{{.Caption}}</p>{{with .Legend}}<ul class="legend">{{range .}}<li{{if .Narrow}} class="narrow"{{end}}><i class="c{{.Color}} {{.Shape}}"></i>{{.Name}}</li>{{end}}</ul>{{end}}<div class="panels">
{{- range .Plots}}
<div><h3>{{.Title}}<small>{{.Caption}}</small></h3>{{.SVG}}</div>
{{- end}}
</div></section>
{{- end}}
{{- range .Tables}}{{if .Rows}}
{{if .Folded}}<details><summary>{{.Title}}</summary>{{else}}<section class="card"><h2>{{.Title}}</h2>{{end}}
<div class="scroll"><table{{if .Lead}} class="led"{{end}}>{{$table := .}}{{if .Head}}<thead><tr>{{range $j, $name := .Head}}<th{{if and $table.Lead (eq $j $table.Lead)}} class="lead"{{end}}>{{$name}}</th>{{end}}{{if .Shares}}<th></th>{{end}}</tr></thead>{{end}}
<tbody>{{range $i, $row := .Rows}}<tr>{{range $j, $cell := $row}}<td{{if and $table.Lead (eq $j $table.Lead)}} class="lead"{{end}}>{{$cell}}</td>{{end}}{{if $table.Shares}}<td class="share"><i style="width:{{$table.Share $i}}%"></i></td>{{end}}</tr>
{{end}}</tbody></table></div>
{{if .Folded}}</details>{{else}}</section>{{end}}
{{- end}}{{end}}
</main>
<footer>{{.Footer}}</footer>
<div id="tip" hidden></div>
<script>{{.Script}}</script>
</body>
</html>
`))
