package fit_test

import (
	"bytes"
	"context"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-ml/weir/cmd/weir/internal/fit"
	"github.com/weir-ml/weir/internal/testing/plantest"
	"github.com/weir-ml/weir/internal/testing/testkit"
	"github.com/weir-ml/weir/schedule"
	"io"
)

// tiny is a part of a config.json, with sizes that are not the default of any class.
const tiny = `"hidden_size": 96, "intermediate_size": 160, "num_hidden_layers": 4, "num_attention_heads": 16, "vocab_size": 320, "tie_word_embeddings": false`

const tinyDeepSeek = tiny + `, "n_routed_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 32, "n_shared_experts": 3, "q_lora_rank": 20, "kv_lora_rank": 28, "qk_nope_head_dim": 12, "qk_rope_head_dim": 8, "v_head_dim": 16`

// TestConfigsAsTransformersHasThem compares counts with those of the models that transformers 5.24 builds
// from the same configs. Package counts compares a thousand more.
func TestConfigsAsTransformersHasThem(t *testing.T) {
	for name, c := range map[string]struct {
		text            string
		parameters      int64
		unread, assumed []string
	}{
		"an absent number of key and value heads is 8": {`{"model_type": "mistral", "head_dim": 24, ` + tiny + `}`, 688_992, nil, []string{"num_key_value_heads 8"}},
		"an absent size of a head is 128":              {`{"model_type": "qwen3", "num_key_value_heads": 2, ` + tiny + `}`, 2_017_120, nil, []string{"head_dim 128"}},
		"null is not absent":                           {`{"model_type": "mistral", "head_dim": 24, "num_key_value_heads": null, ` + tiny + `}`, 836_448, nil, nil},
		"three absent dense layers":                    {`{"model_type": "deepseek_v3", "num_nextn_predict_layers": 0, ` + tinyDeepSeek + `}`, 498_472, nil, []string{"first_k_dense_replace 3"}},
		"biases of compressed queries":                 {`{"model_type": "deepseek_v3", "num_nextn_predict_layers": 0, "first_k_dense_replace": 3, "attention_bias": true, ` + tinyDeepSeek + `}`, 498_472 + 4*(20+28+8+96), nil, nil},
		"biases of an MLP but not of experts":          {`{"model_type": "deepseek_v2", "first_k_dense_replace": 2, "mlp_bias": true, ` + strings.Replace(tinyDeepSeek, `"n_routed_experts": 8`, `"n_routed_experts": 6`, 1) + `}`, 518_688, nil, nil},
		"biases of attention beside experts":           {strings.Replace(configs["Qwen3-30B-A3B"], "{", `{"attention_bias": true, `, 1), 30_532_466_688, nil, nil},
		"the name of transformers 5":                   {strings.Replace(configs["Qwen3-30B-A3B"], "num_experts", "num_local_experts", 1), 30_532_122_624, nil, nil},
		"no biases of queries":                         {`{"model_type": "qwen2_moe", "qkv_bias": false, "num_experts": 0, "num_experts_per_tok": 1, "moe_intermediate_size": 1, "shared_expert_intermediate_size": 1, "decoder_sparse_step": 1, "num_key_value_heads": 16, ` + tiny + `}`, 394_080, nil, nil},
		"a bias that the family has not":               {strings.Replace(configs["Mistral-7B"], "{", `{"attention_bias": true, `, 1), 7_241_732_096, []string{"attention_bias"}, nil},
		"a byte order mark":                            {"\ufeff" + configs["Llama-3-8B"], 8_030_261_248, nil, nil},
		"numbers of Python":                            {strings.Replace(configs["Llama-3-8B"], "{", `{"rope_theta": Infinity, "rms_norm_eps": NaN, "initializer_range":-Infinity, "auto_map": "NaN", `, 1), 8_030_261_248, nil, nil},
		"a language model beside another":              {`{"model_type": "llava", "vision_config": {"hidden_size": 7}, "architectures": ["LlavaForConditionalGeneration"], "tie_word_embeddings": false, "text_config": ` + configs["Llama-3-8B"] + `}`, 8_030_261_248, []string{"vision_config"}, nil},
		"keys beside a language model are not its own": {`{"model_type": "llava", "hidden_size": 64, "num_hidden_layers": 7, "vocab_size": 320, "tie_word_embeddings": true, "text_config": {"model_type": "llama", "hidden_size": 96, "intermediate_size": 160, "num_attention_heads": 16, "vocab_size": 320}}`, 2_691_168, []string{"hidden_size", "num_hidden_layers"}, []string{"num_hidden_layers 32"}},
		"a class that may tie the embeddings":          {`{"model_type": "mistral3", "text_config": {"model_type": "mistral", "head_dim": 24, "num_key_value_heads": 8, ` + tiny + `}}`, 688_992, nil, []string{"tie_word_embeddings false"}},
		"a language model of another name":             {`{"model_type": "internvl_chat", "tie_word_embeddings": false, "llm_config": {"model_type": "mistral", "head_dim": 24, "num_key_value_heads": 8, ` + tiny + `}}`, 688_992, nil, nil},
		"an activation that is silu":                   {strings.Replace(configs["Llama-3-8B"], "{", `{"hidden_act": "swish", `, 1), 8_030_261_248, nil, nil},
		"keys whose names begin like others":           {strings.Replace(configs["Llama-3-8B"], "{", `{"rope_dim": 7, "sliding_window_size": 4, "architectures": ["LlamaForTokenClassification"], "layer_types": ["linear_attention"], `, 1), 8_030_261_248, []string{"architectures", "layer_types", "rope_dim", "sliding_window_size"}, nil},
	} {
		read := readConfig(t, strings.NewReader(c.text), nil)
		require.Equal(t, c.parameters, read.Model.Parameters(1, false), name)
		require.Equal(t, c.unread, read.Unread, name)
		require.Equal(t, c.assumed, read.Assumed, name)
	}
	for text, want := range map[string]string{
		`{"model_type": "llama", "hidden_size": NaN}`:                                                                "hidden_size is NaN: expected a whole number",
		"\xff\xfe{\x00}\x00":                                                                                         "the text is in UTF-16",
		"{\"text_config\":\n {\"a\": 1, \"a\": 2}}":                                                                  `line 2:11: found "a", which is there already`,
		`{"model_type": "gemma3", "text_config": {"model_type": "gemma3_text"}}`:                                     `model_type is "gemma3_text", which is not supported`,
		`{"model_type": "qwen3_moe", "num_experts": 4, "num_local_experts": 8, ` + tiny + `}`:                        "the family has one value for both",
		`{"model_type": "llava", "tie_word_embeddings": true, "text_config": {"model_type": "llama", ` + tiny + `}}`: "tie_word_embeddings is true for the model and false for its language model",
		`{"model_type": "llava", "text_config": {}}`:                                                                 `model_type is "llava", which is not supported`,
		`{"model_type": "qwen2_moe", "mlp_only_layers": [1, "two"]}`:                                                 `mlp_only_layers is [1, "two"]: expected a list`,
		`{"model_type": "qwen3", ` + tiny + `}`:                                                                      "these were assumed: num_key_value_heads 32, head_dim 128: give others as --set KEY=VALUE",
	} {
		_, err := fit.Read(strings.NewReader(text), nil)
		require.ErrorIs(t, err, fit.ErrModel, text)
		require.ErrorContains(t, err, want)
	}
}

