package fit_test

import (
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-ml/weir/cmd/weir/internal/fit"
	"github.com/weir-ml/weir/internal/testing/plantest"
	"github.com/weir-ml/weir/memory"
	"github.com/weir-ml/weir/memory/placement"
	"github.com/weir-ml/weir/schedule"
	"github.com/weir-ml/weir/schedule/layout"
	"github.com/weir-ml/weir/schedule/lengths"
	"github.com/weir-ml/weir/schedule/lower"
)

// configs are the sizes in the published config.json of models.
var configs = map[string]string{
	"Llama-2-7B":   `{"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 4096, "intermediate_size": 11008, "num_attention_heads": 32, "num_hidden_layers": 32, "num_key_value_heads": 32, "vocab_size": 32000, "tie_word_embeddings": false, "hidden_act": "silu", "rms_norm_eps": 1e-05, "rope_scaling": null, "torch_dtype": "float16"}`,
	"Llama-3-8B":   `{"model_type": "llama", "hidden_size": 4096, "intermediate_size": 14336, "num_attention_heads": 32, "num_hidden_layers": 32, "num_key_value_heads": 8, "vocab_size": 128256, "tie_word_embeddings": false, "attention_bias": false}`,
	"Llama-3.2-1B": `{"model_type": "llama", "hidden_size": 2048, "intermediate_size": 8192, "num_attention_heads": 32, "head_dim": 64, "num_hidden_layers": 16, "num_key_value_heads": 8, "vocab_size": 128256, "tie_word_embeddings": true}`,
	"Llama-3-405B": `{"model_type": "llama", "hidden_size": 16384, "intermediate_size": 53248, "num_attention_heads": 128, "num_hidden_layers": 126, "num_key_value_heads": 8, "vocab_size": 128256, "tie_word_embeddings": false}`,
	"Mistral-7B":   `{"model_type": "mistral", "hidden_size": 4096, "intermediate_size": 14336, "num_attention_heads": 32, "num_hidden_layers": 32, "num_key_value_heads": 8, "vocab_size": 32000, "sliding_window": 4096}`,
	"Mixtral-8x7B": `{"model_type": "mixtral", "hidden_size": 4096, "intermediate_size": 14336, "num_attention_heads": 32, "num_hidden_layers": 32, "num_key_value_heads": 8, "vocab_size": 32000, "num_local_experts": 8, "num_experts_per_tok": 2, "router_aux_loss_coef": 0.02}`,
	"Qwen2-7B":     `{"model_type": "qwen2", "hidden_size": 3584, "intermediate_size": 18944, "num_attention_heads": 28, "num_hidden_layers": 28, "num_key_value_heads": 4, "vocab_size": 152064, "tie_word_embeddings": false}`,
	"Qwen2.5-0.5B": `{"model_type": "qwen2", "hidden_size": 896, "intermediate_size": 4864, "num_attention_heads": 14, "num_hidden_layers": 24, "num_key_value_heads": 2, "vocab_size": 151936, "tie_word_embeddings": true}`,
	"Qwen3-30B-A3B": `{"model_type": "qwen3_moe", "hidden_size": 2048, "intermediate_size": 6144, "moe_intermediate_size": 768, "num_attention_heads": 32, "num_hidden_layers": 48, "num_key_value_heads": 4, "head_dim": 128,
		"vocab_size": 151936, "num_experts": 128, "num_experts_per_tok": 8, "decoder_sparse_step": 1, "mlp_only_layers": [], "norm_topk_prob": true, "tie_word_embeddings": false}`,
	"DeepSeek-V2-Lite": `{"model_type": "deepseek_v2", "hidden_size": 2048, "intermediate_size": 10944, "moe_intermediate_size": 1408, "num_attention_heads": 16, "num_key_value_heads": 16, "num_hidden_layers": 27, "vocab_size": 102400,
		"first_k_dense_replace": 1, "moe_layer_freq": 1, "n_routed_experts": 64, "n_shared_experts": 2, "num_experts_per_tok": 6, "kv_lora_rank": 512, "q_lora_rank": null, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128}`,
	"DeepSeek-V3": `{"model_type": "deepseek_v3", "hidden_size": 7168, "intermediate_size": 18432, "moe_intermediate_size": 2048, "num_attention_heads": 128, "num_key_value_heads": 128, "num_hidden_layers": 61, "vocab_size": 129280,
		"first_k_dense_replace": 3, "moe_layer_freq": 1, "n_routed_experts": 256, "n_shared_experts": 1, "num_experts_per_tok": 8, "kv_lora_rank": 512, "q_lora_rank": 1536, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128,
		"num_nextn_predict_layers": 1, "quantization_config": {"fmt": "e4m3"}}`,
}

