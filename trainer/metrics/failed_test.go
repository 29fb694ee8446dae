package metrics_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"iter"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-ml/weir/memory"
	"github.com/weir-ml/weir/schedule"
	"github.com/weir-ml/weir/schedule/runner"
	"github.com/weir-ml/weir/trainer/metrics"
	"github.com/weir-ml/weir/transport"
	"github.com/weir-ml/weir/transport/tcp"
)

// nothing is a space without buffers.
type nothing struct{}

func (nothing) Live() int64                { return 0 }
func (nothing) Stats(*memory.Stats)        {}
func (nothing) ResetPeak()                 {}
func (nothing) All() iter.Seq[memory.Info] { return func(func(memory.Info) bool) {} }

// An action ends when its call returns. Even for the last action of a step, step end is not included.
func TestTheLastActionEnds(t *testing.T) {
	for _, fails := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			began := time.Now()
			run := metrics.New(1)
			run.Begin(metrics.Config{Spaces: []metrics.Space{nothing{}}})
			hooks := run.Hooks()
			_, _ = run.Step(func() (*runner.Result, error) {
				for _, action := range []schedule.Action{schedule.NewAction(schedule.I, 0, 63), schedule.NewAction(schedule.W, 0, 63)} {
					hooks.Action(0, action)
					time.Sleep(time.Second)
				}
				if fails {
					hooks.Failed(0, errors.New("planted"), func(func(memory.Info) bool) {})
				} else {
					hooks.Microbatch(&memory.Sample{})
				}
				time.Sleep(time.Minute) // other ranks continue
				return &runner.Result{Ranks: make([]runner.RankResult, 1)}, nil
			})
			actions := run.LastActions(0, began)
			require.Len(t, actions, 2)
			require.Equal(t, 2*time.Second, actions[1].End)
		})
	}
}

// The page of a failed run first says why, where and when it failed, and nothing on it is green.
// An interrupted run has not failed.
func TestPageOfAFailedRun(t *testing.T) {
	wrapped := func(err error) error { return fmt.Errorf("a step: %w", err) }
	for title, c := range map[string]struct {
		steps int
		err   error
	}{
		"The run failed after step 103, on rank 2":      {3, wrapped(&transport.StepError{Rank: 2, Err: errors.New("planted <cause>")})},
		"The run failed after step 100: rank 1 is lost": {0, wrapped(&transport.StepError{Rank: 2, Err: &tcp.LostError{Rank: 1, Reason: "planted <cause>"}})},
		"The run failed after step 101":                 {1, errors.New("planted <cause>")},
		"":                                              {2, wrapped(context.Canceled)},
	} {
		run := metrics.New(3)
		run.Begin(metrics.Config{Spaces: []metrics.Space{nothing{}, nothing{}, nothing{}}, First: 100})
		for step := range c.steps {
			result, err := run.Step(func() (*runner.Result, error) {
				run.Hooks().Microbatch(&memory.Sample{Step: int64(step)})
				return &runner.Result{Ranks: make([]runner.RankResult, 3)}, nil
			})
			require.NoError(t, err)
			run.FinishStep(step+1, result, 1, 1)
		}
		_, err := run.Step(func() (*runner.Result, error) {
			run.Hooks().Action(2, schedule.NewAction(schedule.F, 0, 0)) // there are no actions of the others
			return nil, c.err
		})
		require.ErrorIs(t, err, c.err)
		page := run.Page()
		require.Equal(t, title, page.Alert.Title)
		for _, fact := range page.Facts {
			require.Equal(t, title == "" && fact.Label == "growth per microbatch", fact.Good, fact.Label)
			require.NotContains(t, fact.Value, "-", "nothing is unknown")
		}
		if title == "" {
			continue
		}
		require.Len(t, page.Timeline.Rows, 3, "each rank has its lane")
		var text bytes.Buffer
		require.NoError(t, page.Write(&text))
		require.Contains(t, text.String(), "planted &lt;cause&gt;")
		if c.steps == 0 {
			require.NotContains(t, text.String(), "Losses in numbers")
		}
	}
}
