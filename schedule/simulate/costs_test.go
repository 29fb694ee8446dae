package simulate_test

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/stretchr/testify/require"

	"github.com/weir-ml/weir/internal/testing/plantest"
	"github.com/weir-ml/weir/internal/testing/testkit"
	"github.com/weir-ml/weir/schedule"
	"github.com/weir-ml/weir/schedule/lengths"
	"github.com/weir-ml/weir/schedule/simulate"
)

// someCosts returns costs with a value in every field.
func someCosts() *simulate.Costs {
	return &simulate.Costs{
		Unit: "ms", Scale: 1000, Latency: 601, PerMiB: 25, Microbatch: 34 << 20,
		Links:    []simulate.LinkCosts{{From: 1, To: 0, Latency: 700, PerMiB: 30}, {From: 0, To: 1}},
		Resident: []int64{1 << 30, 2 << 30},
		Stages: []simulate.StageCosts{
			{F: 18522, I: 18086, W: 9337, B: 27000, Joined: 40000, Recompute: 17000, Output: 1 << 20, Gradient: 2 << 20, Saved: 34 << 20, FreedByI: 2 << 20, Carry: 1 << 19},
			{F: 1},
		},
	}
}

const someCostsText = `{
  "schema": 1,
  "unit": "ms",
  "scale": 1000,
  "latency": 601,
  "per_mib": 25,
  "microbatch": 35651584,
  "links": [
    {"from":1,"to":0,"latency":700,"per_mib":30},
    {"from":0,"to":1}
  ],
  "resident": [
    1073741824,
    2147483648
  ],
  "stages": [
    {"f":18522,"i":18086,"w":9337,"b":27000,"joined":40000,"recompute":17000,"output":1048576,"gradient":2097152,"saved":35651584,"freed_by_i":2097152,"carry":524288},
    {"f":1}
  ]
}
`

func TestCostsText(t *testing.T) {
	var b bytes.Buffer
	require.NoError(t, simulate.WriteCosts(&b, someCosts()))
	require.Equal(t, someCostsText, b.String())
	back, err := simulate.ReadCosts(&b)
	require.NoError(t, err)
	require.Equal(t, someCosts(), back)

	back, err = simulate.ReadCosts(strings.NewReader(` { "stages" : [ { } ] , "schema" : 1 } `))
	require.NoError(t, err)
	require.Equal(t, &simulate.Costs{Stages: make([]simulate.StageCosts, 1)}, back)
	require.InDelta(t, 2.5, back.Units(2)+someCosts().Units(500), 0)
}

func TestCostsTextErrors(t *testing.T) {
	for _, test := range []struct{ from, to, fault string }{
		{`"schema": 1`, `"schema": 2`, `line 2:13: found 2, expected the schema 1`},
		{"  \"schema\": 1,\n", "", `line 1:1: found no schema, expected "schema": 1 in the costs`},
		{`"unit"`, `"units"`, `line 3:3: found an unknown field "units", expected schema, unit, scale, latency, per_mib, far_latency, far_per_mib, replicas, shard, replica_latency, replica_per_mib, microbatch, links, resident, stages or lengths`},
		{`"scale"`, `"unit"`, `line 4:3: found "unit", which is there already: give it once`},
		{`"ms"`, `5`, `line 3:11: found 5, expected a string`},
		{`"ms"`, `null`, `line 3:11: found null, expected a string`},
		{`"latency": 601`, `"latency": 0.601`, `line 5:14: found 0.601, expected a whole number`},
		{`"latency": 601`, `"latency": -1`, `the latency is -1: it must be 0 to 281474976710656`},
		{`"latency": 601`, `"latency": 281474976710657`, `the latency is 281474976710657: it must be 0 to 281474976710656`},
		{`"latency": 601`, `"latency": 1` + strings.Repeat("0", 50), `line 5:14: found 1000000000000000000000000000000000000000..., expected a whole number`},
		{`"latency": 601`, `"latency": true`, `line 5:14: found true, expected a whole number`},
		{`"latency": 601`, `"latency" 601`, `line 5:13: found "601", expected a colon`},
		{`"latency": 601`, `"latency": {"f":1}`, `line 5:14: found {, expected a whole number`},
		{`{"from":0,"to":1}`, `[]`, `line 10:5: found [, expected an object, {`},
		{`{"from":0,"to":1}`, `{"from":-1,"to":1}`, `link 1 is from rank -1 to rank 1: use two different ranks, from 0`},
		{`{"from":0,"to":1}`, `{"from":0,"too":1}`, `line 10:15: found an unknown field "too", expected from, to, latency or per_mib`},
		{`"links": [`, `"links": {`, `line 8:12: found {, expected a list, [`},
		{`{"f":1}`, `{"g":1}`, `line 18:6: found an unknown field "g", expected f, i, w, b, joined, recompute, output, gradient, saved, freed_by_i, carry, offloaded, resident, quantize, forward_weights, backward_weights, weights, gradients, optimizer, per_token or per_square`},
		{`{"f":1}`, `{"f":1`, `line 19:3: found "]", expected a comma or }`},
		{"  ]\n}", "  ]\n", `line 21:1: found the end of the text, expected more of the costs`},
		{"  ]\n}", "  ]\n}}", `line 20:2: found something behind the costs, expected the end of the text`},
		{`{"f":1}`, `{"f":1,"per_token":{"f":"x"}}`, `expected a number`},
		{`{"f":1}`, `{"f":1,"per_token":{"g":1}}`, `found an unknown field "g", expected f, i, w, b, recompute, output, gradient, saved, freed_by_i, carry or offloaded`},
		{`{"f":1}`, `{"f":1,"per_square":{"b":-0.5}}`, `b of per_square of stage`},
		{`{"f":1}`, `{"f":1,"per_token":{"saved":2,"freed_by_i":3}}`, `frees 3 bytes at I and offloads 0 for each token, but has saved only 2`},
		{`{"f":1}`, `{"f":1,"joined":1,"per_token":{"f":1}}`, `but have joined pairs`},
		{`"stages": [`, `"lengths": [{"tokens":2,"squares":5}], "stages": [`, `microbatch 0: 2 tokens cannot have squares of 5`},
		{`"stages": [`, `"stages": [` + strings.Repeat("{},", schedule.MaxStages), `found one more value, expected at most 16384`},
		{`"freed_by_i":2097152`, `"freed_by_i":35651585`, `stage 0 frees 35651585 bytes at I, but has saved only 35651584: free at most the saved bytes`},
		{`{"from":0,"to":1}`, `{"from":1,"to":1}`, `link 1 is from rank 1 to rank 1: use two different ranks, from 0`},
	} {
		require.Contains(t, someCostsText, test.from)
		_, err := simulate.ReadCosts(strings.NewReader(strings.Replace(someCostsText, test.from, test.to, 1)))
		require.ErrorIs(t, err, simulate.ErrCosts, "%q for %q", test.to, test.from)
		require.ErrorContains(t, err, test.fault)
	}
	_, err := simulate.ReadCosts(strings.NewReader(""))
	require.ErrorContains(t, err, "line 1:1: found the end of the text")
}

