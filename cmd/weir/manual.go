package main

import (
	"fmt"
	"io"
	"strings"

	"github.com/alecthomas/kong"
)

// roff quotes text for the formatter of manual pages: hyphens can be copied from the page, and no line is taken for a
// request.
var roff = strings.NewReplacer(`\`, `\e`, "-", `\-`, "\n.", "\n\\&.", "\n'", "\n\\&'")

// writeManual writes the manual page, in the form that man reads, from the help of all commands.
func writeManual(out io.Writer, parser *kong.Kong) {
	app := parser.Model
	printf := func(format string, texts ...string) {
		var quoted []any
		for _, text := range texts {
			quoted = append(quoted, strings.TrimPrefix(roff.Replace("\n"+text), "\n"))
		}
		fmt.Fprintf(out, format+"\n", quoted...)
	}
	title, _, _ := strings.Cut(version(), " go")
	name, _, _ := strings.Cut(app.Help, ":")
	printf(".TH WEIR 1 \"\" \"%s\" \"User Commands\"\n.SH NAME\nweir \\- %s\n.SH SYNOPSIS\n.B weir\n.I command\n[flags]\n.SH DESCRIPTION\n%s",
		title, strings.ToLower(name[:1])+name[1:], app.Help)
	item := func(name, help string) { printf(".TP\n.B %s\n%s", name, help) }
	for _, flag := range app.Flags {
		item(flag.String(), flag.Help)
	}
	group := ""
	for _, command := range app.Leaves(true) {
		if of := command.ClosestGroup(); of != nil && of.Title != group {
			group = of.Title
			printf(".SH %s", strings.ToUpper(strings.TrimSuffix(group, ":")))
		}
		printf(".SS %s\n%s", command.Summary(), command.Help)
		for paragraph := range strings.SplitSeq(withExamples(command), "\n\n") {
			if strings.HasPrefix(paragraph, "\t") {
				printf(".PP\n.RS 4\n.nf\n%s\n.fi\n.RE", strings.ReplaceAll(paragraph[1:], "\n\t", "\n"))
			} else if paragraph != "" {
				printf(".PP\n%s", paragraph)
			}
		}
		for _, arg := range command.Positional {
			item(arg.Summary(), arg.Help)
		}
		for _, flag := range command.Flags {
			if !flag.Hidden {
				item(flag.String(), flag.Help)
			}
		}
	}
	printf(".SH EXIT STATUS")
	item("0", "There is an answer, and nothing was found.")
	item("1", "There is a finding: a fault, growth, a difference, or that nothing fits.")
	item("2", "There is no answer: the command line is wrong, a file cannot be read or written, or the work is too large.")
	printf(".SH SEE ALSO\nhttps://github.com/weir\\-ml/weir")
}
