package main

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"reflect"
	"strings"

	"github.com/alecthomas/kong"

	"github.com/weir-ml/weir/internal/formats/diagnostic"
	"github.com/weir-ml/weir/schedule"
	"github.com/weir-ml/weir/schedule/check"
	"github.com/weir-ml/weir/schedule/format"
	"github.com/weir-ml/weir/schedule/simulate"
	"github.com/weir-ml/weir/trainer/terminal"
)

// commands defines the command line. Kong passes the streams to the Run method of each command.
type commands struct {
	Plan    planCmd    `cmd:"" group:"Plans:" help:"Make a plan and print it."`
	Check   checkCmd   `cmd:"" group:"Plans:" help:"Prove a plan: every action runs once, in a valid order, and nothing is used after its drop."`
	Sim     simCmd     `cmd:"" group:"Plans:" help:"Simulate a plan: time, bubbles, waits and memory on every rank."`
	Choose  chooseCmd  `cmd:"" group:"Plans:" help:"Find the best schedule for given ranks, stages and costs under a memory cap."`
	Draw    drawCmd    `cmd:"" group:"Plans:" help:"Draw a plan as SVG, as PNG or as a page that zooms, or write a trace for Perfetto."`
	Convert convertCmd `cmd:"" group:"Plans:" help:"Read a plan file in one form and write it in another."`
	Place   placeCmd   `cmd:"" group:"Memory:" help:"Lay out buffers with known lifetimes in as little memory as possible."`
	Slots   slotsCmd   `cmd:"" group:"Memory:" help:"Assign what each rank holds to slots that are used again, and prove that none is written while it is alive."`
	Mem     memCmd     `cmd:"" group:"Memory:" help:"Show the memory of a run, compare it, and plan it."`
	Pack    packCmd    `cmd:"" group:"Models and batches:" help:"Pack the sequences of a step into microbatches by their lengths, within the memory of a rank."`
	Fit     fitCmd     `cmd:"" group:"Models and batches:" help:"Say whether a training run fits, from the description of a model."`
	Hang    hangCmd    `cmd:"" group:"Jobs:" help:"Find out why a job of PyTorch or Megatron hangs, from the dumps of its flight recorder."`
	Trace   traceCmd   `cmd:"" group:"Jobs:" help:"Compare what a run took with what its plan would take: costs, waits, the slow rank or link."`

	Checkpoint checkpointCmd `cmd:"" group:"Jobs:" help:"Verify the checkpoints of a run."`
	hostCommands
	Help       helpCmd          `cmd:"" group:"This command:" help:"Show the help of a command, or explain an error."`
	Completion completionCmd    `cmd:"" group:"This command:" help:"Print the completion script of a shell."`
	Version    kong.VersionFlag `help:"Print the version."`
}

// streams holds the input and output of a command. Files and JSON are written to out unchanged.
type streams struct {
	in   io.Reader
	out  io.Writer // it keeps its first error, with which the program ends, so that functions that print need not return errors
	text io.Writer // the same output as text: control characters are quoted
}

func main() {
	stdout := io.Writer(os.Stdout)
	var bold *terminal.Bold
	if terminal.Columns(os.Stdout) > 0 { // The text of a file must not control the terminal.
		if bold = terminal.NewBold(os.Stdout); bold != nil {
			stdout = bold
		}
		stdout = terminal.Writer(stdout)
	}
	status := run(os.Args[1:], os.Stdin, stdout, os.Stderr)
	if bold != nil {
		_ = bold.Flush() // the command has ended, and its errors were checked
	}
	os.Exit(status)
}

// Exit statuses of all commands.
const (
	good    = 0
	atFault = 1 // the command has a finding: a fault, growth, a difference, or that nothing fits
	misused = 2 // the command line is wrong, a file cannot be read or written, or the work is too large
)

// errUsage marks an error in the command line. All other errors, except findings and an exitError, have the same
// exit status.
var errUsage = errors.New("wrong use")

func usage(format string, args ...any) error {
	return diagnostic.Errorf(errUsage, format, args...)
}

// exitError ends the program with the exit status of another process.
type exitError struct {
	status int
	err    error
}

func (e *exitError) Error() string { return e.err.Error() }

// errShown sets the exit status to atFault without printing anything.
var errShown = errors.New("shown")

// fault is one fault of a file or a plan. It is printed on stderr as FILE:line:column: message, without the parts
// that are not known.
type fault struct {
	File   string `json:"file,omitempty"`
	Line   int    `json:"line,omitempty"`
	Column int    `json:"column,omitempty"`
	Code   string `json:"code,omitempty"`
	Rank   *int   `json:"rank,omitempty"` // nil if the fault concerns no single rank
	Text   string `json:"text"`
}

func (f fault) String() string {
	text := f.Text
	if f.Code != "" {
		text = f.Code + ": " + text
	}
	switch {
	case f.Line > 0:
		return fmt.Sprintf("%s:%d:%d: %s", terminal.Quote(f.File), f.Line, f.Column, text)
	case f.File != "":
		return terminal.Quote(f.File) + ": " + text
	}
	return text
}

// faults lists all faults that a command found.
type faults []fault

func (f faults) Error() string {
	var lines []string
	for _, one := range f {
		lines = append(lines, one.String())
	}
	return strings.Join(lines, "\n")
}

// unreadable holds the faults of an input that cannot be read, so the command has no result.
type unreadable faults

