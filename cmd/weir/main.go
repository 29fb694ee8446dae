package main

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"strings"

	"github.com/alecthomas/kong"

	"github.com/weir-ml/weir/schedule"
)

// commands is the command line. Each command's Run gets the streams.
type commands struct {
	Plan    planCmd    `cmd:"" help:"Make a plan and print it."`
	Check   checkCmd   `cmd:"" help:"Prove a plan: every action once, in an order that works, nothing used after its drop."`
	Sim     simCmd     `cmd:"" help:"Simulate a plan: time, bubbles, waits and memory on every rank."`
	Choose  chooseCmd  `cmd:"" help:"Find the best schedule for given ranks, stages and costs under a memory cap."`
	Draw    drawCmd    `cmd:"" help:"Draw a plan as SVG, or trace it for Perfetto."`
	Convert convertCmd `cmd:"" help:"Read a plan file in one form and write it in another."`
}

// streams are what a command reads and writes.
type streams struct {
	in  io.Reader
	out io.Writer
}

func main() {
	os.Exit(run(os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
}

// Exit statuses.
const (
	good    = 0
	atFault = 1 // a fault was found, or the work could not be finished
	misused = 2 // the command line asks for what there is not
)

// errUsage marks an error as one of the command line.
var errUsage = errors.New("wrong use")

func usage(format string, args ...any) error {
	return fmt.Errorf("%w: "+format, append([]any{errUsage}, args...)...)
}

// faults are lines for stderr that stand there as they are: FILE:line:col: message.
type faults []string

func (f faults) Error() string { return strings.Join(f, "\n") }

// run runs one command line and returns the exit status. What is wrong goes to
// stderr, a line for each thing.
func run(args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	status, exited := good, false
	parser, err := kong.New(&commands{},
		kong.Name("weir"),
		kong.Description("Pipeline plans, proven before they run: make them, check them, simulate them, draw them."),
		kong.ConfigureHelp(kong.HelpOptions{Compact: true, WrapUpperBound: 100}),
		kong.Writers(stdout, stderr),
		kong.Vars{"schedules": scheduleNames()},
		kong.Exit(func(code int) { status, exited = code, true }),
	)
	if err != nil {
		return fail(stderr, err)
	}
	args = slices.Clone(args)
	for i, arg := range args {
		if arg == "-help" { // as the programs of examples/ take it
			args[i] = "--help"
		}
	}
	ctx, err := parser.Parse(args)
	if exited { // --help has printed all there is to say
		return status
	}
	if err != nil {
		return fail(stderr, usage("%w (weir --help says more)", err))
	}
	if err := ctx.Run(&streams{stdin, stdout}); err != nil {
		return fail(stderr, err)
	}
	return good
}

// fail prints an error and returns its exit status.
func fail(stderr io.Writer, err error) int {
	if found, ok := errors.AsType[faults](err); ok {
		fmt.Fprintln(stderr, found)
		return atFault
	}
	status := atFault
	if errors.Is(err, errUsage) || errors.Is(err, schedule.ErrParams) || errors.Is(err, fs.ErrNotExist) {
		status = misused
	}
	for _, line := range strings.Split(err.Error(), "\n") {
		line = strings.TrimPrefix(line, errUsage.Error()+": ")
		fmt.Fprintf(stderr, "weir: %s\n", strings.TrimPrefix(line, "schedule: "))
	}
	return status
}
