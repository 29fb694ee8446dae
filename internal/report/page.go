package report

import (
	"html/template"
	"io"
)

// Page is a report. Strings are plain text; the page escapes them.
type Page struct {
	Title    string
	Subtitle string
	Facts    []Fact
	Figures  []Figure
	Tables   []Table
	Footer   string
}

// Fact is one number on top of the page, with what it means. Good and Bad say
// that a reader should see at once whether it is as it should be.
type Fact struct {
	Label, Value, Note string
	Good, Bad          bool
}

// Table is rows of text under a heading, folded where it is Folded.
type Table struct {
	Title  string
	Head   []string
	Rows   [][]string
	Folded bool
}

// Write writes the page as one HTML document.
func (p *Page) Write(w io.Writer) error {
	type legend struct {
		Name  string
		Color Color
		Shape string
	}
	type figure struct {
		Title, Caption string
		Legend         []legend
		SVG            template.HTML
	}
	view := struct {
		*Page
		Style  template.CSS
		Script template.JS
		Plots  []figure
	}{Page: p, Style: style, Script: script}
	for i := range p.Figures {
		f := &p.Figures[i]
		if f.empty() {
			continue
		}
		plot := figure{Title: f.Title, Caption: f.Caption, SVG: template.HTML(f.svg())}
		for _, s := range f.Series {
			shape := [...]string{Line: "stroke", Band: "wash", Dots: "point", Level: "dash", Bars: "block"}[s.Mark]
			plot.Legend = append(plot.Legend, legend{s.Name, s.Color, shape})
		}
		view.Plots = append(view.Plots, plot)
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
<header><h1>{{.Title}}</h1><p>{{.Subtitle}}</p></header>
<main>
<section class="facts">
{{- range .Facts}}
<div class="fact{{if .Good}} good{{end}}{{if .Bad}} bad{{end}}"><span>{{.Label}}</span><b>{{.Value}}</b><small>{{.Note}}</small></div>
{{- end}}
</section>
{{- range .Plots}}
<figure>
<figcaption><h2>{{.Title}}</h2><p>{{.Caption}}</p></figcaption>
<ul class="legend">{{range .Legend}}<li><i class="c{{.Color}} {{.Shape}}"></i>{{.Name}}</li>{{end}}</ul>
{{.SVG}}
</figure>
{{- end}}
{{- range .Tables}}
{{if .Folded}}<details><summary>{{.Title}}</summary>{{else}}<section class="card"><h2>{{.Title}}</h2>{{end}}
<div class="scroll"><table>{{if .Head}}<thead><tr>{{range .Head}}<th>{{.}}</th>{{end}}</tr></thead>{{end}}
<tbody>{{range .Rows}}<tr>{{range .}}<td>{{.}}</td>{{end}}</tr>
{{end}}</tbody></table></div>
{{if .Folded}}</details>{{else}}</section>{{end}}
{{- end}}
</main>
<footer>{{.Footer}}</footer>
<div id="tip" hidden></div>
<script>{{.Script}}</script>
</body>
</html>
`))