func (u unreadable) Error() string { return faults(u).Error() }

// unreadableIf converts an error of the given kind to unreadable, without the text of the kind. It returns
// any other error unchanged.
func unreadableIf(err, kind error) error {
	if errors.Is(err, kind) {
		return unreadable{{Text: diagnostic.Text(err, nil)}}
	}
	return err
}

// run runs one command line and returns the exit status. Errors go to stderr, one line each.
func run(args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	stderr = terminal.Writer(stderr)
	out := &terminal.Output{Writer: stdout}
	status, exited := good, false
	parser, err := kong.New(&commands{},
		kong.Name("weir"),
		kong.Description("Pipeline-parallel training: the fastest plan for the memory, proven before it runs; whether a model fits; why a job hangs; what leaks."),
		kong.ConfigureHelp(kong.HelpOptions{Compact: true, WrapUpperBound: 100}),
		kong.Help(printHelp),
		kong.KindMapper(reflect.Int, wholeNumbers{}),
		kong.KindMapper(reflect.Int64, wholeNumbers{}),
		kong.Writers(out, stderr),
		kong.Vars{
			"schedules": strings.Join(schedule.Names(), " "), "version": version(),
			"offload": "Stages whose saved tensors go to far memory between forward and backward, if enough computations lie in between: all, or stages from 0, separated by commas.",
		},
		kong.Exit(func(code int) { status, exited = code, true }),
	)
	if err != nil {
		return fail(stderr, err)
	}
	complete(parser)
	if exited {
		return status
	}
	if len(args) == 0 {
		parser.Stdout = stderr
		parser.Parse([]string{"--help"}) // prints the help
		return misused
	}
	ctx, err := parser.Parse(normalize(args))
	if out.Err != nil {
		return fail(stderr, out.Err)
	}
	if exited { // --help has printed everything
		return status
	}
	if err != nil {
		if command := commandFor(args[0]); command != "" {
			return fail(stderr, usage("%s is a file: a command that reads it is %s", args[0], command))
		}
		help := "weir"
		if parse, ok := errors.AsType[*kong.ParseError](err); ok && parse.Context.Selected() != nil {
			help = "weir " + strings.TrimPrefix(parse.Context.Selected().Path(), "weir ")
		}
		return fail(stderr, usage("%s (see %s --help)", strings.Replace(plain(err), `expected string value but got "EOL" (<EOL>)`, "expected a value after it", 1), help))
	}
	if err = idleFlag(ctx); err == nil {
		err = ctx.Run(&streams{stdin, out, terminal.Writer(out)}, parser)
	}
	if err = cmp.Or(out.Err, err); err != nil && !exited {
		return fail(stderr, err)
	}
	return good
}

// plain returns the text of an error, with shorter names, or none, for usage errors and for those of packages for plans.
func plain(err error) string {
	if invalid, ok := err.(*check.Error); ok {
		return invalid.Text()
	}
	return diagnostic.Text(err, func(kind error) string {
		switch kind {
		case errUsage, schedule.ErrParams:
			return ""
		case simulate.ErrCosts:
			return "costs"
		case schedule.ErrStageInfo:
			return "invalid stage information"
		case check.ErrInvalidPlan:
			return "invalid plan"
		case format.ErrFormat:
			return "invalid plan file"
		case format.ErrRefused:
			return "the form cannot express the plan"
		}
		return kind.Error()
	})
}

// normalize converts the arguments for the parser: -help becomes --help, as in the programs of
// examples/, and a negative number is joined with its flag.
func normalize(args []string) []string {
	var plain []string
	for i, arg := range args {
		if arg == "--" { // the remaining arguments are for another program
			return append(plain, args[i:]...)
		}
		if n := len(plain) - 1; n >= 0 && strings.HasPrefix(plain[n], "--") && !strings.Contains(plain[n], "=") &&
			len(arg) > 1 && arg[0] == '-' && arg[1] >= '0' && arg[1] <= '9' {
			plain[n] += "=" + arg
			continue
		}
		if arg == "-help" {
			arg = "--help"
		}
		plain = append(plain, arg)
	}
	return plain
}

// fail prints an error, unless it is errShown, and returns the exit status.
func fail(stderr io.Writer, err error) int {
	if errors.Is(err, errShown) {
		return atFault
	}
	if of, ok := errors.AsType[*exitError](err); ok {
		fmt.Fprintf(stderr, "weir: %v\n", err)
		return of.status
	}
	if found, ok := errors.AsType[faults](err); ok {
		fmt.Fprintln(stderr, found)
		return atFault
	}
	if input, ok := errors.AsType[unreadable](err); ok {
		fmt.Fprintln(stderr, input)
		return misused
	}
	if path, ok := errors.AsType[*fs.PathError](err); ok {
		fmt.Fprintf(stderr, "weir: %s\n", terminal.Quote(path.Error())) // the error names the file
		return misused
	}
	const half = 2 << 10 // of a line, in bytes
	for line := range strings.SplitSeq(plain(err), "\n") {
		if len(line) > 2*half { // The line quotes a long argument, so it is shortened in its middle: the advice is at its end.
			line = line[:half] + "..." + line[len(line)-half:]
		}
		prefix := "weir: "
		if strings.HasPrefix(line, " ") { // An indented line is code to copy.
			prefix = ""
		}
		fmt.Fprintf(stderr, "%s%s\n", prefix, line)
	}
	return misused
}
