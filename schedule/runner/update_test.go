package runner_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	batchctx "github.com/weir-ml/weir/context"
	"github.com/weir-ml/weir/schedule/runner"
	"github.com/weir-ml/weir/transport"
	"github.com/weir-ml/weir/transport/local"
)

// delayed is a transport whose reads of weights wait.
type delayed struct {
	*local.Endpoint[buffer]
	until <-chan struct{}
}

func (d *delayed) Get(ctx context.Context, from int, tag transport.Tag, offset int64, dst []byte) error {
	if tag.Content == transport.Weights {
		<-d.until
	}
	return d.Endpoint.Get(ctx, from, tag, offset, dst)
}

// processes builds two replicas of one rank as in two processes, with a level for each. The second replica reads
// weights only after until is closed.
func processes(t *testing.T, levels [2]int, until <-chan struct{}) (both [2]*replicated, runs [2]*runner.Runner[buffer]) {
	t.Helper()
	links, err := local.New(local.Config[buffer]{Ranks: 2, Capacity: 1, Copy: func(int, int, buffer) (buffer, error) { return buffer{}, errors.New("not called") }})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, links.Close()) })
	for i := range both {
		r := &replicated{replicas: 2, ranks: 1, shard: levels[i]}
		r.change = func(cfg *runner.Config[buffer]) {
			cfg.Spaces = cfg.Spaces[i:][:1]
			cfg.Topology = runner.Topology[buffer]{Ranks: 1, First: i, Transport: func(rank int) transport.Transport[buffer] {
				if rank == 0 {
					return links.Rank(0)
				}
				return &delayed{links.Rank(1), until}
			}}
		}
		both[i], runs[i] = r, r.build(t)
		r.stages = r.stages[2*i:][:2]
	}
	return both, runs
}

// stepBoth runs a step of both processes.
func stepBoth(t *testing.T, both [2]*replicated, runs [2]*runner.Runner[buffer]) (results [2]*runner.Result, errs [2]error) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		results[1], errs[1] = runs[1].Step(t.Context(), 2, both[1].source())
	}()
	results[0], errs[0] = runs[0].Step(t.Context(), 2, both[0].source())
	<-done
	return results, errs
}

// TestReplicasAgreeOnTheLevel: a replica at level 0 would wait for sums that one at level 1 does not
// expose.
func TestReplicasAgreeOnTheLevel(t *testing.T) { // L8
	synctest.Test(t, func(t *testing.T) {
		both, runs := processes(t, [2]int{0, 1}, nil)
		_, errs := stepBoth(t, both, runs)
		for _, err := range errs {
			require.ErrorIs(t, err, transport.ErrRanks)
			require.ErrorContains(t, err, "shard level 1")
		}
	})
}

// TestUpdateEndsWithAllReads: nothing of a rank is read after Update has returned, so that the trainer
// can change weights or leave the job.
func TestUpdateEndsWithAllReads(t *testing.T) { // L8
	synctest.Test(t, func(t *testing.T) {
		until := make(chan struct{})
		both, runs := processes(t, [2]int{1, 1}, until)
		results, errs := stepBoth(t, both, runs)
		require.NoError(t, errors.Join(errs[:]...))
		ends := make(chan error, 2)
		for i, r := range both {
			go func() { ends <- results[i].Update(r.update) }()
		}
		synctest.Wait()
		require.Empty(t, ends, "the second replica has not read the weights of the first")
		close(until)
		require.NoError(t, errors.Join(<-ends, <-ends))
	})
}

// TestFailedUpdateEndsTheOthers: if the update of a replica fails, Update of the other replica returns an error, too.
func TestFailedUpdateEndsTheOthers(t *testing.T) { // L8
	synctest.Test(t, func(t *testing.T) {
		both, runs := processes(t, [2]int{2, 2}, nil)
		results, errs := stepBoth(t, both, runs)
		require.NoError(t, errors.Join(errs[:]...))
		cause, end := errors.New("planted"), make(chan error)
		go func() { end <- results[0].Update(both[0].update) }()
		require.ErrorIs(t, results[1].Update(func(float64) error { return cause }), cause)
		require.ErrorIs(t, <-end, cause)
	})
	synctest.Test(t, func(t *testing.T) {
		both, runs := processes(t, [2]int{1, 1}, nil)
		results, errs := stepBoth(t, both, runs)
		require.NoError(t, errors.Join(errs[:]...))
		end := make(chan error)
		go func() { end <- results[0].Update(both[0].update) }()
		a := both[1].stages[0]
		a.floats(a.params[0].Grad)[a.own[0][0]]++
		require.ErrorIs(t, results[1].Update(both[1].update), runner.ErrOverwritten)
		require.ErrorContains(t, <-end, runner.ErrOverwritten.Error())
	})
}

// TestUpdateAfterAFailedEvaluation: weights cannot be exchanged after the last call has been aborted, so
// nothing is updated, and the step can be repeated.
func TestUpdateAfterAFailedEvaluation(t *testing.T) { // L8
	synctest.Test(t, func(t *testing.T) {
		until := make(chan struct{})
		close(until)
		both, runs := processes(t, [2]int{1, 1}, until)
		results, errs := stepBoth(t, both, runs)
		require.NoError(t, errors.Join(errs[:]...))
		cause, end := errors.New("planted"), make(chan error)
		go func() {
			_, err := runs[0].Evaluate(t.Context(), 2, both[0].source())
			end <- err
		}()
		_, err := runs[1].Evaluate(t.Context(), 2, runner.Indexed(func(context.Context, batchctx.Entry[buffer]) error { return cause }))
		require.ErrorIs(t, err, cause)
		require.Error(t, <-end)
		for i := range both {
			require.ErrorContains(t, results[i].Update(func(float64) error { panic("updated") }), "an evaluation has failed since")
		}
		results, errs = stepBoth(t, both, runs)
		require.NoError(t, errors.Join(errs[:]...))
		go func() { end <- results[0].Update(both[0].update) }()
		require.NoError(t, results[1].Update(both[1].update))
		require.NoError(t, <-end)
	})
}