// TestParameters compares counts of parameters with the models' published counts.
func TestParameters(t *testing.T) {
	for name, want := range map[string]int64{
		"Llama-2-7B": 6_738_415_616, "Llama-3-8B": 8_030_261_248, "Llama-3.2-1B": 1_235_814_400, "Llama-3-405B": 405_853_388_800,
		"Mistral-7B": 7_241_732_096, "Mixtral-8x7B": 46_702_792_704, "Qwen2-7B": 7_615_616_512, "Qwen2.5-0.5B": 494_032_768,
		"Qwen3-30B-A3B": 30_532_122_624, "DeepSeek-V2-Lite": 15_706_484_224, "DeepSeek-V3": 671_026_419_200,
	} {
		c := readConfig(t, strings.NewReader(configs[name]), nil)
		require.Subset(t, []string{"quantization_config"}, c.Unread, name)
		require.Equal(t, want, c.Model.Parameters(1, false), name)
	}
}

// TestFurtherTokens compares the parameters of DeepSeek-V3's layer that predicts a further token
// with the model's README_WEIGHTS.md: 11.5 billion besides the tables that it shares.
func TestFurtherTokens(t *testing.T) {
	c := readConfig(t, strings.NewReader(configs["DeepSeek-V3"]), nil)
	further := c.Model.Parameters(1, true) - c.Model.Parameters(1, false)
	const attention = 7168*1536 + 1536 + 1536*24576 + 7168*576 + 512 + 512*32768 + 16384*7168
	const experts = 256*(3*7168*2048+7168+1) + 3*7168*2048
	require.EqualValues(t, attention+experts+2*7168+2*7168*7168+3*7168, further)
}

func TestConfigFaults(t *testing.T) {
	for _, c := range []struct {
		text string
		set  []string
		want string
	}{
		{`{"model_type": "gemma3"}`, nil, `model_type is "gemma3", which is not supported: give the one of deepseek_v2, deepseek_v3, llama`},
		{configs["DeepSeek-V2-Lite"], []string{"num_experts_per_tok=null"}, "num_experts_per_tok is missing: give it as --set num_experts_per_tok=N"},
		{`{"model_type": "llama", "hidden_size": "wide"}`, nil, `hidden_size is "wide": expected a whole number from 0 to 16777216`},
		{`{"model_type": "llama", "hidden_size": 64, "hidden_size": 32}`, nil, "which is there already"},
		{`{"model_type": "llama"`, nil, "expected"},
		{configs["Llama-3-8B"], []string{"num_key_value_heads=5"}, "32 attention heads do not divide over 5 heads of keys and values"},
		{configs["Llama-3-8B"], []string{"num_hidden_layers=5000"}, "the number of layers is 5000: give 1 to 4096"},
		{configs["Llama-3-8B"], []string{"wide"}, `"wide" is not KEY=VALUE`},
		{configs["Mixtral-8x7B"], []string{"num_local_experts=16384", "intermediate_size=16777216", "hidden_size=16777216"}, "it has more than 2^50 parameters"},
		{strings.Repeat(" ", 1<<20) + "{}", nil, "longer than 1048576 bytes"},
	} {
		_, err := fit.Read(strings.NewReader(c.text), c.set)
		require.ErrorIs(t, err, fit.ErrModel, c.want)
		require.ErrorContains(t, err, c.want)
	}
	c := readConfig(t, strings.NewReader(configs["Llama-3-8B"]), []string{"per_layer_input=4", "rope_theta=5", "hidden_act=gelu", "_name=7"})
	require.Equal(t, []string{"_name", "hidden_act", "per_layer_input"}, c.Unread)
}

