package fit

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
)

// megatronFlags are the supported flags of Megatron-LM.
var megatronFlags = strings.Fields(`
	num-layers hidden-size ffn-hidden-size num-attention-heads kv-channels group-query-attention num-query-groups qk-layernorm add-qkv-bias disable-bias-linear
	swiglu normalization position-embedding-type max-position-embeddings vocab-size make-vocab-size-divisible-by untie-embeddings-and-output-weights hidden-dropout
	num-experts moe-router-topk moe-ffn-hidden-size moe-shared-expert-intermediate-size moe-layer-freq moe-router-enable-expert-bias
	multi-latent-attention q-lora-rank kv-lora-rank qk-head-dim qk-pos-emb-head-dim v-head-dim mtp-num-layers
	seq-length micro-batch-size global-batch-size tensor-model-parallel-size sequence-parallel context-parallel-size expert-model-parallel-size expert-tensor-parallel-size
	pipeline-model-parallel-size num-layers-per-virtual-pipeline-stage num-virtual-stages-per-pipeline-rank bf16 fp16 use-distributed-optimizer
	recompute-granularity recompute-modules attention-backend no-gradient-accumulation-fusion`)

// MegatronFlags returns the names of the flags that [ReadMegatron] reads, without dashes.
func MegatronFlags() []string { return slices.Clone(megatronFlags) }

// matter are the prefixes of unsupported flags that may change memory.
var matter = []string{"moe-", "mtp-", "recompute-", "num-", "attention-", "multi-latent", "window-", "fp8-", "optimizer", "decoder-", "pipeline-model-parallel-layout", "account-for", "use-precision-aware", "offload", "cpu-offload", "experimental"}

