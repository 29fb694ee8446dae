package main

import (
	"errors"
	"fmt"
	"strings"
	"text/tabwriter"

	"github.com/weir-ml/weir/internal/formats/diagnostic"
	"github.com/weir-ml/weir/schedule/units"
	"github.com/weir-ml/weir/trainer/checkpoint"
	"github.com/weir-ml/weir/trainer/terminal"
)

// checkpointCmd groups the commands about checkpoints.
type checkpointCmd struct {
	Verify verifyCmd `cmd:"" help:"Compare checkpoints with their checksums."`
}

// verifyCmd verifies checkpoints.
type verifyCmd struct {
	Path string `arg:"" help:"A folder of checkpoints, one of them, or a safetensors file." predictor:"file"`
	JSON bool   `help:"Print the outcome as JSON."`
}

// Help returns the text that is printed below the flags.
func (verifyCmd) Help() string {
	return `Verifies the checkpoints of a folder from the latest to the earliest, without unfinished ones. The exit status is 1 if a checkpoint is damaged.`
}

// verified describes one checkpoint in the output of --json.
type verified struct {
	Path    string `json:"path"`
	Step    int64  `json:"step"`
	Shards  int    `json:"shards"`
	Tensors int    `json:"tensors"`
	Bytes   int64  `json:"bytes"`
	Whole   bool   `json:"whole"`
}

// Run prints a line for each checkpoint, or all of them as JSON, and returns the faults of the damaged ones.
func (c *verifyCmd) Run(s *streams) error {
	paths, err := checkpoint.All(c.Path)
	alone := err != nil || len(paths) == 0
	if alone {
		paths = []string{c.Path}
	}
	all := []verified{}
	var found faults
	for _, path := range paths {
		one := verified{Path: path}
		saved, err := checkpoint.Open(path)
		if err == nil {
			one.Step, one.Shards, one.Tensors = saved.Step, saved.Shards(), len(saved.Tensors())
			one.Bytes = saved.Bytes()
			err = errors.Join(saved.Verify(), saved.Close())
		}
		if err != nil && alone && !errors.Is(err, checkpoint.ErrDamaged) {
			return err
		}
		if one.Whole = err == nil; !one.Whole {
			for line := range strings.SplitSeq(diagnostic.Text(err, nil), "\n") {
				found = append(found, fault{Text: line})
			}
		}
		all = append(all, one)
	}
	if c.JSON {
		err = printJSON(s.out, all)
	} else {
		t := tabwriter.NewWriter(s.text, 0, 0, 2, ' ', 0)
		for _, one := range all {
			state := "damaged"
			if one.Whole {
				state = fmt.Sprintf("whole\tafter step %d\t%s\t%s\t%s", one.Step, units.Number(one.Shards, "shard"), units.Number(one.Tensors, "tensor"), units.Size(one.Bytes))
			}
			fmt.Fprintf(t, "%s\t%s\n", terminal.Quote(one.Path), state)
		}
		t.Flush()
	}
	if found == nil {
		return err
	}
	return errors.Join(err, found)
}
