package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/weir-ml/weir/trainer/job"
	"github.com/weir-ml/weir/trainer/terminal"
)

func main() { os.Exit(run(untilSignal(), os.Args[1:], os.Stdout, os.Stderr)) }

// untilSignal returns a context that a signal ends. After the first signal the default
// behavior is restored, so a second one ends the process immediately. Under nohup, the process ignores
// SIGHUP.
func untilSignal() context.Context {
	signals := []os.Signal{os.Interrupt, syscall.SIGTERM}
	if !signal.Ignored(syscall.SIGHUP) {
		signals = append(signals, syscall.SIGHUP)
	}
	ctx, stop := signal.NotifyContext(context.Background(), signals...)
	context.AfterFunc(ctx, stop)
	return ctx
}

// run is the program: it returns the exit status. Errors are one line on stderr. When ctx is
// canceled the run ends after the current action.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	opts, err := parse(args)
	switch {
	case errors.Is(err, flag.ErrHelp):
		usage(stdout)
		return 0
	case err != nil:
	case opts.emitCosts != "":
		err = job.Unprepared(ctx, emitCosts(ctx, opts, stdout, stderr))
	case opts.emitProfile != "":
		err = job.Unprepared(ctx, emitProfile(ctx, opts, stdout))
	default:
		err = train(ctx, opts, stdout, stderr)
	}
	if err != nil {
		fmt.Fprintf(terminal.Writer(stderr), "train: %v\n", oneLine(err))
	}
	return job.ExitStatus(err)
}

// oneLine formats several joined errors as one line.
func oneLine(err error) string {
	return strings.Join(strings.FieldsFunc(err.Error(), func(r rune) bool { return r == '\n' || r == '\r' }), "; ")
}