const (
	sizes  = " --num-layers 4 --hidden-size 256 --num-attention-heads 8 --vocab-size 1024 --seq-length 128 --max-position-embeddings 256 --bf16 "
	rotary = sizes + "--ffn-hidden-size 512 --position-embedding-type rope --untie-embeddings-and-output-weights --attention-backend auto "
	plain  = rotary + "--swiglu --normalization RMSNorm --disable-bias-linear "
)

// TestFlagsAsMegatronHasThem compares counts with those of the models that megatron-core 0.19.2 builds with
// the same flags. Package counts compares more.
func TestFlagsAsMegatronHasThem(t *testing.T) {
	for name, c := range map[string]struct {
		text       string
		parameters int64
		unread     []string
	}{
		"gated by quick-geglu":               {strings.Replace(rotary, "512", "688", 1) + "--disable-bias-linear --quick-geglu", 3_691_008, nil},
		"a learned softmax and biases":       {"--num-layers 24 --hidden-size 2880 --num-attention-heads 64 --kv-channels 64 --group-query-attention --num-query-groups 8 --ffn-hidden-size 2880 --num-experts 32 --moe-router-topk 4 --quick-geglu --softmax-type learnable --normalization RMSNorm --untie-embeddings-and-output-weights --position-embedding-type rope --vocab-size 201088", 20_914_757_184, nil},
		"a padded vocabulary":                {strings.Replace(plain, "512", "688", 1) + "--padded-vocab-size 2048", 4_212_992, nil},
		"a vocabulary that is padded":        {strings.Replace(plain, "1024", "1000", 1), 3_148_032, nil},
		"no biases of down projections":      {rotary + "--swiglu --normalization RMSNorm --multi-latent-attention --kv-lora-rank 64 --qk-head-dim 32 --qk-pos-emb-head-dim 16 --v-head-dim 32 --q-lora-rank 96 --qk-layernorm", 2_827_136, nil},
		"no norms unless asked for":          {rotary + "--swiglu --normalization RMSNorm --multi-latent-attention --kv-lora-rank 64 --qk-head-dim 32 --qk-pos-emb-head-dim 16 --v-head-dim 32 --q-lora-rank 96", 2_827_136 - 4*(96+64), nil},
		"groups without their flag":          {plain + "--num-query-groups 2", 3_148_032, []string{"--num-query-groups"}},
		"flags that begin like others":       {plain + "--lr-free-memory --log-everything --recompute-modules2 x --save-activations-interval 7 --lora-dim 16 --num-workers 8 --moe-router-dtype fp32", 3_148_032, []string{"--log-everything", "--lora-dim", "--lr-free-memory", "--recompute-modules2", "--save-activations-interval"}},
		"old flags of positions":             {sizes + "--no-position-embedding --use-rotary-position-embeddings --attention-backend auto", 3_421_696, nil},
		"values that matter, and do not":     {plain + "--fp8-recipe blockwise --main-grads-dtype fp32 --exp-avg-dtype bf16 --fp4-param-gather: false", 3_148_032, []string{"--exp-avg-dtype", "--fp8-recipe"}},
		"a shell's array":                    {"A=(\n --sequence-parallel\n)\nB=(" + plain + ")\ntorchrun ${A[@]} --swiglu", 3_148_032, nil},
		"quotes in quotes":                   {"ARGS=\"" + plain + " --moe-layer-freq '([0]*2+[1]*2)' \\\n --hidden-dropout 0\\\n    --lr \\\"7\\\"\"", 3_148_032, []string{"--moe-layer-freq"}},
		"comments that end with a backslash": {"A=(\n  # --swiglu \\\n  #--quick-geglu \\\n  " + strings.TrimSpace(plain) + " \\\n    #--num-layers 7 \\\n    --lr 1 \\\n    --untie-embeddings-and-output-weights\n)", 3_148_032, nil},
		"Windows":                            {"A=\"" + strings.TrimSpace(plain) + " \\\r\n --hidden-dropout 0\\\r\n   --lr 1\"\r\n", 3_148_032, nil},
		"a list of Python":                   {`["--num-layers", "4", '--hidden-size', "256", "--num-attention-heads=8", "--vocab-size", "1024",` + "\n" + `"--position-embedding-type", "none", "--bf16"]`, 3_421_696, nil},
		"a list of Python without spaces":    {`["--num-layers","4",'--hidden-size',"256","--num-attention-heads=8","--vocab-size","1024","--position-embedding-type","none","--bf16"]`, 3_421_696, nil},
		"a format of Python":                 {"layers=4\nargs = [" + strings.Replace(plain, "--num-layers 4", `f"--num-layers={layers}", f'--micro-batch-size', f"{layers}",`, 1) + "]", 3_148_032, nil},
		"lines of a test":                    {"MODEL_ARGS:\n  --num-layers: 4\n  --hidden-size: 256 # wide\n  --num-attention-heads: 8\n  --vocab-size: 1024\n  --position-embedding-type: none\n  --swiglu: false\n  --recompute-granularity: selective\n  --recompute-modules: [core_attn, moe]\n", 3_421_696, []string{"--recompute-modules moe"}},
		"variables of the shell":             {"TP=${TP:-2}\nexport LAYERS=4 H=256\nHEADS=\"8\"\nV=1024; run --num-layers $LAYERS --hidden-size ${H} --num-attention-heads=$HEADS --vocab-size ${V} --position-embedding-type ${P:-none} --bf16 --tensor-model-parallel-size \"$TP\"", 3_421_696, nil},
	} {
		read := readConfig(t, strings.NewReader(c.text), nil)
		require.Equal(t, c.parameters, read.Model.Parameters(1, false), name)
		require.Equal(t, c.unread, read.Unread, name)
	}
	for text, want := range map[string]string{
		plain + "--micro-batch-size $MB":                                                     "micro-batch-size is $MB, a variable of the shell: give it as --set micro-batch-size=VALUE",
		"if a; then L=12; else L=24; fi" + plain + "--num-layers $L":                         "num-layers is $L (12 or 24), a variable of the shell",
		"L=2; for L in 4 8; do run" + plain + "--num-layers $L; done":                        "num-layers is $L (2 or 4 or 8), a variable of the shell",
		`[` + strings.Join(strings.Fields(plain), " ") + `, f"--num-experts={n}"]`:           "num-experts is ${n}, a variable of the shell",
		plain + "--pipeline-model-parallel-size 2 --num-layers-per-virtual-pipeline-stage 3": "num-layers-per-virtual-pipeline-stage is 3: 4 layers do not divide into such stages on each of 2 ranks",
		plain + "--normalization Norm":                                                       "normalization is Norm: expected LayerNorm, RMSNorm",
		plain + "--num-experts 4 --moe-layer-freq ([0]*1+[1]*2)":                             "moe-layer-freq is ([0]*1+[1]*2): expected a number, 1 or more, or a list with a 0 or 1 for each of the 4 layers",
		plain + "--num-experts 4 --moe-layer-freq ([0,1]*2+x)":                               "moe-layer-freq is ([0,1]*2+x): expected a number",
		plain + "--hidden-dropout none":                                                      "hidden-dropout is none: expected a number, 0 or more",
		plain + "--world $((2*3)) --tensor-model-parallel-size $((A * B))":                   "tensor-model-parallel-size is $((A * B)), a variable of the shell",
	} {
		_, err := fit.Read(strings.NewReader(text), nil)
		require.ErrorIs(t, err, fit.ErrModel, text)
		require.ErrorContains(t, err, want)
	}
	read := readConfig(t, strings.NewReader(plain+"--num-experts 4 --moe-layer-freq ([0]*1+[1])*2 --num-layers 6 --num-layers 4"), nil)
	require.Equal(t, []bool{false, true, false, true}, read.Model.Sparse)
	require.Equal(t, []string{"--num-layers 4, of 6 and 4, of which the last one is taken"}, read.Assumed)
	read = readConfig(t, strings.NewReader(plain+"--swiglu: false\n--qk-layernorm false --qk-layernorm --bf16 x --num-virtual-stages-per-pipeline-rank 1 --num-virtual-stages-per-pipeline-rank 2"), nil)
	last := ", of which the last one is taken"
	require.Equal(t, []string{"--num-virtual-stages-per-pipeline-rank 2, of 1 and 2" + last, "--qk-layernorm true, of false and true" + last, "--swiglu false, of true and false" + last}, read.Assumed)
}

