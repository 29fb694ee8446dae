package main

import (
	"context"
	"errors"
	"math"
)

const (
	// mostHeldOut bounds the bytes of held-out text that an evaluation reads, so
	// that it takes seconds.
	mostHeldOut = 64 << 10
	// heldOutGroups is how many evaluations the held-out windows are spread over.
	// How far the groups differ says how exact their mean is.
	heldOutGroups = 16
)

// score is a loss on held-out text in nats per byte.
type score struct {
	known    bool
	step     int // steps that the weights had seen
	loss     float64
	standard float64 // standard error of loss, NaN where there is but one group
}

// evaluate runs the held-out windows forward only.
func (t *trainer) evaluate(ctx context.Context) (score, error) {
	var sums, weights []float64
	windows := t.tiled.Count()
	groups := min(heldOutGroups, windows)
	for g := range groups {
		t.tiled.First = g * windows / groups
		m := (g+1)*windows/groups - t.tiled.First
		result, err := t.ranks.Evaluate(ctx, m, t.heldout)
		if err != nil {
			return score{}, err
		}
		t.rise(result)
		sums = append(sums, result.Losses[0].Sum)
		weights = append(weights, result.Losses[0].Weight)
	}
	mean, standard := ratio(sums, weights)
	if math.IsNaN(mean) || math.IsInf(mean, 0) {
		return score{}, errors.New("the held-out loss is not a number: start again with a lower -lr")
	}
	return score{known: true, step: t.done, loss: mean, standard: standard}, nil
}

// ratio returns the sum of sums over the sum of weights, and its standard error
// from how far the groups lie from it.
func ratio(sums, weights []float64) (mean, standard float64) {
	var sum, weight float64
	for i := range sums {
		sum += sums[i]
		weight += weights[i]
	}
	mean = sum / weight
	var squares float64
	for i := range sums {
		d := sums[i] - mean*weights[i]
		squares += d * d
	}
	n := float64(len(sums))
	return mean, math.Sqrt(n/(n-1)*squares) / weight
}
