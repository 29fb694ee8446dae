package fit

import (
	"bytes"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/weir-ml/weir/internal/formats/diagnostic"
	"github.com/weir-ml/weir/internal/formats/jsonfile"
)

// family describes a supported value of model_type, following its configuration class in transformers 5.24.
type family struct {
	defaults string // values of absent keys, as KEY=VALUE; null is None
	aliases  string // other names of keys, as OTHER=KEY: the class's attribute_map
	harmless string // keys that change no size in this family, in the form of values.finish
	build    func(*Model, *values)
}

const (
	qwen     = "use_sliding_window max_window_layers mlp_bias=false "
	routing  = "norm_topk_prob output_router_logits router_aux_loss_coef router_jitter_noise "
	deepseek = "aux_loss_alpha ep_size head_dim moe_layer_freq=1 n_group norm_topk_prob num_key_value_heads output_router_logits qk_head_dim rope_interleave routed_scaling_factor scoring_func seq_aux topk_group topk_method "
)

// families are the supported values of model_type. Each build function sets the fields that the
// family fixes or that only its keys describe.
var families = map[string]family{
	"llama": {
		defaults: "vocab_size=32000 hidden_size=4096 intermediate_size=11008 num_hidden_layers=32 num_attention_heads=32",
		build: func(m *Model, v *values) {
			m.QKVBias, m.MLPBias = v.flag("attention_bias"), v.flag("mlp_bias")
			m.OutBias = m.QKVBias
		},
	},
	"mistral": {
		defaults: "vocab_size=32000 hidden_size=4096 intermediate_size=14336 num_hidden_layers=32 num_attention_heads=32 num_key_value_heads=8",
		harmless: "attention_bias=false mlp_bias=false",
		build:    func(*Model, *values) {},
	},
	"mixtral": {
		defaults: "vocab_size=32000 hidden_size=4096 intermediate_size=14336 num_hidden_layers=32 num_attention_heads=32 num_key_value_heads=8 num_experts_per_tok=2 num_local_experts=8",
		aliases:  "num_experts=num_local_experts",
		harmless: routing + "attention_bias=false mlp_bias=false",
		build:    func(m *Model, v *values) { v.experts(m, "num_local_experts", m.FFN) },
	},
	"qwen2": {
		defaults: "vocab_size=151936 hidden_size=4096 intermediate_size=22016 num_hidden_layers=32 num_attention_heads=32 num_key_value_heads=32",
		harmless: qwen,
		build:    func(m *Model, _ *values) { m.QKVBias = true },
	},
	"qwen3": {
		defaults: "vocab_size=151936 hidden_size=4096 intermediate_size=22016 num_hidden_layers=32 num_attention_heads=32 num_key_value_heads=32 head_dim=128",
		harmless: qwen,
		build:    func(m *Model, v *values) { v.qwen3(m) },
	},
	"qwen2_moe": {
		defaults: "vocab_size=151936 hidden_size=2048 intermediate_size=5632 num_hidden_layers=24 num_attention_heads=16 num_key_value_heads=16 moe_intermediate_size=1408 shared_expert_intermediate_size=5632 num_experts_per_tok=4 num_experts=60 decoder_sparse_step=1 qkv_bias=true",
		harmless: qwen + routing,
		build: func(m *Model, v *values) {
			m.QKVBias, m.SharedGate = v.flag("qkv_bias"), true
			v.qwenExperts(m)
			m.SharedFFN = v.wholeOr("shared_expert_intermediate_size", 0)
		},
	},
	"qwen3_moe": {
		defaults: "vocab_size=151936 hidden_size=2048 intermediate_size=6144 num_hidden_layers=24 num_attention_heads=32 num_key_value_heads=4 moe_intermediate_size=768 num_experts_per_tok=8 num_experts=128 decoder_sparse_step=1",
		aliases:  "num_local_experts=num_experts",
		harmless: qwen + routing,
		build: func(m *Model, v *values) {
			v.qwen3(m)
			v.qwenExperts(m)
		},
	},
	"deepseek_v2": {
		defaults: "vocab_size=102400 hidden_size=4096 intermediate_size=11008 num_hidden_layers=32 num_attention_heads=32 first_k_dense_replace=0 kv_lora_rank=512 q_lora_rank=1536 n_routed_experts=64 n_shared_experts=2 qk_nope_head_dim=128 qk_rope_head_dim=64 v_head_dim=128 moe_intermediate_size=1407",
		aliases:  "num_experts=n_routed_experts",
		harmless: deepseek,
		build: func(m *Model, v *values) {
			v.deepseek(m)
			m.MLPBias = v.flag("mlp_bias")
		},
	},
	"deepseek_v3": {
		defaults: "vocab_size=129280 hidden_size=7168 intermediate_size=18432 num_hidden_layers=61 num_attention_heads=128 first_k_dense_replace=3 kv_lora_rank=512 q_lora_rank=1536 n_routed_experts=256 n_shared_experts=1 num_experts_per_tok=8 qk_nope_head_dim=128 qk_rope_head_dim=64 v_head_dim=128 moe_intermediate_size=2048 num_nextn_predict_layers=1",
		aliases:  "num_local_experts=n_routed_experts num_mtp_layers=num_nextn_predict_layers",
		harmless: deepseek + "mlp_bias=false",
		build: func(m *Model, v *values) {
			v.deepseek(m)
			m.RouterBuffer, m.MTP = true, v.wholeOr("num_nextn_predict_layers", 0)
		},
	},
}

