package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-ml/weir/schedule/units"
)

const tinyLlama = `{"model_type": "llama", "hidden_size": 64, "intermediate_size": 96, "num_attention_heads": 4, "num_hidden_layers": 6, "vocab_size": 200}`

const tinyFlags = "--num-layers 4 --hidden-size 64 --num-attention-heads 4 --vocab-size 64 --position-embedding-type none --seq-length 8 "

// fitRun runs weir fit over a description.
func fitRun(t *testing.T, config string, args ...string) (status int, out, errs string) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "config.json")
	require.NoError(t, os.WriteFile(path, []byte(config), 0o644))
	var stdout, stderr bytes.Buffer
	status = run(append([]string{"fit", path}, args...), strings.NewReader(""), &stdout, &stderr)
	return status, stdout.String(), strings.ReplaceAll(stderr.String(), path, "config.json")
}

func TestFitFaults(t *testing.T) {
	for _, c := range []struct {
		config string
		args   []string
		status int
		errs   string
	}{
		{tinyLlama, nil, misused, "weir: give --seq, the tokens of a sequence"},
		{`{"model_type": "other"}`, []string{"--seq", "8"}, misused, `config.json: model_type is "other", which is not supported`},
		{`{"model_type": 1,}`, []string{"--seq", "8"}, misused, `config.json:1:18: found "}", expected the name of a field`},
		{tinyLlama, []string{"--seq", "8", "--tensor", "3"}, misused, "weir: 4 attention heads do not divide over a tensor parallelism of 3"},
		{tinyLlama, []string{"--seq", "8", "--ranks", "9"}, misused, "6 layers do not suffice for 9 stages, of which only the first and the last may have none"},
		{tinyLlama, []string{"--seq", "8", "--set", "num_attention_heads=5", "--set", "num_key_value_heads=5"}, misused, "does not divide into 5 attention heads: give the size of a head with --set head_dim=N"},
		{tinyLlama, []string{"--seq", "8", "--ranks", "3", "--layers", "3,0,3"}, misused, "stage 1 has 0 layers: give each one or more"},
		{tinyLlama, []string{"--seq", "8", "--recompute", "all"}, misused, `--recompute: "all" is not a recompute group`},
		{tinyLlama, []string{"--seq", "8", "--layers", "1,2"}, misused, "the cut has 3 layers in 2 stages, but the model has 6 layers and the plan 4 stages"},
		{tinyLlama, []string{"--seq", "8", "--ranks", "2", "--schedule", "zb-v", "--to", "layout"}, misused, "stage 2 of zb-v is on rank 1: use 1f1b or interleaved"},
		{tinyLlama, []string{"--seq", "8", "--best", "--layers", "3,3"}, misused, "--best looks for stages and layers itself"},
		{tinyLlama, []string{"--seq", "8", "--best", "--search-time", "-1s"}, misused, "weir: --search-time is -1s: give 0s or more"},
		{tinyLlama, []string{"--seq", "8", "--best", "--teraflops", "1e6"}, misused, "weir: --teraflops 1e+06: give a number above 0 and below 1000000"},
		{tinyLlama, []string{"--seq", "8", "--best", "--search-time", "10m", "--ranks", "2", "--memory", "1MiB"}, atFault, "none of 27 combinations of stages, recompute and microbatch sizes gives a plan that fits into 1.0 MiB\n"},
		{tinyLlama, []string{"--seq", "8", "--best", "--search-time", "0s", "--ranks", "2", "--memory", "1MiB"}, atFault, "none of 1 combination of stages, recompute and microbatch sizes gives a plan that fits into 1.0 MiB; 26 more were not tried: give a longer --search-time"},
		{tinyLlama, []string{"--seq", "8", "--best", "--schedule", "testdata/1f1b.csv"}, misused, "testdata/1f1b.csv is a plan file: give the name of a schedule"},
		{tinyLlama, []string{"--seq", "8", "--best", "--schedule", "zb-v", "--to", "layout"}, misused, "Megatron-LM has no schedule zb-v"},
		{tinyLlama, []string{"--seq", "8", "--best", "--recompute-stages", "0"}, misused, "leave out --recompute-stages"},
		{tinyLlama, []string{"--seq", "8", "--profile", "nowhere.json"}, misused, "nowhere.json"},
		{tinyLlama, []string{"--seq", "8", "--memory", "80"}, misused, "--memory 80 is 80 B: give a unit, such as 80GiB"},
		{tinyLlama, []string{"--seq", "8", "--memory", "81559"}, misused, "--memory 81559 is 79.6 KiB: give a unit, such as 81559MiB"},
		{"", []string{"--seq", "8"}, misused, "config.json: found neither an object of JSON, {, nor a flag, such as --num-layers 32"},
		{"[]", []string{"--seq", "8"}, misused, "config.json: found neither an object of JSON, {, nor a flag, such as --num-layers 32"},
		{tinyLlama, []string{"--seq", "8", "--offload", "all"}, misused, "weir: --offload all: give a share of the saved bytes, from 0 to 1"},
		{tinyLlama, []string{"--seq", "8", "--best", "--offload", "1"}, misused, "give --far-rate, and leave out --offload"},
		{tinyLlama, []string{"--seq", "8", "--far-rate", "25GB/s"}, misused, "--far-rate is for --best"},
		{tinyLlama, []string{"--seq", "8", "--forward-only"}, misused, "fit is for training all layers"},
		{tinyLlama, []string{"--seq", "8", "--time-limit", "1ns"}, misused, "weir: stopped after 1ns, the limit of --time-limit"},
		{"--num-layers 4096 --hidden-size 64 --num-attention-heads 4 --vocab-size 64 --position-embedding-type none --seq-length 8", []string{"--ranks", "1024", "--best"}, misused, "weir: a search over 4096 layers on 1024 ranks takes too long"},
		{tinyFlags + "--micro-batch-size 2 --global-batch-size 6", []string{"--replicas", "4"}, misused, "weir: a global batch of 6 sequences is not a multiple of 8, microbatches of 2 times 4 replicas: give another --replicas or --microbatch-size, or --microbatches"},
		{tinyFlags + "--global-batch-size 6", []string{"--replicas", "4"}, misused, "weir: a global batch of 6 sequences is not a multiple of 4"},
	} {
		status, _, errs := fitRun(t, c.config, c.args...)
		require.Contains(t, errs, c.errs)
		require.Equal(t, c.status, status, c.errs)
	}
}

