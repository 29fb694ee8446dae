package fit_test

import (
	"context"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-ml/weir/cmd/weir/internal/fit"
	"github.com/weir-ml/weir/schedule"
	"github.com/weir-ml/weir/schedule/lengths"
)

// piecesText is a profile of two layers. A layer keeps 100 bytes a token, of which 8 are its input, and they share a
// table of 4 bytes a token of the longest sequence.
const piecesText = `{"form": "weir model profile", "schema": 2, "model": "Tiny", "settings": {"dtype": "float32"}, "fitted": [4, 8, 16], "checked": [[32]],
"pieces": [{"name": "before", "kind": 0}, {"name": "0", "kind": 1}, {"name": "1", "kind": 1}, {"name": "after", "kind": 2}],
"kinds": [
 {"parameters": {"count": 1000, "trained": 1000, "experts": 0, "bytes": 4000, "buffers": 0}, "saved": {}, "input": {}, "cached": {}, "freed": {}, "carry": {}, "border": {"token": 8},
  "temporary": {"F": [], "B": [], "I": [], "W": []}, "flops": {"F": {}, "B": {}, "I": {}, "W": {}}},
 {"parameters": {"count": 500, "trained": 500, "experts": 400, "bytes": 2000, "buffers": 0}, "saved": {"token": 100}, "input": {"token": 8}, "cached": {}, "freed": {"token": 20}, "carry": {"token": 30}, "border": {"token": 8},
  "temporary": {"F": [{"token": 50}, {"constant": 100, "square": 1}], "B": [{"token": 70}], "I": [{"token": 60}], "W": [{"constant": 10}]},
  "flops": {"F": {"token": 1000}, "I": {"token": 1000}, "W": {"token": 500}, "B": {"token": 1500}}},
 {"parameters": {"count": 1, "trained": 0, "experts": 0, "bytes": 4, "buffers": 0}, "saved": {"token": 40, "several": {"token": 44}}, "input": {}, "cached": {}, "freed": {}, "carry": {}, "border": {},
  "temporary": {"F": [], "B": [], "I": [], "W": []}, "flops": {"F": {"token": 200}, "B": {"token": 400}, "I": {"token": 200}, "W": {"token": 200}}}],
"batch": {"token": 2}, "shared": [{"pieces": [1, 2], "saved": {"longest": 4}}], "tied": [{"name": "w", "pieces": [0, 3], "count": 1000, "trained": 1000, "bytes": 4000}]}`

func readPieces(t *testing.T, replace ...string) (*fit.Pieces, error) {
	t.Helper()
	require.True(t, fit.IsPieces([]byte(piecesText)))
	return fit.ReadPieces(strings.NewReader(strings.NewReplacer(replace...).Replace(piecesText)))
}

// TestPiecesPredict compares the predicted memory of a stage with a calculation by hand.
func TestPiecesPredict(t *testing.T) {
	frozen, err := readPieces(t, `"freed": {}, "carry": {}, "border": {},`, `"freed": {"token": 30}, "carry": {}, "border": {},`,
		`"trained": 1000`, `"trained": 0`, `"trained": 500`, `"trained": 0`) // without gradients of weights
	require.NoError(t, err)
	require.EqualValues(t, 2001, frozen.Parameters())
	predict := func(rule string, ranks, sequences int) *fit.Prediction {
		return predictPieces(t, frozen, rule, ranks, sequences)
	}
	// One stage and 10 tokens. F saves 100 bytes a token for each layer, and the shared table. The peak is in the
	// backward of the last layer, which also has 8 bytes a token for its gradient and 70 temporary ones. Tokens and
	// labels take 2 bytes a token each.
	saved := int64(10 * (100 + 100 + 4))
	out := predict("1f1b", 1, 1)
	require.Equal(t, max(saved+10*40, saved+10*(8+70))+2*20, out.Ranks[0].Activations)
	require.EqualValues(t, 4*2001, out.Ranks[0].Weights)
	// With two sequences, the table is shared, and the last piece has a different amount.
	out = predict("1f1b", 1, 2)
	require.EqualValues(t, max(20*(100+100+44)+10*4, 20*(200+8+70)+10*4)+2*40, out.Ranks[0].Activations)
	// With two stages, the second one has a copy of the tied parameter, and it receives its input and keeps it.
	out = predict("1f1b", 2, 1)
	require.Equal(t, []int{1, 1}, out.Cut)
	require.EqualValues(t, 4*(500+1+1000), out.Ranks[1].Weights)
	require.EqualValues(t, 10*(100+8+70+4)-10*8+20, out.Ranks[1].Activations) // without the input, a transfer
	require.EqualValues(t, 10*8, out.Ranks[1].Transfers)
	// The runtime keeps the gradient that the first stage gets, so that B adds to a copy of it. The output is
	// still being sent.
	require.EqualValues(t, 10*(100+4)+10*(70+8)+10*8+20, out.Ranks[0].Activations)
	// The last piece saves 30 bytes a token that W does not need, but I frees nothing before it ends. So while I runs the
	// layer before, all saved bytes are alive, and so are the carry and the gradient of the layer's output.
	out = predict("zb-h1", 2, 1)
	require.EqualValues(t, 10*(100+40+4)-10*8+10*(60+30+8)+20, out.Ranks[1].Activations)
}