// harmless are the keys of every family that change no size.
const harmless = `_commit_hash _name_or_path architectures=.*For(CausalLM|ConditionalGeneration).* auto_map bos_token_id chunk_size_feed_forward dtype eos_token_id
	hidden_act="?(silu|swish)"? id2label initializer_range is_encoder_decoder=false label2id layer_types=\[(\s*"(full|sliding)_attention",?)*\s*\] max_position_embeddings
	model_type output_attentions output_hidden_states pad_token_id partial_rotary_factor pretraining_tp problem_type return_dict rms_norm_eps rope_interleaved rope_parameters rope_scaling rope_theta
	sliding_window tokenizer_class torch_dtype transformers_version unsloth_fixed unsloth_version use_cache `

// Families returns the values of model_type that [Read] supports.
func Families() []string { return slices.Sorted(maps.Keys(families)) }

// notJSON matches a string, which is kept, or a number that Python writes and JSON does not have.
var notJSON = regexp.MustCompile(`"(\\.|[^"\\])*"|-?\b(NaN|Infinity)\b`)

// languages lists the names under which a multimodal config has its language model.
var languages = []string{"text_config", "llm_config", "language_config"}

// object reads the members of a JSON object into the values. If one of them is the language model of a
// multimodal config, the members of that object become the values. If outer is set, those of the outer
// object are kept as well.
func (v *values) object(text []byte, outer bool) *jsonfile.Error {
	valid := notJSON.ReplaceAllFunc(text, func(word []byte) []byte { // has the same length as text
		if word[0] == '"' {
			return word
		}
		return bytes.Repeat([]byte("1"), len(word))
	})
	var language []byte
	from := 0
	fault := jsonfile.Members(valid, "config.json", func(key string, offset int, value []byte) *jsonfile.Error {
		value = text[offset : offset+len(value)]
		if outer && language == nil && slices.Contains(languages, key) && value[0] == '{' {
			language, from = value, offset
		} else {
			v.raw[key] = string(value)
		}
		return nil
	})
	if fault != nil || language == nil {
		return fault
	}
	v.outer, v.raw = v.raw, map[string]string{}
	if fault = v.object(language, false); fault != nil {
		fault.Offset += from
	}
	return fault
}

// tied reports whether the head shares the table of the embedding. In a multimodal config, the model's class
// determines whether the config's own key or the key of the language model counts. Therefore the two must
// agree, and if the config's own key is absent, the value is listed as assumed.
func (v *values) tied() bool {
	const key = "tie_word_embeddings"
	inner, given := v.raw[key]
	if outer, both := v.outer[key]; both && given && outer != inner {
		v.add("%s is %.40s for the model and %.40s for its language model, and its class decides: give it as --set %s=true or --set %s=false", key, outer, inner, key, key)
	} else if both {
		v.raw[key] = outer
	}
	is := v.flag(key)
	if _, both := v.outer[key]; v.outer != nil && !both {
		v.assumed = append(v.assumed, fmt.Sprintf("%s %t", key, is))
	}
	return is
}

