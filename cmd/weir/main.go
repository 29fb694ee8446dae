package main

import (
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/alecthomas/kong"
)

// commands is the command line. Each command's Run gets the streams.
type commands struct {
	Plan  planCmd  `cmd:"" help:"Make a plan and print it, with what dies at each action."`
	Check checkCmd `cmd:"" help:"Check a plan file: every action once, in an order that works, nothing used after its drop."`
}

// streams are what a command reads and writes.
type streams struct {
	in  io.Reader
	out io.Writer
}

func main() {
	os.Exit(run(os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
}

// run runs one command line and returns the exit status: 0, or 1 where there is
// an error, which is one line on stderr for each thing that is wrong.
func run(args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	status, exited := 0, false
	fail := func(err error) int {
		for _, line := range strings.Split(err.Error(), "\n") {
			fmt.Fprintf(stderr, "weir: %s\n", strings.TrimPrefix(line, "schedule: "))
		}
		return 1
	}

	parser, err := kong.New(&commands{},
		kong.Name("weir"),
		kong.Description("Pipeline plans whose memory stays flat: make them, read them, check them."),
		kong.ConfigureHelp(kong.HelpOptions{Compact: true, WrapUpperBound: 100}),
		kong.Writers(stdout, stderr),
		kong.Exit(func(code int) { status, exited = code, true }),
	)
	if err != nil {
		return fail(err)
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
		return fail(fmt.Errorf("%w (weir --help says more)", err))
	}
	if err := ctx.Run(&streams{stdin, stdout}); err != nil {
		return fail(err)
	}
	return 0
}
