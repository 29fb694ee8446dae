package fit

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"regexp"
	"slices"
	"strings"
)

// MegatronFlags returns the names of the flags that [ReadMegatron] reads, without dashes.
func MegatronFlags() []string {
	v := newValues()
	v.override([]string{"num-experts=1", "multi-latent-attention=true", "group-query-attention=true", "recompute-granularity=selective"})
	_, _ = v.megatron() // The error does not matter: every flag was looked up.
	return slices.Sorted(maps.Keys(v.read))
}

// matter are the prefixes of unsupported flags that may change memory.
var matter = []string{"moe-", "mtp-", "recompute-", "num-", "attention-", "multi-latent", "window-", "fp8-", "optimizer", "decoder-", "pipeline-model-parallel-layout", "account-for", "use-precision-aware", "offload", "cpu-offload", "experimental"}

// ReadMegatron reads Megatron-LM's flags in the forms of command lines, scripts and tests:
// --flag VALUE, --flag=VALUE or --flag: VALUE. It skips other words; a text without flags is an
// error. The elements of set are as in
// [ReadConfig], with the names of flags without dashes as keys.
func ReadMegatron(r io.Reader, set []string) (*Config, error) {
	text, err := io.ReadAll(io.LimitReader(r, maxText+1))
	if err != nil {
		return nil, fmt.Errorf("fit: %w", err)
	}
	if len(text) > maxText {
		return nil, fmt.Errorf("%w: the flags are longer than %d bytes", ErrModel, maxText)
	}
	v := newValues()
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
				if v.raw[flag] == "true" {
					v.raw[flag] = word
				} else {
					v.raw[flag] += " " + word
				}
				if flag != "recompute-modules" { // the only one with several values
					flag = ""
				}
			}
		}
	}
	if len(v.raw) == 0 {
		return nil, fmt.Errorf("%w: found neither an object of JSON, {, nor a flag, such as --num-layers 32: give the config.json of a model or Megatron-LM's flags", ErrModel)
	}
	v.override(set)
	return v.megatron()
}

// megatron makes the model and the setup from Megatron's flags.
func (v *values) megatron() (*Config, error) {
	m := Model{
		Family: "megatron", Layers: v.whole("num-layers"), Hidden: v.whole("hidden-size"), Heads: v.whole("num-attention-heads"), Vocabulary: v.whole("vocab-size"),
		Padding: v.wholeOr("make-vocab-size-divisible-by", 128), Gated: v.flag("swiglu"), Tied: !v.flag("untie-embeddings-and-output-weights"),
		QKNorm: v.flag("qk-layernorm"), LayerNorm: !strings.EqualFold(v.text("normalization"), "RMSNorm"),
		Dropout: strings.Trim(cmp.Or(v.text("hidden-dropout"), "0.1"), "0.") != "", MTP: v.wholeOr("mtp-num-layers", 0),
	}
	m.MLPBias = !v.flag("disable-bias-linear")
	m.QKVBias, m.OutBias = v.flag("add-qkv-bias") || m.MLPBias, m.MLPBias
	m.HeadDim = v.wholeOr("kv-channels", m.Hidden/max(m.Heads, 1))
	if m.KVHeads = m.Heads; v.flag("group-query-attention") {
		m.KVHeads = v.wholeOr("num-query-groups", 1)
	}
	inner := 4 * m.Hidden
	if m.Gated {
		inner = inner * 2 / 3 / 64 * 64
	}
	m.FFN = v.wholeOr("ffn-hidden-size", inner)
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
	for name := range v.raw {
		if !v.read[name] && hasPrefix(name, matter) {
			c.Unread = append(c.Unread, "--"+name)
		}
	}
	return v.finish(c)
}

// megatronExperts sets the experts.
func (v *values) megatronExperts(m *Model) {
	if v.text("num-experts") == "" {
		return
	}
	m.Experts, m.TopK, m.ExpertFFN = v.whole("num-experts"), v.wholeOr("moe-router-topk", 2), v.wholeOr("moe-ffn-hidden-size", m.FFN)
	m.SharedFFN, m.RouterBias = v.wholeOr("moe-shared-expert-intermediate-size", 0), v.flag("moe-router-enable-expert-bias")
	pattern := v.text("moe-layer-freq")
	list, every := layerList(pattern), 1
	fmt.Sscan(pattern, &every)
	for layer := range min(max(m.Layers, 0), maxLayers) {
		m.Sparse = append(m.Sparse, list == nil && layer%max(every, 1) == 0 || layer < len(list) && list[layer])
	}
}

var listTerm = regexp.MustCompile(`\[([01][01, ]*)\](?:\*(\d+))?`)

// layerList parses a list of layers, such as [0,1,1] or ([0]*3+[1]*58), in which 1 is a layer with experts.
func layerList(text string) (list []bool) {
	for _, term := range listTerm.FindAllStringSubmatch(text, -1) {
		times := 1
		fmt.Sscan(term[2], &times)
		for range times {
			for _, c := range term[1] {
				if len(list) == maxLayers {
					return list
				}
				if c != ',' && c != ' ' {
					list = append(list, c == '1')
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
	if v.text("fp8-format") != "" {
		s.Precision = FP8
	}
	if v.flag("use-distributed-optimizer") {
		s.Zero = 1
	}
	switch v.text("recompute-granularity") {
	case "full":
		s.Recompute = Recompute{All: true}
	case "selective":
		for _, module := range strings.Fields(cmp.Or(v.text("recompute-modules"), "core_attn")) {
			switch module {
			case "core_attn":
				s.Recompute.Groups = append(s.Recompute.Groups, "core")
			case "layernorm":
				s.Recompute.Groups = append(s.Recompute.Groups, "norm")
			default:
				c.Unread = append(c.Unread, "--recompute-modules "+module)
			}
		}
	}
	s.UnfusedAttention = v.text("attention-backend") == "unfused" || v.text("attention-backend") == "local"
	if each := v.wholeOr("num-layers-per-virtual-pipeline-stage", 0); each > 0 && c.Ranks > 0 {
		c.VirtualStages = c.Model.Layers / c.Ranks / each
	}
	c.VirtualStages = v.wholeOr("num-virtual-stages-per-pipeline-rank", c.VirtualStages)
}