// TestMegatronFlags reads flags in the forms of scripts and of tests.
func TestMegatronFlags(t *testing.T) {
	const llama = `--num-layers 32 --hidden-size=4096 \
		--ffn-hidden-size 11008 # of SwiGLU
		--num-attention-heads: 32
		"--swiglu" --swiglu --normalization "RMSNorm" --disable-bias-linear --untie-embeddings-and-output-weights --vocab-size 32000
		--position-embedding-type rope --make-vocab-size-divisible-by 1 --tensor-model-parallel-size 2 --pipeline-model-parallel-size 4 --num-layers-per-virtual-pipeline-stage 2
		--seq-length 4096 --micro-batch-size 2 --global-batch-size 128 --bf16 --use-distributed-optimizer --recompute-granularity selective --moe-latent-size 3 --lr 1e-3 --use-mcore-models`
	c := readConfig(t, strings.NewReader(llama), nil)
	require.EqualValues(t, 6_738_415_616, c.Model.Parameters(1, false), "Llama-2-7B")
	require.Equal(t, []string{"--moe-latent-size"}, c.Unread)
	require.Equal(t, []int{4, 4, 128}, []int{c.Ranks, c.VirtualStages, c.GlobalBatch})
	require.Equal(t, fit.Setup{Sequence: 4096, Microbatch: 2, Tensor: 2, Context: 1, Expert: 1, Zero: 1, Precision: fit.BF16, Recompute: fit.Recompute{Groups: []string{"core"}}}, c.Setup)

	c = readConfig(t, strings.NewReader("--num-layers 6 --hidden-size 64 --num-attention-heads 4 --max-position-embeddings 32 --vocab-size 100 --num-experts 8 --moe-layer-freq ([0]*2+[1,0]*2)"), nil)
	require.Equal(t, []bool{false, false, true, false, true, false}, c.Model.Sparse)
	require.True(t, c.Model.Tied && c.Model.LayerNorm && c.Model.Dropout && c.Model.QKVBias)

	c = readConfig(t, strings.NewReader(llama+" --recompute-modules core_attn layernorm mlp moe --lr 1"), nil)
	require.Equal(t, []string{"core", "norm"}, c.Setup.Recompute.Groups)
	require.Equal(t, []string{"--moe-latent-size", "--recompute-modules mlp", "--recompute-modules moe"}, c.Unread)

	for _, text := range []string{"", " \n", "[]", "num_layers", "--", "-- 7"} {
		_, err := fit.Read(strings.NewReader(text), []string{"num-layers=1"})
		require.ErrorIs(t, err, fit.ErrModel)
		require.ErrorContains(t, err, "found neither an object of JSON, {, nor a flag")
	}
	_, err := fit.Read(strings.NewReader("--num-layers 6 --hidden-size many"), nil)
	require.ErrorContains(t, err, "hidden-size is many: expected a whole number")
	require.ErrorContains(t, err, "vocab-size is missing: give it as --set vocab-size=N")
}

// TestBytesOfAParameter compares the bytes of a parameter with the table of Megatron-LM's
// distributed optimizer, plain and divided over d replicas.
func TestBytesOfAParameter(t *testing.T) {
	const d = 8
	for _, c := range []struct {
		precision  fit.Precision
		gradients  int
		plain, one float64
		two, three float64
	}{
		{fit.BF16, 0, 18, 6 + 12.0/d, 2 + 16.0/d, 18.0 / d},
		{fit.FP16, 0, 20, 4 + 16.0/d, 2 + 18.0/d, 20.0 / d},
		{fit.FP32, 0, 16, 8 + 8.0/d, 4 + 12.0/d, 16.0 / d},
		{fit.BF16, 2, 16, 4 + 12.0/d, 2 + 14.0/d, 16.0 / d},
	} {
		for zero, want := range []float64{c.plain, c.one, c.two, c.three} {
			r := prediction(t, configs["Llama-3.2-1B"], "1f1b", 1, 1, fit.Setup{Sequence: 64, Data: d, Zero: zero, Precision: c.precision, Gradients: c.gradients}).Ranks[0]
			require.EqualValues(t, 1_235_814_400, r.Parameters)
			require.InDelta(t, want, float64(r.Static.Total())/float64(r.Parameters), 1e-6, "%v, ZeRO %d", c.precision, zero)
		}
	}
}