func predictPieces(t *testing.T, pieces *fit.Pieces, rule string, ranks, sequences int) *fit.Prediction {
	t.Helper()
	named, err := schedule.Find(rule)
	require.NoError(t, err)
	place, err := named.Place(ranks, ranks)
	require.NoError(t, err)
	plan, err := named.Rule(schedule.Params{Placement: place, Microbatches: 1})
	require.NoError(t, err)
	out, err := fit.Predict(context.Background(), fit.Request{Pieces: pieces, Plan: plan, Setup: fit.Setup{Sequence: 10, Microbatch: sequences}})
	require.NoError(t, err)
	return out
}

// TestPiecesGradients counts gradients from the backward of their piece in the first B, and from the
// beginning of the first W if the runtime chooses the order of the weights.
func TestPiecesGradients(t *testing.T) {
	small, err := readPieces(t, `"count": 500, "trained": 500, "experts": 400`, `"count": 5, "trained": 5, "experts": 0`)
	require.NoError(t, err)
	// The copy of the tied parameter is counted with the last piece, and the gradients of the layers are so small
	// that the peak is in the backward of the last layer, before the gradients of the first one.
	one := predictPieces(t, small, "1f1b", 1, 1).Ranks[0]
	require.EqualValues(t, []int64{4 * (1000 + 5), 8 * 1010}, []int64{one.Gradients, one.Optimizer})
	require.EqualValues(t, 10*(100+100+4)+10*(8+70)+2*20, one.Activations)
	// If they are large, the peak is in the backward of the first layer, with all gradients. The saved bytes of the
	// last layer are gone.
	large, err := readPieces(t)
	require.NoError(t, err)
	one = predictPieces(t, large, "1f1b", 1, 1).Ranks[0]
	require.EqualValues(t, []int64{4 * 2000, 8 * 2000}, []int64{one.Gradients, one.Optimizer})
	require.EqualValues(t, 10*(100+4)+10*(8+70)+2*20, one.Activations)
	// W begins with what F and I have kept, and with the gradients of the layer and of the tied parameter.
	one = predictPieces(t, large, "zb-h1", 2, 1).Ranks[1]
	require.Equal(t, "1W0", one.Peak)
	require.EqualValues(t, 4*1500, one.Gradients)
	require.EqualValues(t, 10*(100+40+4)-10*8+10*30+20+10*8, one.Activations)
}

// TestPiecesCosts checks that costs as functions of length agree with the costs for each length, and that a
// split backward carries the bytes that the profile states.
func TestPiecesCosts(t *testing.T) {
	pieces, err := readPieces(t)
	require.NoError(t, err)
	one := pieces.Costs(fit.Setup{Sequence: 10}, []int{1, 1}, 1e9, 1e9, false)
	rates := pieces.Costs(fit.Setup{Sequence: 10}, []int{1, 1}, 1e9, 1e9, true)
	for stage := range one.Stages {
		at := rates.Stages[stage].At(lengths.Of(10))
		if stage == 1 { // for microbatches of any lengths, the amount for several sequences counts
			one.Stages[1].Saved += 4 * 10
		}
		require.Equal(t, one.Stages[stage], at)
	}
	c := one.Stages[0] // its whole backward is in W, so the gradient of its output is kept until then
	require.EqualValues(t, []int64{10_000, 0, 15_000}, []int64{c.F, c.I, c.W})
	require.EqualValues(t, []int64{1040, 0, 80, 80}, []int64{c.Saved, c.FreedByI, c.Carry, c.Output})
	c = pieces.Costs(fit.Setup{Sequence: 10}, []int{1, 1, 0}, 1e9, 1e9, false).Stages[1]
	require.EqualValues(t, []int64{10_000, 10_000, 5_000}, []int64{c.F, c.I, c.W})
	require.EqualValues(t, []int64{1040, 200, 300, 80}, []int64{c.Saved, c.FreedByI, c.Carry, c.Output})
	cut, err := pieces.Cut(fit.Setup{Sequence: 10}, nil, 2)
	require.NoError(t, err)
	require.Equal(t, []int{1, 1}, cut)
}