// config makes the model from a config.json.
func (v *values) config(text []byte, name string, set []string) (*Config, error) {
	if fault := v.object(text, true); fault != nil {
		return nil, diagnostic.At(ErrModel, name, text, fault.Offset, fault)
	}
	if _, given := v.raw["model_type"]; !given && v.outer != nil {
		v.raw["model_type"] = v.outer["model_type"]
	}
	v.override(set)
	kind := strings.Trim(v.value("model_type"), `"`)
	family, known := families[kind]
	if !known {
		return nil, diagnostic.Errorf(ErrModel, "model_type is %.80q, which is not supported: give the one of %s with the same layers, as --set model_type=NAME, or a profile of the model by python -m weir.profile", kind, strings.Join(Families(), ", "))
	}
	for pair := range strings.FieldsSeq(family.defaults) {
		key, value, _ := strings.Cut(pair, "=")
		v.defaults[key] = value
	}
	for pair := range strings.FieldsSeq(family.aliases) {
		other, key, _ := strings.Cut(pair, "=")
		if value, given := v.raw[other]; given {
			if before, both := v.raw[key]; both && before != value {
				v.add("%s is %.40s and %s is %.40s: the family has one value for both, give it as --set %s=N --set %s=N", key, before, other, value, key, other)
			}
			v.raw[key], v.read[other] = value, true
		}
	}
	m := Model{
		Family: kind, Gated: true,
		Layers: v.whole("num_hidden_layers"), Hidden: v.whole("hidden_size"), Heads: v.whole("num_attention_heads"), FFN: v.whole("intermediate_size"),
		Vocabulary: v.whole("vocab_size"), Tied: v.tied(), AttentionDropout: v.positive("attention_dropout", false),
	}
	if family.build(&m, v); m.Latent == nil {
		m.KVHeads, m.HeadDim = v.wholeOr("num_key_value_heads", m.Heads), v.wholeOr("head_dim", m.Hidden/max(m.Heads, 1))
		v.evenHeads(&m, "head_dim")
	}
	return v.finish(&Config{Model: m}, "", harmless+family.harmless)
}

// experts sets the experts of a model in which every layer has them.
func (v *values) experts(m *Model, count string, inner int) {
	m.Experts, m.TopK, m.ExpertFFN = v.whole(count), v.whole("num_experts_per_tok"), inner
	m.Sparse = slices.Repeat([]bool{m.Experts > 0}, min(max(m.Layers, 0), maxLayers))
}

// qwen3 sets the properties of attention that all families of Qwen 3 share.
func (v *values) qwen3(m *Model) {
	m.QKNorm, m.QKVBias = true, v.flag("attention_bias")
	m.OutBias = m.QKVBias
}

// qwenExperts sets the experts of a Qwen model, in which only some layers have them.
func (v *values) qwenExperts(m *Model) {
	v.experts(m, "num_experts", v.whole("moe_intermediate_size"))
	step, dense := v.wholeOr("decoder_sparse_step", 1), v.numbers("mlp_only_layers")
	for layer := range m.Sparse {
		m.Sparse[layer] = m.Sparse[layer] && (layer+1)%max(step, 1) == 0 && !slices.Contains(dense, layer)
	}
}

// deepseek sets the experts and the latent attention of the DeepSeek families.
func (v *values) deepseek(m *Model) {
	m.QKNorm, m.QKVBias = true, v.flag("attention_bias")
	m.OutBias = m.QKVBias
	v.experts(m, "n_routed_experts", v.whole("moe_intermediate_size"))
	m.SharedFFN = v.wholeOr("n_shared_experts", 0) * m.ExpertFFN
	first := v.wholeOr("first_k_dense_replace", 0)
	for layer := range m.Sparse {
		m.Sparse[layer] = layer >= first
	}
	m.Latent = &Latent{
		Query: v.wholeOr("q_lora_rank", 0), KV: v.whole("kv_lora_rank"), Nope: v.whole("qk_nope_head_dim"), Rope: v.whole("qk_rope_head_dim"), Value: v.whole("v_head_dim"),
	}
}

// numbers returns the layer numbers in the value of a key, or adds a fault and returns nil if it cannot read them.
func (v *values) numbers(key string) (list []int) {
	value := v.value(key)
	for word := range strings.FieldsFuncSeq(value, func(r rune) bool { return strings.ContainsRune("[], \n\t", r) }) {
		n, err := strconv.Atoi(word)
		if err != nil || len(list) == maxLayers {
			v.add("%s is %.40s: expected a list of at most %d numbers of layers", key, value, maxLayers)
			return nil
		}
		list = append(list, n)
	}
	return list
}