// Errors contain the name of the file. Reading fails if the reader fails or the text is too long,
// and writing fails if the writer fails.
func TestCostsStreams(t *testing.T) {
	path := filepath.Join(t.TempDir(), "costs.json")
	require.NoError(t, os.WriteFile(path, []byte("{\n\"cat\": 1}"), 0o644))
	file, err := os.Open(path)
	require.NoError(t, err)
	defer file.Close()
	_, err = simulate.ReadCosts(file)
	require.ErrorContains(t, err, path+":2:1: found an unknown field")

	lost := errors.New("lost")
	_, err = simulate.ReadCosts(iotest.ErrReader(lost))
	require.ErrorIs(t, err, lost)
	_, err = simulate.ReadCosts(io.LimitReader(plantest.Endless{}, simulate.MaxCostsText+10))
	require.ErrorIs(t, err, simulate.ErrCosts)
	require.ErrorContains(t, err, "longer than 16777216 bytes")
	require.ErrorIs(t, simulate.WriteCosts(plantest.Full{}, someCosts()), io.ErrShortWrite)
	require.ErrorIs(t, simulate.WriteCosts(io.Discard, &simulate.Costs{}), simulate.ErrCosts)
}

// Validate reports all faults together.
func TestCostsValidate(t *testing.T) {
	c := &simulate.Costs{
		Unit: strings.Repeat("m", 33), Scale: -1, Latency: -2, PerMiB: 1<<48 + 1,
		Links:    []simulate.LinkCosts{{From: -1, Latency: -3, PerMiB: -4}},
		Resident: []int64{-5},
		Stages:   []simulate.StageCosts{{F: -6, Carry: -7}},
	}
	err := c.Validate()
	require.ErrorIs(t, err, simulate.ErrCosts)
	require.Len(t, strings.Split(err.Error(), "\n"), 10)
	for _, text := range []string{
		"the name of the unit has 33 bytes: use at most 32", "the scale is -1: it must be 0 to 281474976710656", "the latency is -2",
		"the time of a MiB is 281474976710657", "link 0 is from rank -1 to rank 0", "the latency of link 0 is -3", "the time of a MiB on link 0 is -4",
		"the resident size of rank 0 is -5", "f of stage 0 is -6", "carry of stage 0 is -7",
	} {
		require.ErrorContains(t, err, text)
	}
	require.NoError(t, someCosts().Validate())
	require.ErrorContains(t, (&simulate.Costs{}).Validate(), "costs of 0 stages")
	require.ErrorContains(t, (*simulate.Costs)(nil).Validate(), "the costs are nil")
}

