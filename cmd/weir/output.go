package main

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/weir-ml/weir/schedule/format"
	"github.com/weir-ml/weir/trainer/atomicfile"
)

// input is a file to read, or standard input, with the name that messages use for it.
type input struct {
	io.Reader
	name string
}

// Name returns the name, for packages of the library.
func (i input) Name() string { return i.name }

// Close closes the file, but not standard input.
func (i input) Close() {
	if file, ok := i.Reader.(*os.File); ok && i.name != "<stdin>" {
		file.Close() // Errors do not matter after reading.
	}
}

// open opens a file, or standard input if the name is -.
func (s *streams) open(name string) (input, error) {
	if name == "-" {
		return input{s.in, "<stdin>"}, nil
	}
	file, err := os.Open(name)
	return input{file, name}, err
}

// write writes a file, or standard output if the name is -.
func (s *streams) write(name string, write func(io.Writer) error) error {
	switch name {
	case "":
		return usage("the name of the output is empty: name a file, or - for standard output")
	case "-":
		return write(s.out)
	}
	return atomicfile.Write(name, write)
}

// endsIn returns an error if an output is given whose name has none of the endings.
func endsIn(output string, endings ...string) error {
	if output == "" || slices.Contains(endings, filepath.Ext(output)) {
		return nil
	}
	return usage("--output %q: the name must end in %s, the form that is written", output, strings.Join(endings, " or "))
}

// jsonEnds returns an error if isJSON is true and the name of an output file does not end in .json.
func jsonEnds(isJSON bool, output string) error {
	if !isJSON || output == "-" {
		return nil
	}
	return endsIn(output, ".json")
}

// planForm returns the form of a plan for an output whose name ends in .json or .csv, and the given form for
// all other outputs.
func planForm(output string, other format.Format) format.Format {
	switch filepath.Ext(output) {
	case ".json":
		return format.JSON
	case ".csv":
		return format.Compute
	}
	return other
}

// checkForm returns an error if the name of an output has the extension of another form.
func checkForm(form format.Format, output string) error {
	named := planForm(output, form)
	if named == form || named == format.Compute && form != format.Text && form != format.JSON { // comms and order are CSV too
		return nil
	}
	return usage("--to %v: %q has the extension of %v: give the file another name, or leave out --to", form, output, named)
}

// checkOutputs returns an error if an output is the input, or two outputs have the same name. outputs maps flags
// to names.
func checkOutputs(input string, outputs map[string]string) error {
	there, _ := os.Stat(input)
	flags := map[string]string{} // by the name of the output
	for flag, name := range outputs {
		if name == "" {
			continue
		}
		if info, err := os.Stat(name); err == nil && info.Mode().IsRegular() && os.SameFile(there, info) {
			return usage("%s %s is also the input: name another file", flag, name)
		}
		if other, is := flags[name]; is {
			return usage("%s and %s name the same file, %s: name two files", min(flag, other), max(flag, other), name)
		}
		flags[name] = flag
	}
	return nil
}

// printRight prints a blank line and a table with right-aligned columns. It prints nothing if the
// header is the only row.
func printRight(w io.Writer, rows [][]string) {
	if len(rows) == 1 {
		return
	}
	fmt.Fprintln(w)
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	for _, row := range rows {
		fmt.Fprintln(t, strings.Join(row, "\t")+"\t")
	}
	t.Flush()
}
