package fit

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/weir-ml/weir/internal/jsontext"
)

// maxText is the maximal length of a description in bytes.
const maxText = 1 << 20

// Config is the result of reading a description.
type Config struct {
	Model Model
	// Setup is the training setup of Megatron's flags; zero for Hugging Face's config.json.
	Setup Setup
	// Ranks, VirtualStages and GlobalBatch come from Megatron's flags; 0 if they are absent.
	Ranks, VirtualStages, GlobalBatch int
	// Unread names keys and flags that may change memory and are not supported.
	Unread []string
}

// families are the supported values of model_type. Each function sets the fields that the family
// fixes or that only its keys describe.
var families = map[string]func(*Model, *values){
	"llama": func(m *Model, v *values) {
		m.QKVBias, m.MLPBias = v.flag("attention_bias"), v.flag("mlp_bias")
		m.OutBias = m.QKVBias
	},
	"mistral":     func(*Model, *values) {},
	"mixtral":     func(m *Model, v *values) { v.experts(m, "num_local_experts", m.FFN) },
	"qwen2":       func(m *Model, _ *values) { m.QKVBias = true },
	"qwen3":       func(m *Model, v *values) { m.QKNorm, m.QKVBias = true, v.flag("attention_bias"); m.OutBias = m.QKVBias },
	"qwen2_moe":   func(m *Model, v *values) { m.QKVBias, m.SharedGate = true, true; v.qwenExperts(m) },
	"qwen3_moe":   func(m *Model, v *values) { m.QKNorm = true; v.qwenExperts(m) },
	"deepseek_v2": func(m *Model, v *values) { v.deepseek(m) },
	"deepseek_v3": func(m *Model, v *values) { v.deepseek(m); m.RouterBias = true },
}

// Families returns the values of model_type that [ReadConfig] supports.
func Families() []string { return slices.Sorted(maps.Keys(families)) }

// harmless are prefixes of keys of config.json that change no size.
var harmless = []string{
	"_", "architectures", "attention_dropout", "aux_loss_alpha", "auto_map", "bos_token_id", "dtype", "eos_token_id", "ep_size", "hidden_act", "initializer_range",
	"layer_types", "max_position_embeddings", "max_window_layers", "model_type", "n_group", "norm_topk_prob", "num_experts_per_tok", "output_router_logits", "pad_token_id",
	"pretraining_tp", "quantization_config", "rms_norm_eps", "rope_", "routed_scaling_factor", "router_", "scoring_func", "seq_aux", "sliding_window", "topk_",
	"torch_dtype", "transformers_version", "use_cache", "use_sliding_window", "attention_bias", "mlp_bias",
}

// ReadConfig reads the config.json of a Hugging Face model. The elements of set are KEY=VALUE and
// override or add keys of the file. Errors about the file wrap ErrModel and name the missing or
// unknown key, or the location of the fault.
func ReadConfig(r io.Reader, set []string) (*Config, error) {
	text, err := jsontext.New(r, maxText, "config.json")
	if errors.Is(err, jsontext.ErrLong) {
		return nil, fmt.Errorf("%w: the file is longer than %d bytes", ErrModel, maxText)
	}
	if err != nil {
		return nil, fmt.Errorf("fit: %w", err)
	}
	v := newValues()
	text.Object(func(key string) { v.raw[key] = string(text.Raw()) })
	if f := text.Fault(); f != nil {
		return nil, fmt.Errorf("%w: %s: %s", ErrModel, f.Place, f.Text)
	}
	v.override(set)
	return v.config()
}

// config makes the model from the values.
func (v *values) config() (*Config, error) {
	kind := strings.Trim(v.raw["model_type"], `"`)
	family, known := families[kind]
	if !known {
		return nil, fmt.Errorf("%w: model_type is %q, which is not supported: give the one of %s with the same layers, as --set model_type=NAME", ErrModel, kind, strings.Join(Families(), ", "))
	}
	m := Model{
		Family: kind, Gated: true,
		Layers: v.whole("num_hidden_layers"), Hidden: v.whole("hidden_size"), Heads: v.whole("num_attention_heads"), FFN: v.whole("intermediate_size"),
		Vocabulary: v.whole("vocab_size"), Tied: v.flag("tie_word_embeddings"),
	}
	m.KVHeads = v.wholeOr("num_key_value_heads", m.Heads)
	m.HeadDim = v.wholeOr("head_dim", m.Hidden/max(m.Heads, 1))
	if act := v.text("hidden_act"); act != "silu" && act != "" {
		v.add("hidden_act is %q: only silu is supported", act)
	}
	family(&m, v)
	v.evenHeads(&m, "head_dim")
	c := &Config{Model: m}
	for key := range v.raw {
		if !v.read[key] && !hasPrefix(key, harmless) {
			c.Unread = append(c.Unread, key)
		}
	}
	return v.finish(c)
}