// TestFP8 compares FP8 with bfloat16. A product keeps one byte less for each element of its input.
// Attention keeps its output, which adds one byte per element. The products' weights have two copies.
func TestFP8(t *testing.T) {
	const s, h, ffn, layers, products = 512, 4096, 14336, 32, 4096*4096*2 + 4096*1024*2 + 3*4096*14336
	c := readConfig(t, strings.NewReader(configs["Llama-3-8B"]), nil)
	kept := func(precision fit.Precision) (bytes int64) {
		stages, sizes := fit.Composed(&c.Model, fit.Setup{Sequence: s, Precision: precision}, []int{layers})
		profile, err := fit.Compose(stages, 0, 0, sizes)
		require.NoError(t, err)
		for _, b := range profile.Shapes[0].Stages[0].Buffers {
			if b.Class == memory.Saved {
				bytes += b.Bytes
			}
		}
		return bytes
	}
	require.EqualValues(t, layers*s*(h+h+ffn-h), kept(fit.BF16)-kept(fit.FP8))
	for zero := range 4 {
		static := func(precision fit.Precision) fit.Static {
			return prediction(t, configs["Llama-3-8B"], "1f1b", 1, 1, fit.Setup{Sequence: 16, Data: 8, Zero: zero, Precision: precision}).Ranks[0].Static
		}
		plain, low := static(fit.BF16), static(fit.FP8)
		require.EqualValues(t, 2*layers*products, low.Weights-plain.Weights)
		low.Weights = plain.Weights
		require.Equal(t, plain, low)
	}
	moe := prediction(t, configs["Mixtral-8x7B"], "1f1b", 1, 1, fit.Setup{Sequence: 16, Precision: fit.FP8}).Ranks[0]
	require.EqualValues(t, 2*32*(2*4096*4096+2*4096*1024+8*3*4096*14336), moe.Weights-2*moe.Parameters, "routers, norms, embedding and head have no copies")
	flags := readConfig(t, strings.NewReader("--num-layers 2 --hidden-size 64 --num-attention-heads 4 --vocab-size 64 --position-embedding-type rope --bf16 --fp8-format hybrid --fp8-param-gather"), nil)
	require.Equal(t, fit.FP8, flags.Setup.Precision)
	require.Equal(t, []string{"--fp8-param-gather"}, flags.Unread)
}

// laid returns the memory of a plan, with a share of the saved bytes in far memory.
func laid(t *testing.T, plan *schedule.Plan, profile *layout.Profile, share float64) *layout.Memory {
	t.Helper()
	passes := lower.Passes{StageInfo: profile.StageInfo, Parts: len(profile.Parts), Capacity: 1}
	if share > 0 {
		passes.OffloadSlots = profile.OffloadSlots(&plan.Placement, share)
	}
	plan, err := lower.Prepare(plan, passes)
	require.NoError(t, err)
	made, err := layout.Make(t.Context(), plan, profile, layout.Config{Search: placement.Options{Nodes: 1}})
	require.NoError(t, err)
	return made
}

// prediction returns the prediction for a config under a schedule.
func prediction(t *testing.T, config, name string, ranks, stages int, setup fit.Setup) *fit.Prediction {
	t.Helper()
	c := readConfig(t, strings.NewReader(config), nil)
	out, err := fit.Predict(t.Context(), fit.Request{Model: &c.Model, Setup: setup, Plan: plantest.Named(t, name, ranks, stages, 2*ranks), Capacity: 1})
	require.NoError(t, err)
	return out
}

// TestRanksAddUp expects that the ranks of a pipeline together have every parameter once, and the ranks of
// tensor and expert parallelism every share of it.
func TestRanksAddUp(t *testing.T) {
	for name, config := range configs {
		c := readConfig(t, strings.NewReader(config), nil)
		var sum int64
		out := prediction(t, config, "interleaved", 4, 8, fit.Setup{Sequence: 16})
		for _, r := range out.Ranks {
			sum += r.Parameters
		}
		want := c.Model.Parameters(1, false)
		if c.Model.Tied {
			want += int64(c.Model.Vocabulary * c.Model.Hidden) // the head's stage has a copy
		}
		require.Equal(t, want, sum, name)
	}
	whole := prediction(t, configs["Mixtral-8x7B"], "1f1b", 1, 1, fit.Setup{Sequence: 16}).Ranks[0].Parameters
	half := prediction(t, configs["Mixtral-8x7B"], "1f1b", 1, 1, fit.Setup{Sequence: 16, Expert: 8, Data: 8}).Ranks[0].Parameters
	require.EqualValues(t, 32*3*4096*14336*7, whole-half, "seven of eight experts are elsewhere")
}

// TestRecompute checks that full recompute keeps only the input of a layer, that a recompute group drops
// only its own tensors, and that a list of stages limits recompute to these stages.
func TestRecompute(t *testing.T) {
	peak := func(r fit.Recompute, unfused bool) []int64 {
		var list []int64
		for _, rank := range prediction(t, configs["Llama-3-8B"], "1f1b", 4, 4, fit.Setup{Sequence: 4096, Recompute: r, UnfusedAttention: unfused}).Ranks {
			list = append(list, rank.Step())
		}
		return list
	}
	none, full := peak(fit.Recompute{}, false), peak(fit.Recompute{All: true}, false)
	some, first := peak(fit.Recompute{Groups: []string{"norm", "activation"}}, false), peak(fit.Recompute{All: true, Stages: []int{0}}, false)
	const sh = 2 * 4096 * 4096 // size of a sequence's hidden states, in bytes
	require.Equal(t, []int64{full[0], none[1], none[2], none[3]}, first)
	require.Less(t, full[0], some[0])
	require.Less(t, some[0], none[0])
	require.InDelta(t, 4*8*sh, float64(full[0]), 3e9, "four microbatches of eight inputs, and one layer's tensors")
	require.InEpsilon(t, 8*(2*sh+2*4096*14336), none[3]-some[3], 0.05, "of a microbatch: two norms and an activation in each of eight layers, but for what is computed again at the peak")
	unfused, core := peak(fit.Recompute{}, true), peak(fit.Recompute{Groups: []string{"core"}}, true)
	require.Greater(t, unfused[0]-core[0], int64(3*8*2*32*4096*4096), "scores of three microbatches in eight layers")
}