// TestPiecesOfSequencesAndTiles has an amount for each sequence, such as an image, and an amount that a kernel
// pads to 8 tokens.
func TestPiecesOfSequencesAndTiles(t *testing.T) {
	pieces, err := readPieces(t, `"saved": {"token": 100}`, `"saved": {"sequence": 1000, "token": 100, "tile": 8, "tiled": 4, "tiled_square": 2}`)
	require.NoError(t, err)
	saved := func(sequences int) int64 {
		return pieces.Costs(fit.Setup{Sequence: 10, Microbatch: sequences}, []int{2, 0}, 1e9, 1e9, false).Stages[0].Saved
	}
	require.EqualValues(t, 2*(1000+10*100+16*4+10*16*2)+10*4, saved(1))
	require.EqualValues(t, 2*(1000+10*100+16*4+10*16*2), saved(2)-saved(1))
	require.ErrorContains(t, pieces.ByLength(), "0 has an amount for each sequence")
	pieces.Kinds[1].Saved.Sequence = 0
	require.NoError(t, pieces.ByLength())
	varied := pieces.Costs(fit.Setup{Sequence: 10}, []int{2, 0}, 1e9, 1e9, true).Stages[0]
	for n := range int64(12) {
		exact := pieces.Costs(fit.Setup{Sequence: int(4 + n)}, []int{2, 0}, 1e9, 1e9, false).Stages[0].Saved
		require.GreaterOrEqual(t, varied.At(lengths.Of(4+n)).Saved, exact)
	}
}