// TestSetupOfFlags checks the precision, the gradients, the optimizer and the attention kernels that follow
// from flags.
func TestSetupOfFlags(t *testing.T) {
	of := func(text string) *fit.Config {
		return readConfig(t, strings.NewReader(text), nil)
	}
	require.Equal(t, fit.FP8, of("ARGS=("+plain+"\n)\nDTYPE+=(\n  \"--fp8-format hybrid\"\n  \"--fp8-amax-compute-algo max\"\n)").Setup.Precision)
	require.Equal(t, 2, of(plain+"--grad-reduce-in-bf16").Setup.Gradients)
	require.Equal(t, 4, of(strings.Replace(plain, "--bf16", "--fp16", 1)+"--accumulate-allreduce-grads-in-fp32").Setup.Gradients)
	require.Equal(t, fit.Momentum, of(plain+"--optimizer sgd").Setup.Optimizer)
	require.Equal(t, fit.Recompute{Groups: []string{"core"}}, of(plain+"--recompute-activations").Setup.Recompute)

	old := sizes + "--fp16 --swiglu --use-distributed-optimizer" // as in 2023
	require.True(t, of(old).Setup.UnfusedAttention)
	require.Contains(t, of(old).Assumed[0], "--set attention-backend=auto")
	for _, flag := range []string{"--use-flash-attn", "--use-mcore-models", "--attention-backend flash", "--transformer-impl transformer_engine", "--fp8-format e4m3", "--context-parallel-size 2"} {
		require.False(t, of(old+" "+flag).Setup.UnfusedAttention, flag)
		require.Empty(t, of(old+" "+flag).Assumed, flag)
	}
	require.True(t, of(old+" --transformer-impl local").Setup.UnfusedAttention)
	require.True(t, of(old+" --attention-backend unfused").Setup.UnfusedAttention)
	read := of(old)
	require.True(t, read.Model.AttentionDropout && !of(old+" --attention-dropout 0.0").Model.AttentionDropout)
}