func hasPrefix(key string, prefixes []string) bool {
	return slices.ContainsFunc(prefixes, func(begin string) bool { return strings.HasPrefix(key, begin) })
}

// finish returns the faults of the values or of the model, if there are any.
func (v *values) finish(c *Config) (*Config, error) {
	if len(v.list) > 0 {
		return nil, errors.Join(v.list...)
	}
	if err := c.Model.Validate(); err != nil {
		return nil, err
	}
	slices.Sort(c.Unread)
	return c, nil
}

// experts sets the experts of a model in which every layer has them.
func (v *values) experts(m *Model, count string, inner int) {
	m.Experts, m.TopK, m.ExpertFFN = v.whole(count), v.whole("num_experts_per_tok"), inner
	m.Sparse = slices.Repeat([]bool{true}, min(max(m.Layers, 0), maxLayers))
}

// qwenExperts sets the experts of a Qwen model, in which only some layers have them.
func (v *values) qwenExperts(m *Model) {
	v.experts(m, "num_experts", v.whole("moe_intermediate_size"))
	m.SharedFFN = v.wholeOr("shared_expert_intermediate_size", 0)
	step, dense := max(v.wholeOr("decoder_sparse_step", 1), 1), v.numbers("mlp_only_layers")
	for layer := range m.Sparse {
		m.Sparse[layer] = (layer+1)%step == 0 && !slices.Contains(dense, layer)
	}
}

// deepseek sets the experts and the latent attention of the DeepSeek families.
func (v *values) deepseek(m *Model) {
	v.experts(m, "n_routed_experts", v.whole("moe_intermediate_size"))
	m.SharedFFN = v.wholeOr("n_shared_experts", 0) * m.ExpertFFN
	first, every := v.wholeOr("first_k_dense_replace", 0), max(v.wholeOr("moe_layer_freq", 1), 1)
	for layer := range m.Sparse {
		m.Sparse[layer] = layer >= first && layer%every == 0
	}
	m.MTP = v.wholeOr("num_nextn_predict_layers", 0)
	m.Latent = &Latent{
		Query: v.wholeOr("q_lora_rank", 0), KV: v.whole("kv_lora_rank"), Nope: v.whole("qk_nope_head_dim"), Rope: v.whole("qk_rope_head_dim"), Value: v.whole("v_head_dim"),
	}
}

// values are the keys of a description, each with its text, and the faults found in them.
type values struct {
	raw  map[string]string
	read map[string]bool
	faults
}

func newValues() *values {
	return &values{raw: map[string]string{}, read: map[string]bool{}, faults: faults{kind: ErrModel}}
}

// override sets the values of KEY=VALUE pairs.
func (v *values) override(set []string) {
	for _, one := range set {
		key, value, ok := strings.Cut(one, "=")
		if !ok || key == "" {
			v.add("%q is not KEY=VALUE", one)
		}
		v.raw[key] = value
	}
}

// whole returns a required number.
func (v *values) whole(key string) int {
	if value := v.raw[key]; value == "" || value == "null" {
		v.add("%s is missing: give it as --set %s=N", key, key)
		return 0
	}
	return v.wholeOr(key, 0)
}

// wholeOr returns a number, or other if it is missing or null.
func (v *values) wholeOr(key string, other int) int {
	v.read[key] = true
	value := v.raw[key]
	if value == "" || value == "null" {
		return other
	}
	n, err := strconv.Atoi(value)
	if err != nil || n < 0 || n > maxWidth {
		v.add("%s is %.40s: expected a whole number from 0 to %d", key, value, maxWidth)
		return 0
	}
	return n
}

// evenHeads checks that the size of a head that the key does not give follows from the width.
func (v *values) evenHeads(m *Model, key string) {
	if given := v.raw[key]; (given == "" || given == "null") && m.Latent == nil && m.Heads > 0 && m.Hidden%m.Heads != 0 {
		v.add("a width of %d does not divide into %d attention heads: give the size of a head with --set %s=N", m.Hidden, m.Heads, key)
	}
}

func (v *values) flag(key string) bool {
	v.read[key] = true
	switch value := v.raw[key]; value {
	case "true", "false", "", "null":
		return value == "true"
	default:
		v.add("%s is %.40s: expected true or false", key, value)
		return false
	}
}

func (v *values) text(key string) string {
	v.read[key] = true
	return strings.Trim(v.raw[key], `"`)
}

// numbers returns a list of layer numbers. It skips elements that are not numbers.
func (v *values) numbers(key string) (list []int) {
	v.read[key] = true
	for word := range strings.FieldsFuncSeq(v.raw[key], func(r rune) bool { return strings.ContainsRune("[], \n\t", r) }) {
		if n, err := strconv.Atoi(word); err == nil && len(list) < maxLayers {
			list = append(list, n)
		}
	}
	return list
}