// TestFitJSON checks that the bytes in the JSON output add up, and that it says whether the run fits.
func TestFitJSON(t *testing.T) {
	status, out, errs := fitRun(t, tinyLlama, "--seq", "32", "--ranks", "2", "--memory", "1GiB", "--allowance", "1MiB", "--json", "--set", "experimental=1")
	require.Equal(t, good, status, errs)
	var one fitted
	require.NoError(t, json.Unmarshal([]byte(out), &one))
	require.True(t, *one.Fits)
	require.Equal(t, []string{"experimental"}, one.NotRead)
	require.Equal(t, []int{3, 3}, one.Layers)
	require.Len(t, one.Ranks, 2)
	for _, r := range one.Ranks {
		require.Equal(t, r.Total, r.Weights+r.Gradients+r.Optimizer+r.Activations+r.Logits+r.Transfers+r.Allowance)
		require.Equal(t, int64(1<<30)-r.Total, *r.Left)
		require.GreaterOrEqual(t, r.Native, r.Total-r.Allowance)
		require.GreaterOrEqual(t, r.Height, r.Activations)
	}
	var near, far []int64 // of rank 0, without offloads and with
	for _, share := range []string{"0", "1"} {
		status, out, errs = fitRun(t, tinyLlama, "--seq", "32", "--ranks", "2", "--schedule", "gpipe", "--json", "--offload", share)
		require.Equal(t, good, status, errs)
		var one fitted
		require.NoError(t, json.Unmarshal([]byte(out), &one))
		near, far = append(near, one.Ranks[0].Total), append(far, one.Ranks[0].Far)
	}
	require.Less(t, near[1], near[0])
	require.Zero(t, far[0])
	require.Positive(t, far[1])
	status, _, _ = fitRun(t, tinyLlama, "--seq", "32", "--ranks", "2", "--memory", "2MiB")
	require.Equal(t, atFault, status)
	status, out, errs = fitRun(t, tinyLlama, "--seq", "8", "--ranks", "2", "--microbatches", "3", "--to", "compute")
	require.Equal(t, good, status, errs)
	require.Equal(t, "0F0,0F1,0B0,0F2,0B1,0B2\n1F0,1B0,1F1,1B1,1F2,1B2\n", out)
}

// TestFitReserved checks the verdicts about runs whose tensors fit. PyTorch's allocator would reserve more than
// the memory with both kinds of segments, only with those of cudaMalloc, or with neither kind.
func TestFitReserved(t *testing.T) {
	run := func(memory string, args ...string) (text string, one fitted) {
		args = append([]string{"fit", "../../docs/fit/llama-3-8b.json", "--ranks", "8", "--seq", "16384", "--recompute", "full", "--memory", memory}, args...)
		text, errs, status := weir("", args...)
		require.Equal(t, good, status, errs)
		out, _, _ := weir("", append(args, "--json")...)
		require.NoError(t, json.Unmarshal([]byte(out), &one))
		require.True(t, *one.Fits)
		return text, one
	}
	text, one := run("38GiB")
	require.Contains(t, text, "It fits if PyTorch's allocator frees its cache: rank 7,")
	require.Equal(t, []bool{false, false}, []bool{*one.Native, *one.Expandable})
	text, one = run("40GiB")
	last := one.Ranks[7]
	require.Contains(t, text, "It fits with expandable segments (PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True): rank 7,")
	require.Contains(t, text, "rank 7 would reserve "+units.Size(last.Native+last.Allowance-40<<30)+" more than the 40.0 GiB")
	require.Equal(t, []bool{false, true}, []bool{*one.Native, *one.Expandable})
	text, one = run("80GiB")
	require.Contains(t, text, "It fits: rank 7, the fullest, leaves ")
	require.Equal(t, []bool{true, true}, []bool{*one.Native, *one.Expandable})
	text, one = run("40GiB", "--no-reserved")
	require.Contains(t, text, "It fits: rank 7, the fullest, leaves ")
	require.Nil(t, one.Native)
}

