package tcp_test

import (
	"context"
	"errors"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	batchctx "github.com/weir-ml/weir/context"
	"github.com/weir-ml/weir/kernels"
	"github.com/weir-ml/weir/loss"
	"github.com/weir-ml/weir/memory"
	"github.com/weir-ml/weir/schedule/runner"
	"github.com/weir-ml/weir/stages"
	"github.com/weir-ml/weir/transport"
	"github.com/weir-ml/weir/transport/tcp"
)

// evaluated runs an evaluation of two stages, one in each process, over sockets. Its source makes
// "points", which the first stage reads, and labels that are the index plus add.
func evaluated(ctx context.Context, rank int, address string, add int) (err error) {
	dev, err := kernels.NewHost(kernels.HostConfig{Capacity: 1 << 20})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, dev.Close()) }()
	end, err := tcp.Join(ctx, tcp.Config{Rank: rank, Ranks: 2, Address: address, Capacity: 1, Token: "a job"}, dev)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, end.Close()) }()
	type buffer = kernels.Buffer
	none := func(context.Context, batchctx.Microbatch[buffer], []buffer, []buffer) error { return nil }
	var first, last stages.Decl[buffer]
	first.Outputs("h")
	points := first.Part("points")
	last.Inputs("h")
	labels, sum := last.Part("labels"), last.Loss("loss")
	run, err := runner.New(runner.Config[buffer]{
		Stages: []stages.Stage[buffer]{
			first.Stage("first", func(_ context.Context, mb batchctx.Microbatch[buffer], _, out []buffer) error {
				out[0] = mb.Retain(mb.Part(points))
				return nil
			}, none),
			last.Stage("last", func(_ context.Context, mb batchctx.Microbatch[buffer], _, _ []buffer) error {
				mb.Loss(sum, float64(dev.Float32s(mb.Part(labels))[0]), 1)
				return nil
			}, none),
		},
		Spaces: runner.Spaces(dev), Losses: []loss.Def{{Name: "loss", Objective: true}}, Schedule: "1f1b", CheckSource: true,
		Topology: runner.Topology[buffer]{Ranks: 2, First: rank, Transport: func(int) transport.Transport[buffer] { return end }},
	})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, run.Close()) }()
	_, err = run.Evaluate(ctx, 3, runner.Indexed(func(_ context.Context, e batchctx.Entry[buffer]) error {
		for part, value := range map[string]int{"points": e.Index(), "labels": e.Index() + add} {
			b := e.Must(dev.Alloc(memory.Entry, kernels.Float32, 1))
			e.Check(dev.WriteFloat32(b, []float32{float32(value)}))
			e.Put(part, b)
		}
		return nil
	}))
	return err
}

// CheckSource compares the parts that ranks in different processes make. If a part differs, both ranks fail and
// name it.
func TestSourcesOfTwoProcesses(t *testing.T) {
	for network, address := range addresses {
		for _, apart := range []int{0, 1} {
			at, errs := address(t), make([]error, 2)
			var all sync.WaitGroup
			for rank := range errs {
				all.Go(func() { errs[rank] = evaluated(t.Context(), rank, at, rank*apart) })
			}
			all.Wait()
			for rank, err := range errs {
				if apart == 0 {
					require.NoError(t, err, "%s, rank %d", network, rank)
					continue
				}
				require.ErrorIs(t, err, runner.ErrIndexed, "%s, rank %d", network, rank)
				require.ErrorContains(t, err, `ranks 0 and 1 make different "labels" of the same microbatch`)
			}
		}
	}
}
