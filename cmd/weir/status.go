//go:build !js

package main

import (
	"errors"
	"fmt"
	"strings"

	"github.com/weir-ml/weir/trainer/launch"
)

// statusCmd shows the state of running jobs.
type statusCmd struct {
	Processes []int `arg:"" optional:"" name:"process" help:"Process numbers; by default all processes on this host that answer."`
}

// Help returns the text that is printed below the flags.
func (statusCmd) Help() string {
	return `Shows for each rank the action that it runs, or the action of another rank that it waits for, and how long it has waited. examples/train answers. In a job of several processes the first one answers, with the last heartbeats of the others, at most a second old. The processes must belong to the same user and have the same TMPDIR. weir hang PROCESS reports on one of them in full. The exit status is 2 if no process answers.`
}

// Run prints a paragraph for each process.
func (c *statusCmd) Run(s *streams) error {
	all, err := launch.Statuses(c.Processes...)
	for _, one := range all {
		fmt.Fprintf(s.text, "process %d\n  %s\n", one.Process, strings.ReplaceAll(strings.TrimSpace(one.Text), "\n", "\n  "))
	}
	if err == nil && len(all) == 0 {
		err = errors.New("no process on this host reports its status")
	}
	if err != nil {
		return unreadable{{Text: err.Error()}}
	}
	return nil
}
