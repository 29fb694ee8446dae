package main

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"strconv"
)

// subject is a training step or a matrix product to be measured. The fields of the other kind
// are 0.
type subject struct {
	Kind string `json:"kind"` // step or product
	Name string `json:"name"`
	configuration
	product
}

// subjects returns the subjects selected by the flags.
func (o options) subjects() (all []subject) {
	if o.products {
		for _, p := range products {
			all = append(all, subject{Kind: "product", Name: p.name(), product: p})
		}
		return all
	}
	for _, c := range configurations {
		if c.matches(o.only) {
			all = append(all, subject{Kind: "step", Name: c.name(), configuration: c})
		}
	}
	return all
}

// measure measures in this process.
func (s subject) measure(threads int, o options) (measurement, error) {
	if s.Kind == "product" {
		return measureProduct(s.product, threads, o)
	}
	return measure(s.configuration, threads, o)
}

// measureApart measures in another process.
func (s subject) measureApart(threads int, o options) (m measurement, err error) {
	program, err := os.Executable()
	if err != nil {
		return m, err
	}
	child := exec.Command(program, "-child", s.Name, "-products="+strconv.FormatBool(o.products), "-threads", strconv.Itoa(threads),
		"-time", o.time.String(), "-cpu="+strconv.FormatBool(o.cpu), "-profile="+strconv.FormatBool(o.profile),
		"-keep-logits", strconv.FormatInt(o.keep, 10), "-instructions", o.instructions)
	child.Stderr = os.Stderr
	text, err := child.Output()
	if err != nil {
		return m, fmt.Errorf("%s: %w", s.Name, err)
	}
	return m, json.Unmarshal(text, &m)
}