// TestCostFollowsTheText expects the same peak and the same reserved bytes for a million microbatches as
// for a thousand, computed without memory for each microbatch.
func TestCostFollowsTheText(t *testing.T) {
	read := readConfig(t, strings.NewReader(plain+"--micro-batch-size 1 --pipeline-model-parallel-size 2"), nil)
	predict := func(microbatches int) *fit.Prediction {
		plan, err := schedule.OneFOneB(schedule.Params{Placement: schedule.Looped(2, 2), Microbatches: microbatches})
		require.NoError(t, err)
		out, err := fit.Predict(t.Context(), fit.Request{Model: &read.Model, Setup: read.Setup, Plan: plan, Capacity: 1, Reserved: true})
		require.NoError(t, err)
		return out
	}
	some, many := predict(1000), predict(1_000_000)
	require.False(t, some.Partial)
	require.True(t, many.Partial)
	require.Equal(t, some.Ranks, many.Ranks)
	most := 0
	for rank := range many.Ranks {
		changes, complete := many.Memory.AtMost(rank, 1000)
		require.False(t, complete)
		n := 0
		for range changes {
			n++
		}
		most = max(most, n)
	}
	require.Less(t, most, 4000)
}

// TestDeadline requires that predictions and searches stop at a deadline, or refuse work that takes longer.
func TestDeadline(t *testing.T) {
	read := readConfig(t, strings.NewReader(plain+"--micro-batch-size 1 --num-layers 4096"), nil)
	ctx, cancel := context.WithDeadline(t.Context(), time.Now())
	defer cancel()
	_, err := fit.Predict(ctx, fit.Request{Model: &read.Model, Setup: read.Setup, Plan: plantest.Named(t, "1f1b", 512, 512, 512), Capacity: 1})
	require.ErrorIs(t, err, ctx.Err())
	_, _, _, err = fit.Best(t.Context(), fit.Search{Model: &read.Model, Setup: read.Setup, Ranks: 1024, Sequences: 8, Speed: 1, Bandwidth: 1, Capacity: 1})
	require.ErrorContains(t, err, "takes too long")
}

