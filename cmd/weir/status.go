//go:build !js

package main

import (
	"errors"
	"fmt"
	"strings"

	"github.com/weir-ml/weir/cmd/weir/internal/hang"
	"github.com/weir-ml/weir/trainer/launch"
)

// statusCmd shows the state of running jobs.
type statusCmd struct {
	Processes []int `arg:"" optional:"" name:"process" help:"Process numbers; by default all processes on this host that answer."`
	JSON      bool  `help:"Print the processes as JSON, with the report of weir hang on the job that each leads."`
}

// processStatus is the status of a process in the output of --json.
type processStatus struct {
	Process int          `json:"process"`
	Text    string       `json:"text"`
	Report  *hang.Report `json:"report,omitempty"` // the diagnosis of weir hang, if the process leads a job
}

// Help returns the text that is printed below the flags.
func (statusCmd) Help() string {
	return `Shows for each rank the action that it runs, or the action of another rank that it waits for, and how long it has waited. examples/train answers. In a job of several processes the first one answers, with the last heartbeats of the others, at most a second old. The processes must belong to the same user and have the same TMPDIR. weir hang PROCESS reports on one of them in full. The exit status is 2 if no process answers.`
}

// Run prints a paragraph for each process.
func (c *statusCmd) Run(s *streams) error {
	all, err := launch.Statuses(c.Processes...)
	shown := []processStatus{}
	for i := range all {
		report, _ := liveReport(&all[i]) // nil for a process that leads no job
		shown = append(shown, processStatus{all[i].Process, strings.TrimSpace(all[i].Text), report})
		if !c.JSON {
			fmt.Fprintf(s.text, "process %d\n  %s\n", shown[i].Process, strings.ReplaceAll(shown[i].Text, "\n", "\n  "))
		}
	}
	if c.JSON {
		err = errors.Join(err, printJSON(s.out, shown))
	}
	if err == nil && len(shown) == 0 {
		err = errors.New("no process on this host reports its status")
	}
	if err != nil {
		return unreadable{{Text: err.Error()}}
	}
	return nil
}
