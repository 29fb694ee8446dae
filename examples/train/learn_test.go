package main

import (
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-ml/weir/trainer/corpus"
)

// A small model on a part of Opticks is soon better than the byte frequencies.
func TestLearnsOpticks(t *testing.T) {
	text, err := corpus.Installed(t.Context(), maxText)
	require.NoError(t, err)
	if !strings.HasPrefix(text.Name, "Newton") {
		t.Skip("this Go installation has no Opticks")
	}
	opticks := text.Bytes
	require.InDelta(t, 3.161, text.Entropy(), 5e-4)
	path := filepath.Join(t.TempDir(), "opticks")
	require.NoError(t, os.WriteFile(path, opticks[:100_000], 0o666))
	s := summaryOf(t, "-data", path, "-width", "24", "-layers", "1", "-stages", "3", "-seq", "24", "-steps", "40",
		"-microbatches", "32", "-warmup", "5", "-dropout", "0", "-evaluate", "0", "-tied=false")
	require.Less(t, *s.LossHeldout+3**s.LossHeldoutStandard, *s.LossFrequencies)
}

// Random digits contain nothing to learn except that they are digits: a held-out loss below ln
// 10 would mean that the model can see the token that it should predict.
func TestLearnsNothingFromDigits(t *testing.T) {
	digits, steps := 20_000, "60"
	if *long {
		digits, steps = 400_000, "600"
	}
	for seed := range uint64(3) {
		random := rand.New(rand.NewPCG(seed, 0))
		text := make([]byte, digits)
		for i := range text {
			text[i] = '0' + byte(random.IntN(10))
		}
		path := filepath.Join(t.TempDir(), "digits")
		require.NoError(t, os.WriteFile(path, text, 0o666))
		s := summaryOf(t, "-data", path, "-width", "16", "-steps", steps, "-microbatches", "16", "-dropout", "0",
			"-warmup", "5", "-evaluate", "0", "-seed", fmt.Sprint(seed))
		require.GreaterOrEqual(t, *s.LossHeldout, math.Ln10-3**s.LossHeldoutStandard, "seed %d", seed)
		require.Less(t, *s.LossHeldout, math.Ln10+0.2, "seed %d: not even that they are digits", seed)
	}
}

// The default run, which takes about a minute, has no growth and a held-out loss below 2.5.
func TestDefaultRun(t *testing.T) {
	if !*long {
		t.Skip("needs -long")
	}
	o := defaults()
	s := summaryOf(t, "-steps", fmt.Sprint(o.steps), "-microbatches", fmt.Sprint(o.Microbatches), "-seq", fmt.Sprint(o.sequence),
		"-width", fmt.Sprint(o.model.Width), "-layers", fmt.Sprint(o.model.Layers), "-heads", fmt.Sprint(o.model.Heads),
		"-warmup", fmt.Sprint(o.warmup), "-dropout", fmt.Sprint(o.model.Dropout), "-evaluate", fmt.Sprint(o.evaluate),
		"-tied="+fmt.Sprint(o.tied))
	require.Zero(t, s.Growth)
	require.Less(t, *s.LossHeldout, 2.5)
}