// TestHostileTexts expects that the longest allowed texts take time and memory in proportion to their length.
func TestHostileTexts(t *testing.T) {
	lines := func(n int, line func(i int) string) string {
		var text strings.Builder
		for i := range n {
			text.WriteString(line(i))
		}
		return text.String()
	}
	for name, text := range map[string]string{
		"brackets":  strings.Repeat("(", 1<<20),
		"doubled":   "A0=12345678\n" + lines(20_000, func(i int) string { return fmt.Sprintf("A%d=$A%d$A%d\n", i+1, i, i) }) + "--num-layers $A20000",
		"again":     lines(100_000, func(i int) string { return fmt.Sprintf("--n %d\n", i) }),
		"several":   lines(50_000, func(i int) string { return fmt.Sprintf("A=%d --n $A\n", i) }),
		"quotes":    strings.Repeat(`"'--a`, 1<<17),
		"long":      lines(8, func(i int) string { return fmt.Sprintf("A=%d%s\n", i, strings.Repeat("x", 1000)) }) + strings.Repeat("--n "+strings.Repeat("$A", 511)+"\n", 1000),
		"one long":  "A=" + strings.Repeat("x", 1<<19) + "\n" + strings.Repeat("--n $A\n", 50_000),
		"variables": "--n " + strings.Repeat("${a", 1<<18),
		"texts":     strings.Repeat(`{"text_config":`, 5000) + "1" + strings.Repeat("}", 5000),
	} {
		var before runtime.MemStats
		runtime.ReadMemStats(&before)
		c, err := fit.Read(strings.NewReader(text), []string{"num-layers=4", "hidden-size=256", "num-attention-heads=8", "vocab-size=100", "max-position-embeddings=8"})
		if err != nil {
			require.Less(t, len(err.Error()), 2000, name)
		} else {
			require.Less(t, len(strings.Join(c.Assumed, "")), 10_000, name)
		}
		var after runtime.MemStats
		runtime.ReadMemStats(&after)
		require.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(1<<30), name)
	}
}

// TestFixtures reads profiles that the Python package wrote. The test test_fixture of that package compares
// them with its current output.
func TestFixtures(t *testing.T) {
	testkit.Format{
		Name: "profile-%d.json", Mark: "\"schema\": %d", Number: 2, Remedy: "the version of Weir that wrote it",
		Write: func(t *testing.T) []byte {
			text := []byte(testkit.Read(t, "testdata/formats/profile-2.json"))
			return text
		},
		Read: func(text []byte) error {
			_, err := fit.ReadPieces(bytes.NewReader(text))
			return err
		},
	}.Test(t)
}

// readConfig reads a configuration that must be correct.
func readConfig(t *testing.T, r io.Reader, set []string) *fit.Config {
	t.Helper()
	c, err := fit.Read(r, set)
	require.NoError(t, err)
	return c
}