// Run rejects costs that do not fit the plan.
func TestCostsFit(t *testing.T) {
	p := plantest.OneFOneB(2, 2, 0, 3, false)
	one := simulate.StageCosts{F: 1}
	for _, test := range []struct {
		costs simulate.Costs
		fault string
	}{
		{simulate.Costs{Stages: []simulate.StageCosts{one, one}}, "costs of 2 stages, but the plan has 4: give one entry for all, or one for each"},
		{simulate.Costs{Stages: []simulate.StageCosts{one}, Resident: []int64{1}}, "resident bytes are given for 1 of 2 ranks: give them for all or none"},
		{simulate.Costs{Stages: []simulate.StageCosts{one}, Links: []simulate.LinkCosts{{From: 0, To: 2}}}, "link 0 is from rank 0 to rank 2: ranks are 0 to 1"},
		{simulate.Costs{Stages: []simulate.StageCosts{{Output: 1 << 48}}, PerMiB: 1 << 36}, "too large for a step of 24 actions"},
		{simulate.Costs{Stages: []simulate.StageCosts{{F: -1}}}, "f of stage 0 is -1"},
	} {
		_, err := simulate.Run(p, &test.costs, schedule.Unlimited)
		require.ErrorIs(t, err, simulate.ErrCosts)
		require.ErrorContains(t, err, test.fault)
	}
	_, err := simulate.Run(p, &simulate.Costs{Stages: []simulate.StageCosts{one}, Resident: []int64{}}, schedule.Unlimited)
	require.NoError(t, err)
	_, err = simulate.Run(p, &simulate.Costs{Stages: []simulate.StageCosts{one}}, -2)
	require.ErrorIs(t, err, schedule.ErrParams)
	require.ErrorContains(t, err, "capacity -2: it must be 0 or more, or -1 for no limit")
}

// FuzzReadCosts requires that costs that can be read are valid, and are equal after writing and
// reading again.
func FuzzReadCosts(f *testing.F) {
	f.Add([]byte(someCostsText))
	f.Add([]byte(`{"schema":1,"unit":"\ud800","stages":[{}]}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		c, err := simulate.ReadCosts(bytes.NewReader(data))
		if err != nil {
			require.ErrorIs(t, err, simulate.ErrCosts)
			return
		}
		var b bytes.Buffer
		require.NoError(t, simulate.WriteCosts(&b, c))
		back, err := simulate.ReadCosts(&b)
		require.NoError(t, err)
		require.Equal(t, c, back)
	})
}

// FitLengths finds the costs from measurements at several sizes, and the bytes exactly.
func TestFitLengths(t *testing.T) {
	want := &simulate.Costs{Unit: "ns", Latency: 7, Stages: []simulate.StageCosts{{
		F: 900, I: 800, Saved: 4096, Resident: 5,
		PerToken:  simulate.Rates{F: 3.25, I: 2.5, W: 1.75, Output: 8192, Saved: 557056, FreedByI: 4096, Carry: 12},
		PerSquare: simulate.Rates{F: 0.125, I: 0.25, Saved: 2},
	}, {B: 5, Gradient: 8192}}}
	sizes := []lengths.Size{lengths.Of(128), lengths.Of(256, 512), lengths.Of(1024), lengths.Of(64, 64, 64)}
	var measured []*simulate.Costs
	for _, size := range sizes {
		measured = append(measured, want.AtSize(size))
	}
	got, misfit, err := simulate.FitLengths(sizes, measured)
	require.NoError(t, err)
	require.Less(t, misfit, 1e-3)
	for _, size := range append(sizes, lengths.Of(5000, 3)) {
		for stage := range want.Stages {
			a, b := want.Stages[stage].At(size), got.Stages[stage].At(size)
			require.InDelta(t, a.F, b.F, 2+0.001*float64(a.F))
			require.InDelta(t, a.I+a.W, b.I+b.W, 2+0.001*float64(a.I))
			a.F, a.I, a.W, b.F, b.I, b.W = 0, 0, 0, 0, 0, 0
			require.Equal(t, a, b)
		}
	}
	require.EqualValues(t, 7, got.Latency)
	_, _, err = simulate.FitLengths(sizes[:2], measured[:2])
	require.ErrorIs(t, err, simulate.ErrCosts)
	_, _, err = simulate.FitLengths(sizes[:3], append(measured[:2:2], &simulate.Costs{Stages: make([]simulate.StageCosts, 1)}))
	require.ErrorContains(t, err, "measurement 2 has 1 stages")
}

// TestFixtures compares costs with those that earlier versions wrote.
func TestFixtures(t *testing.T) {
	testkit.Format{
		Name: "costs-%d.json", Mark: "\"schema\": %d", Number: 1, Remedy: "the version of Weir that wrote it",
		Write: func(t *testing.T) []byte {
			var text bytes.Buffer
			require.NoError(t, simulate.WriteCosts(&text, someCosts()))
			return text.Bytes()
		},
		Read: func(text []byte) error {
			_, err := simulate.ReadCosts(bytes.NewReader(text))
			return err
		},
	}.Test(t)
}
