package main

import (
	"fmt"
	"os"

	"github.com/weir-ml/weir/schedule"
)

// readCosts reads a file of costs.
func readCosts(path string) (*schedule.Costs, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, plain(err)
	}
	defer file.Close() // It was only read.
	costs, err := schedule.ReadCosts(file)
	if err == nil && secondsOf[costs.Unit] == 0 {
		err = fmt.Errorf("%s: times are in %q: give ns, us, ms or s", path, costs.Unit)
	}
	return costs, err
}

// secondsOf are the units of time that costs may have.
var secondsOf = map[string]float64{"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1}