// ReadMegatron reads Megatron-LM's flags in the forms of command lines, scripts and tests:
// --flag VALUE, --flag=VALUE or --flag: VALUE. It skips other words. The elements of set are as in
// [ReadConfig], with the names of flags without dashes as keys.
func ReadMegatron(r io.Reader, set []string) (*Config, error) {
	text, err := io.ReadAll(io.LimitReader(r, maxText+1))
	if err != nil {
		return nil, fmt.Errorf("fit: %w", err)
	}
	if len(text) > maxText {
		return nil, fmt.Errorf("%w: the flags are longer than %d bytes", ErrModel, maxText)
	}
	v := &values{raw: map[string]string{}, read: map[string]bool{}}
	flag := ""
	for line := range strings.Lines(string(text)) {
		if comment := strings.Index(line, "#"); comment >= 0 {
			line = line[:comment]
		}
		for _, word := range strings.Fields(line) {
			if name, is := strings.CutPrefix(word, "--"); is {
				name, value, given := strings.Cut(name, "=")
				flag = strings.TrimSuffix(name, ":")
				if v.raw[flag] = "true"; given {
					v.raw[flag], flag = value, ""
				}
			} else if word = strings.Trim(word, `"'\`); flag != "" && word != "" {
				v.raw[flag], flag = word, ""
			}
		}
	}
	if err := v.override(set); err != nil {
		return nil, err
	}
	return v.megatron()
}

// megatron makes the model and the setup from Megatron's flags.
func (v *values) megatron() (*Config, error) {
	m := Model{
		Family: "megatron", Layers: v.whole("num-layers"), Hidden: v.whole("hidden-size"), Heads: v.whole("num-attention-heads"), Vocabulary: v.whole("vocab-size"),
		Padding: v.wholeOr("make-vocab-size-divisible-by", 128), Gated: v.flag("swiglu"), Tied: !v.flag("untie-embeddings-and-output-weights"),
		QKNorm: v.flag("qk-layernorm"), LayerNorm: !strings.EqualFold(v.text("normalization"), "RMSNorm"),
		Dropout: v.fraction("hidden-dropout", "0.1"), MTP: v.wholeOr("mtp-num-layers", 0),
	}
	m.MLPBias = !v.flag("disable-bias-linear")
	m.QKVBias, m.OutBias = m.MLPBias || v.flag("add-qkv-bias"), m.MLPBias
	m.HeadDim = v.wholeOr("kv-channels", m.Hidden/max(m.Heads, 1))
	if m.KVHeads = m.Heads; v.flag("group-query-attention") {
		m.KVHeads = v.wholeOr("num-query-groups", 1)
	}
	m.FFN = v.wholeOr("ffn-hidden-size", megatronFFN(m.Hidden, m.Gated))
	if kind := v.text("position-embedding-type"); kind == "" || kind == "learned_absolute" {
		m.Positions = v.whole("max-position-embeddings")
	}
	v.megatronExperts(&m)
	v.evenHeads(&m, "kv-channels")
	if v.flag("multi-latent-attention") {
		m.Latent = &Latent{
			Query: v.wholeOr("q-lora-rank", 0), KV: v.wholeOr("kv-lora-rank", 32), Nope: v.wholeOr("qk-head-dim", 128), Rope: v.wholeOr("qk-pos-emb-head-dim", 64), Value: v.wholeOr("v-head-dim", 128),
		}
	}
	c := &Config{Model: m, Ranks: v.wholeOr("pipeline-model-parallel-size", 1), GlobalBatch: v.wholeOr("global-batch-size", 0)}
	v.megatronSetup(c)
	if len(v.faults) > 0 {
		return nil, errors.Join(v.faults...)
	}
	if err := m.Validate(); err != nil {
		return nil, err
	}
	for name := range v.raw {
		if !slices.Contains(megatronFlags, name) && slices.ContainsFunc(matter, func(begin string) bool { return strings.HasPrefix(name, begin) }) {
			c.Unread = append(c.Unread, "--"+name)
		}
	}
	slices.Sort(c.Unread)
	return c, nil
}

// megatronFFN returns Megatron's default inner size of the MLP.
func megatronFFN(hidden int, gated bool) int {
	if gated {
		return 4 * hidden * 2 / 3 / 64 * 64
	}
	return 4 * hidden
}

// megatronExperts sets the experts.
func (v *values) megatronExperts(m *Model) {
	if v.raw["num-experts"] == "" {
		return
	}
	inner := v.wholeOr("moe-ffn-hidden-size", m.FFN)
	m.Experts, m.TopK, m.ExpertFFN = v.whole("num-experts"), v.wholeOr("moe-router-topk", 2), inner
	m.SharedFFN, m.RouterBias = v.wholeOr("moe-shared-expert-intermediate-size", 0), v.flag("moe-router-enable-expert-bias")
	layers, pattern := min(max(m.Layers, 0), maxLayers), v.text("moe-layer-freq")
	m.Sparse = make([]bool, layers)
	each := expandList(pattern)
	for layer := range m.Sparse {
		switch {
		case len(each) > 0 && strings.HasPrefix(pattern, "("), strings.HasPrefix(pattern, "["):
			m.Sparse[layer] = layer < len(each) && each[layer] == 1
		case len(each) == 1 && each[0] > 0:
			m.Sparse[layer] = layer%each[0] == 0
		default:
			m.Sparse[layer] = true
		}
	}
	v.read["moe-layer-freq"] = true
}

// expandList parses the lists of Megatron's flags: 2, [0,1,1] or ([0]*3+[1]*58).
func expandList(text string) (list []int) {
	for term := range strings.SplitSeq(strings.Trim(text, `"'()`), "+") {
		body, times, _ := strings.Cut(term, "*")
		n := 1
		if times != "" {
			fmt.Sscan(times, &n)
		}
		for range min(max(n, 0), maxLayers) {
			if len(list) == maxLayers {
				return list
			}
			for word := range strings.SplitSeq(strings.Trim(body, "[] "), ",") {
				value := 0
				if _, err := fmt.Sscan(word, &value); err == nil && len(list) < maxLayers {
					list = append(list, value)
				}
			}
		}
	}
	return list
}

// megatronSetup sets the training setup, the virtual stages and the keys that are read.
func (v *values) megatronSetup(c *Config) {
	s := &c.Setup
	s.Sequence, s.Microbatch = v.wholeOr("seq-length", 0), v.wholeOr("micro-batch-size", 0)
	s.Tensor, s.SequenceParallel = v.wholeOr("tensor-model-parallel-size", 1), v.flag("sequence-parallel")
	s.Context, s.Expert = v.wholeOr("context-parallel-size", 1), v.wholeOr("expert-model-parallel-size", 1)
	s.ExpertTensor = v.wholeOr("expert-tensor-parallel-size", 0)
	s.Precision, s.Unfused = FP32, v.flag("no-gradient-accumulation-fusion")
	if v.flag("bf16") {
		s.Precision = BF16
	}
	if v.flag("fp16") {
		s.Precision = FP16
	}
	if v.flag("use-distributed-optimizer") {
		s.Zero = 1
	}
	switch v.text("recompute-granularity") {
	case "full":
		s.Recompute = Recompute{All: true}
	case "selective":
		s.Recompute = Recompute{Groups: []string{"core"}}
	}
	s.UnfusedAttention = v.text("attention-backend") == "unfused" || v.text("attention-backend") == "local"
	if each := v.wholeOr("num-layers-per-virtual-pipeline-stage", 0); each > 0 && c.Ranks > 0 {
		c.VirtualStages = c.Model.Layers / c.Ranks / each
	}
	c.VirtualStages = v.wholeOr("num-virtual-stages-per-pipeline-rank", c.VirtualStages)
	v.read["recompute-modules"] = true
}

// fraction reports whether a decimal fraction, or its default usual, is not 0.
func (v *values) fraction(key, usual string) bool {
	value := v.text(key)
	if value == "" {
		value = usual
	}
	return strings.Trim(value, "0.") != ""
}
