package runner_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-ml/weir/memory"
	"github.com/weir-ml/weir/schedule/runner"
)

// celled is a space with cells of losses on its device. No stage here adds to them.
type celled struct {
	*memory.GCSpace[number]
	live map[number]bool
}

func (c celled) NewLossCells(int) (number, error) {
	cells := num(0)
	c.live[cells] = true
	return cells, nil
}

func (celled) ClearLossCells(number) error { return nil }

func (celled) ReadLossCells(words []int64, _ number) error {
	clear(words)
	return nil
}

func (c celled) Release(h number) (int64, error) {
	if *h != 0 {
		return c.GCSpace.Release(h)
	}
	if !c.live[h] {
		return 0, memory.ErrStale
	}
	delete(c.live, h)
	return 8, nil
}

// The cells of losses live as long as the runner. A second Close does nothing.
func TestCloseReleasesCells(t *testing.T) {
	space := celled{memory.NewGCSpace[number](nil, nil), map[number]bool{}}
	cfg := config(chain())
	cfg.Spaces = runner.Spaces[number](space)
	r := newRunner(t, cfg)
	_, err := r.Step(t.Context(), 2, &counted{})
	require.NoError(t, err)
	require.Len(t, space.live, 1)
	require.NoError(t, r.Close())
	require.Empty(t, space.live)
	require.NoError(t, r.Close())
}