func TestPiecesFaults(t *testing.T) {
	saved := func(amount string) string { return `"saved": ` + amount + `, "input": {"token": 8}` }
	for _, c := range []struct{ from, to, want string }{
		{`"schema": 2`, `"schema": 1`, "found 1, expected the schema 2"},
		{`"form": "weir model profile"`, `"form": "a plan"`, `line 1:10: found the form "a plan", expected "weir model profile"`},
		{`"kind": 2}`, `"kind": 7}`, "piece 3 is of kind 7, but there are 3 kinds"},
		{`"pieces": [1, 2]`, `"pieces": [1, 9]`, "shared 0 has piece 9, but there are 4"},
		{`"constant": 100`, `"constants": 100`, `found an unknown field "constants"`},
		{`"fitted": [4, 8, 16], `, ``, `line 1:1: found no "fitted", expected one in the profile of a model: add it, or write the file again`},
		{`"fitted": [4, 8, 16]`, `"fitted": []`, "fitted has no lengths"},
		{`[[32]]`, `[]`, "checked has no microbatches"},
		{`[[32]]`, `[[]]`, "checked 0 has no lengths"},
		{`[[32]]`, `[[1000000000000]]`, "checked 0 has a length of 1000000000000 tokens, expected 1 to 67108864: correct the file, or profile the model again"},
		{`"saved": {"token": 100}, `, ``, `line 6:2: found no "saved", expected one in /kinds/1 of the profile of a model`},
		{`"W": {"token": 500}, `, ``, `found no "W", expected one in /kinds/1/flops`},
		{`"trained": 500, `, ``, `found no "trained", expected one in /kinds/1/parameters`},
		{`"trained": 500`, `"trained": 501`, `trained of kind 1 ("0") is 501, expected 0 to 500`},
		{`"experts": 400`, `"experts": 501`, `experts of kind 1 ("0") is 501, expected 0 to 500`},
		{`"count": 500`, `"count": -5`, `count of kind 1 ("0") is -5`},
		{`"count": 500`, `"count": 4611686018427387904`, `count of kind 1 ("0") is 4611686018427387904`},
		{`"count": 500`, `"count": 1125899906842624`, "the pieces have 2.25e+15 parameters"},
		{`[0, 3], "count": 1000`, `[0, 3], "count": -1000`, `count of tied "w" is -1000`},
		{saved(`{"token": 100}`), saved(`{"token": NaN}`), `found "NaN", expected a value`},
		{saved(`{"token": 100}`), saved(`{"token": 1e999}`), `found 1e999, expected a number`},
		{saved(`{"token": 100}`), saved(`{"token": 1e16}`), `saved of kind 1 ("0") is 4e+16 for 1 x 4 tokens, expected 0 to 2.81e+14`},
		{saved(`{"token": 100}`), saved(`{"token": 100, "constant": -1000}`), `saved of kind 1 ("0") is -600 for 1 x 4 tokens`},
		{saved(`{"token": 100}`), saved(`{"token": 100, "several": {"token": -100}}`), `saved of kind 1 ("0") is -800 for 2 x 4 tokens`},
		{saved(`{"token": 100}`), saved(`{"several": {"several": {}}}`), `several of saved of kind 1 ("0") has several itself`},
		{saved(`{"token": 100}`), saved(`{"token": 100, "tile": -8}`), `tile of saved of kind 1 ("0") is -8`},
		{saved(`{"token": 100}`), saved(`{"token": 100, "tile": 0, "tiled": 4}`), `tile of saved of kind 1 ("0") is 0, expected 1 to`},
		{saved(`{"token": 100}`), saved(`{"token": 100, "tile": 4611686018427387904, "tiled": 4}`), `tile of saved of kind 1 ("0") is 4611686018427387904`},
		{`"input": {"token": 8}`, `"input": {"token": 200}`, `input of kind 1 ("0") is 800 for 1 x 4 tokens, expected at most what the piece has saved, 400`},
		{`"F": {"token": 1000}`, `"F": {"token": 1e300}`, `flops F of kind 1 ("0") is 4e+300 for 1 x 4 tokens, expected 0 to 1e+24`},
		{`"batch": {"token": 2}`, `"batch": {"token": -200}`, "batch is -800 for 1 x 4 tokens"},
		{`"flops": {"F": {"token": 200}`, `"seconds": {"F": {"token": -1}}, "flops": {"F": {"token": 200}`, `seconds F of kind 2 ("after") is -4`},
		{`"flops": {"F": {"token": 200}`, `"seconds": {"f": {}}, "flops": {"F": {"token": 200}`, `seconds of kind 2 ("after") has the action "f", expected F, B, I or W`},
	} {
		require.Contains(t, piecesText, c.from)
		_, err := readPieces(t, c.from, c.to)
		require.ErrorIs(t, err, fit.ErrModel, c.to)
		require.ErrorContains(t, err, c.want)
	}
	negative, err := readPieces(t, `"F": [{"token": 50}`, `"F": [{"token": 50, "constant": -1e6}`)
	require.NoError(t, err, "a temporary amount may be negative")
	_, err = negative.Adapt(fit.Setup{Sequence: 8, Microbatch: 1 << 40})
	require.ErrorContains(t, err, `saved of kind 1 ("0") is 8.79609e+14 for 1099511627776 x 8 tokens`)
	pieces, err := readPieces(t)
	require.NoError(t, err)
	for _, c := range []struct {
		setup fit.Setup
		want  string
	}{
		{fit.Setup{Sequence: 64}, "a sequence has 64 tokens, and the profile holds from 4 to 32"},
		{fit.Setup{Sequence: 8, Tensor: 2}, "the profile has whole layers"},
		{fit.Setup{Sequence: 8, Recompute: fit.Recompute{All: true}}, "a profile says itself what is computed again"},
	} {
		_, err := pieces.Adapt(c.setup)
		require.ErrorIs(t, err, fit.ErrSetup)
		require.ErrorContains(t, err, c.want)
	}
	_, err = pieces.Cut(fit.Setup{Sequence: 8}, []int{3, 1}, 2)
	require.ErrorContains(t, err, "the cut has 4 layers in 2 stages, but the model has 2 layers")
}
