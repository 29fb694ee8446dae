package main

import (
	"fmt"
	"os"
	"strings"

	"github.com/weir-ml/weir/trainer/launch"
)

// answer lets a signal and weir status ask what the ranks do, until unsignal.
func (t *trainer) answer() {
	says := func() string {
		if !t.built.Load() {
			return "it prepares\n"
		}
		return t.ranksDo()
	}
	t.unsignal = onStatus(func() {
		for line := range strings.Lines(says()) {
			fmt.Fprint(os.Stderr, "train: ", line)
		}
	})
	if !t.world.leads() {
		return // the first process knows of all
	}
	if server, err := launch.ServeStatus(says); err == nil { // else the signal is left
		signal := t.unsignal
		t.unsignal = func() {
			signal()
			_ = server.Close() // It was only read.
		}
	}
}

// ranksDo is a line for each rank that this process knows of.
func (t *trainer) ranksDo() string {
	var b strings.Builder
	if t.world == nil && t.opts.ranks == 1 {
		return "rank 0 is alone and waits for nobody\n"
	}
	for _, standing := range t.run.Standings() {
		fmt.Fprintln(&b, standing)
	}
	if t.world != nil {
		ends := t.world.ends
		if t.world.leads() {
			ends = ends[:1] // it knows of all
		}
		for _, end := range ends {
			for _, status := range end.Statuses() {
				fmt.Fprintln(&b, status)
			}
		}
	}
	return b.String()
}
