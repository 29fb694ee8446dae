package main

import (
	"errors"
	"fmt"
	"strings"

	"github.com/weir-ml/weir/trainer/launch"
)

// statusCmd asks running jobs what they do.
type statusCmd struct {
	Processes []int `arg:"" optional:"" name:"process" help:"Numbers of processes; by default all on this host that answer."`
}

// Help is printed behind the flags.
func (statusCmd) Help() string {
	return `For each rank: the action that it runs, or for which action of which rank it has waited how long. examples/train answers, of a job of several processes the first one, which knows of the others what their last heartbeat said, at most a second ago. The processes must be of the same user, and have the same TMPDIR. The exit status is 1 where nobody answers.`
}

// Run prints a paragraph for each process.
func (c *statusCmd) Run(s *streams) error {
	all, err := launch.Statuses(c.Processes...)
	for _, one := range all {
		if _, err := fmt.Fprintf(s.text, "process %d\n  %s\n", one.Process, strings.ReplaceAll(strings.TrimSpace(one.Text), "\n", "\n  ")); err != nil {
			return err
		}
	}
	if err == nil && len(all) == 0 {
		err = errors.New("no process on this host says what it does")
	}
	if err != nil {
		return faults{{Text: err.Error()}}
	}
	return nil
}