// TestFitBestKeepsTo checks that --best keeps to a schedule, a recompute and a microbatch size that are given.
func TestFitBestKeepsTo(t *testing.T) {
	status, out, errs := fitRun(t, tinyLlama, "--seq", "32", "--ranks", "2", "--microbatches", "4", "--best", "--schedule", "1F1B", "--recompute", "full", "--microbatch-size", "2", "--json")
	require.Equal(t, good, status, errs)
	var found struct {
		Front []struct {
			Schedule, Recompute string
			Microbatch          int `json:"microbatch_size"`
		}
		Tried, Combinations int
	}
	require.NoError(t, json.Unmarshal([]byte(out), &found))
	require.NotEmpty(t, found.Front)
	require.Equal(t, []int{3, 3}, []int{found.Tried, found.Combinations})
	for _, o := range found.Front {
		require.Equal(t, []any{"1f1b", "full", 2}, []any{o.Schedule, o.Recompute, o.Microbatch})
	}
}

// TestFitOptimizerOfFlags checks that the optimizer comes from Megatron-LM's flags unless --optimizer is given.
func TestFitOptimizerOfFlags(t *testing.T) {
	const script = "--num-layers 4 --hidden-size 64 --num-attention-heads 4 --vocab-size 64 --position-embedding-type none --seq-length 8 --bf16 --optimizer sgd --sgd-momentum 0"
	optimizer := func(args ...string) int64 {
		status, out, errs := fitRun(t, script, append(args, "--no-reserved", "--json")...)
		require.Equal(t, good, status, errs)
		var one fitted
		require.NoError(t, json.Unmarshal([]byte(out), &one))
		return one.Ranks[0].Optimizer
	}
	sgd := optimizer()
	require.Equal(t, 2*sgd, optimizer("--optimizer", "momentum"))
	require.Equal(t, 3*sgd, optimizer("--optimizer", "adamw"))
}

// TestFitFollowsAdvice follows the advice of errors and reports, which must work.
func TestFitFollowsAdvice(t *testing.T) {
	const script = "GPT_ARGS=\"\n --num-layers 36 \\\n --hidden-size 1280 \\\n --num-attention-heads 20 \\\n --seq-length 1024 \\\n --max-position-embeddings 1024 --micro-batch-size $MB --global-batch-size 16 --fp16 --swiglu --use-distributed-optimizer\n\"\n"
	status, _, errs := fitRun(t, script, "--no-reserved")
	require.Equal(t, misused, status)
	require.Contains(t, errs, "give it as --set vocab-size=N")
	require.Contains(t, errs, "micro-batch-size is $MB, a variable of the shell: give it as --set micro-batch-size=VALUE")
	args := []string{"--no-reserved", "--memory", "32501MiB", "--set", "vocab-size=50257", "--set", "micro-batch-size=4"}
	status, out, _ := fitRun(t, script, args...) // Megatron-LM#525 ran out of memory.
	require.Equal(t, atFault, status)
	require.Contains(t, out, "give --set attention-backend=auto")
	require.Contains(t, out, "those of what was read and assumed")
	status, out, errs = fitRun(t, script, append(args, "--set", "attention-backend=auto")...)
	require.Equal(t, good, status, errs)
	require.NotContains(t, out, "assumed")

	const other = `{"model_type": "gemma3", "text_config": {"model_type": "gemma3_text", "hidden_size": 64, "num_hidden_layers": 4}, "vision_config": {}}`
	_, _, errs = fitRun(t, other, "--seq", "8")
	require.Contains(t, errs, "as --set model_type=NAME")
	status, out, errs = fitRun(t, other, "--seq", "8", "--set", "model_type=qwen3")
	require.Equal(t, good, status, errs)
	require.Contains(t, out, "not read, and may matter: vision_config")
	require.Contains(t, out, "not given, and assumed: head_dim 128, intermediate_size 22016, num_attention_heads 32, num_key_value_heads 32, tie_word_embeddings false, vocab_size 151936")
}
