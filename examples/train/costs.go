package main

import (
	"fmt"
	"os"

	"github.com/weir-ml/weir/schedule/simulate"
	"github.com/weir-ml/weir/trainer/costs"
)

// readCosts reads a file of costs.
func readCosts(path string) (*simulate.Costs, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, plain(err)
	}
	defer file.Close() // It was only read.
	read, err := simulate.ReadCosts(file)
	if err != nil {
		return nil, err
	}
	if _, known := costs.Seconds(read, 0); !known {
		return nil, fmt.Errorf("%s: times are in %q: give ns, us, ms or s", path, read.Unit)
	}
	return read, nil
}