// FuzzConfigs expects that no description makes a reader panic, and that every model that is read is valid.
func FuzzConfigs(f *testing.F) {
	for _, config := range configs {
		f.Add(config)
	}
	f.Add("--num-layers 6 --hidden-size 64 --num-attention-heads 4 --vocab-size 100 --position-embedding-type rope --num-experts 8 --moe-layer-freq ([0]*2+[1,0]*2) --multi-latent-attention")
	f.Add("--num-layers=2 --moe-layer-freq [1,1]*9999999+([")
	f.Fuzz(func(t *testing.T, text string) {
		if c, err := fit.Read(strings.NewReader(text), nil); err == nil {
			require.NoError(t, c.Model.Validate())
			require.Positive(t, c.Model.Parameters(1, true))
		}
	})
}

// TestTooLarge expects an error for sizes that fit on no device.
func TestTooLarge(t *testing.T) {
	c := readConfig(t, strings.NewReader(configs["Llama-3-8B"]), nil)
	plan := plantest.Made(t, schedule.OneFOneB, schedule.Params{Placement: schedule.Looped(2, 2), Microbatches: 2})
	for _, one := range []struct {
		setup fit.Setup
		want  string
	}{
		{fit.Setup{Sequence: 1 << 26, Microbatch: 1 << 26}, "has more than 2^48"},
		{fit.Setup{Sequence: 1 << 27}, "the sequence is 134217728"},
		{fit.Setup{}, "the sequence is 0: give 1 to 67108864"},
		{fit.Setup{Sequence: 9, Tensor: 5, Context: 2, Zero: 4, Expert: 2}, "32 attention heads do not divide over a tensor parallelism of 5\nfit: invalid setup: a sequence of 9 does not divide over a context parallelism of 2\nfit: invalid setup: expert parallelism is 2, and the model has no experts\nfit: invalid setup: ZeRO is 4: give 0 to 3"},
	} {
		_, err := fit.Predict(t.Context(), fit.Request{Model: &c.Model, Setup: one.setup, Plan: plan, Capacity: 1})
		require.ErrorIs(t, err, fit.ErrSetup)
		require.ErrorContains(t, err, one.want)
	}
	_, err := fit.Predict(t.Context(), fit.Request{Model: &c.Model, Setup: fit.Setup{Sequence: 16}, Plan: plan, Cut: []int{31, 2}, Capacity: 1})
	require.ErrorContains(t, err, "the cut has 33 layers in 2 stages, but the model has 32 layers")
}

// The costs of a model as functions of length agree with its formulas at every length.
func TestCostsByLength(t *testing.T) {
	for _, precision := range []fit.Precision{fit.BF16, fit.FP8} {
		for _, recompute := range []fit.Recompute{{}, {All: true}} {
			file, err := os.Open("../../../../docs/fit/llama-3-8b.json")
			require.NoError(t, err)
			defer file.Close()
			config := readConfig(t, file, nil)
			config.Setup.Sequence, config.Setup.Precision, config.Setup.Recompute = 4096, precision, recompute
			search := fit.Search{Model: &config.Model, Setup: config.Setup, Speed: 4e14, Bandwidth: 5e10}
			costs, cut, err := search.ByLength(4, nil)
			require.NoError(t, err)
			for _, length := range []int{1000, 4096, 20_001} {
				search.Setup.Sequence = length
				list, err := search.Stages(cut)
				require.NoError(t, err)
				for stage, want := range list {
					got := costs.Stages[stage].At(lengths.Of(length))
					require.Equal(t, want.Saved, got.Saved)
					require.Equal(t, want.Carry, got.Carry)
					require.Equal(t, want.Output, got.Output)
					require.Equal(t, want.Resident, got.Resident)
					for _, times := range [][2]int64{{want.F, got.F}, {want.I, got.I}, {want.W, got.W}} {
						require.InEpsilon(t, times[0], times[1], 1e-5)
					}
				}
			}
		}
	}
}
