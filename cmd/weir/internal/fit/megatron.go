package fit

import (
	"cmp"
	_ "embed" // of the harmless flags
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/weir-ml/weir/internal/formats/diagnostic"
)

// megatronHarmless lists the flags of Megatron-LM, torchrun and srun that change no memory, in the form of
// values.finish.
//
//go:embed harmless.txt
var megatronHarmless string

// MegatronFlags returns the names of the flags that [Read] reads, without dashes.
func MegatronFlags() []string {
	v := newValues()
	v.override([]string{"num-experts=1", "multi-latent-attention=true", "group-query-attention=true", "recompute-granularity=selective", "optimizer=sgd"})
	_, _ = v.flags() // The error does not matter: every flag was looked up.
	return slices.Sorted(maps.Keys(v.read))
}

// megatron makes the model and the setup from a text with Megatron-LM's flags.
func (v *values) megatron(text string, set []string) (*Config, error) {
	s := script{flags: map[string][][]string{}, variables: map[string][]string{}}
	if s.read(text, 0); len(s.flags) == 0 {
		return nil, diagnostic.Errorf(ErrModel, "found neither an object of JSON, {, nor a flag, such as --num-layers 32: give the config.json of a model or Megatron-LM's flags")
	}
	for name, uses := range s.flags {
		var given []string
		for _, values := range uses {
			value := strings.Join(values, " ")
			if name != "recompute-modules" && len(values) > 0 { // no other flag is read with several values
				value = values[0]
			}
			given = append(slices.DeleteFunc(given, func(one string) bool { return one == value }), value)
			given = given[max(len(given)-maxValues, 0):]
		}
		v.raw[name] = given[len(given)-1]
		if len(given) > 1 {
			v.several[name] = given
		}
	}
	v.override(set)
	return v.flags()
}

// isFalse reports whether a word turns off a flag that takes no value.
func isFalse(word string) bool { return strings.EqualFold(word, "false") }

// on reports whether a flag that takes no value is given. It ignores a word that follows the flag, unless the
// word is false.
func (v *values) on(name string) bool {
	if several := v.several[name]; !v.read[name] && slices.ContainsFunc(several, isFalse) {
		for i, one := range several {
			several[i] = cmp.Or(one, "true")
		}
		v.assumed = append(v.assumed, "--"+name+" "+several[len(several)-1]+lastOf(several))
	}
	v.read[name] = true
	value, given := v.raw[name]
	return given && !isFalse(value)
}

// flags makes the model and the setup from the values of flags.
func (v *values) flags() (*Config, error) {
	m := Model{
		Family: "megatron", Layers: v.whole("num-layers"), Hidden: v.whole("hidden-size"), Heads: v.whole("num-attention-heads"),
		Gated: v.on("swiglu"), Tied: !v.on("untie-embeddings-and-output-weights"), QKNorm: v.on("qk-layernorm"),
		LayerNorm: v.choice("normalization", "LayerNorm", "RMSNorm") == "LayerNorm", Dropout: v.positive("hidden-dropout", true), AttentionDropout: v.positive("attention-dropout", true),
		Sinks: v.choice("softmax-type", "vanilla", "off-by-one", "learnable") == "learnable", MTP: v.wholeOr("mtp-num-layers", 0),
	}
	if m.Vocabulary = v.wholeOr("padded-vocab-size", 0); m.Vocabulary == 0 {
		m.Padding = v.wholeOr("make-vocab-size-divisible-by", 128)
		m.Vocabulary = v.whole("vocab-size")
	}
	inner := 4 * m.Hidden
	if m.Gated {
		inner = inner * 2 / 3 / 64 * 64
	}
	m.FFN = v.wholeOr("ffn-hidden-size", inner)
	m.Gated = v.on("quick-geglu") || m.Gated
	m.MLPBias = !v.on("disable-bias-linear")
	m.QKVBias, m.OutBias = v.on("add-qkv-bias") || m.MLPBias, m.MLPBias
	m.HeadDim = v.wholeOr("kv-channels", m.Hidden/max(m.Heads, 1))
	if m.KVHeads = m.Heads; v.on("group-query-attention") {
		m.KVHeads = v.wholeOr("num-query-groups", 1)
	}
	none, rotary := v.on("no-position-embedding"), v.on("use-rotary-position-embeddings")
	if kind := v.choice("position-embedding-type", "learned_absolute", "rope", "yarn", "mrope", "none"); kind == "learned_absolute" && !none && !rotary {
		m.Positions = v.whole("max-position-embeddings")
	}
	if v.on("multi-latent-attention") {
		m.QKVBias = false
		m.Latent = &Latent{
			Query: v.wholeOr("q-lora-rank", 0), KV: v.wholeOr("kv-lora-rank", 32), Nope: v.wholeOr("qk-head-dim", 128), Rope: v.wholeOr("qk-pos-emb-head-dim", 64), Value: v.wholeOr("v-head-dim", 128),
		}
	} else {
		v.evenHeads(&m, "kv-channels")
	}
	v.megatronExperts(&m)
	c := &Config{Model: m, Ranks: v.wholeOr("pipeline-model-parallel-size", 1), GlobalBatch: v.wholeOr("global-batch-size", 0)}
	v.megatronSetup(c)
	v.megatronLayout(c)
	return v.finish(c, "--", megatronHarmless)
}

// megatronExperts sets the experts.
func (v *values) megatronExperts(m *Model) {
	if m.Experts = v.wholeOr("num-experts", 0); m.Experts == 0 {
		return
	}
	m.TopK, m.ExpertFFN, m.ExpertBias = v.wholeOr("moe-router-topk", 2), v.wholeOr("moe-ffn-hidden-size", m.FFN), m.MLPBias
	m.SharedFFN, m.SharedGate = v.wholeOr("moe-shared-expert-intermediate-size", 0), v.on("moe-shared-expert-gate")
	m.RouterBias, m.RouterBuffer = m.MLPBias, v.on("moe-router-enable-expert-bias")
	pattern := v.value("moe-layer-freq")
	if pattern == "" {
		pattern = "1"
	}
	every, err := strconv.Atoi(pattern)
	list, rest := layerList(pattern, 0)
	switch {
	case err == nil && every > 0:
		for layer := range min(max(m.Layers, 0), maxLayers) {
			list = append(list, layer%every == 0)
		}
	case rest != "" || len(list) != m.Layers:
		v.add("moe-layer-freq is %.40s: expected a number, 1 or more, or a list with a 0 or 1 for each of the %d layers, such as ([0]*2+[1]*30)", pattern, m.Layers)
	}
	m.Sparse = list
}

// layerList parses a Python list, such as [0,1,1] or ([0]*3+[1]*58), in which 1 stands for a layer with
// experts. It returns the list and the text that follows it, or nil and a text that is not empty.
func layerList(text string, depth int) (list []bool, rest string) {
	text = strings.ReplaceAll(text, " ", "")
	for depth < maxNested {
		var term []bool
		switch {
		case strings.HasPrefix(text, "("):
			if term, text = layerList(text[1:], depth+1); !strings.HasPrefix(text, ")") {
				return nil, "("
			}
			text = text[1:]
		case strings.HasPrefix(text, "["):
			inside, behind, _ := strings.Cut(text[1:], "]")
			for one := range strings.SplitSeq(inside, ",") {
				if one != "0" && one != "1" {
					return nil, text
				}
				term = append(term, one == "1")
			}
			text = behind
		default:
			return nil, "expected a list"
		}
		times := 1
		if digits, is := strings.CutPrefix(text, "*"); is {
			text = strings.TrimLeft(digits, "0123456789")
			times, _ = strconv.Atoi(digits[:len(digits)-len(text)])
		}
		if times > maxLayers || times*len(term)+len(list) > maxLayers {
			return nil, "too long"
		}
		list = append(list, slices.Repeat(term, times)...)
		if !strings.HasPrefix(text, "+") {
			return list, text
		}
		text = text[1:]
	}
	return nil, "too deep"
}

// fused lists flags that imply fused attention: they request it, or they are newer than Megatron-LM's use
// of TransformerEngine's attention by default.
var fused = []string{"use-flash-attn", "use-mcore-models", "fp8-format", "multi-latent-attention", "mtp-num-layers", "recompute-modules", "expert-tensor-parallel-size", "num-virtual-stages-per-pipeline-rank", "moe-router-enable-expert-bias"}

// megatronSetup sets the training setup and the virtual stages.
func (v *values) megatronSetup(c *Config) {
	s := &c.Setup
	s.Sequence, s.Microbatch = v.wholeOr("seq-length", 0), v.wholeOr("micro-batch-size", 0)
	s.Tensor, s.SequenceParallel = v.wholeOr("tensor-model-parallel-size", 1), v.on("sequence-parallel")
	s.Context, s.Expert = v.wholeOr("context-parallel-size", 1), v.wholeOr("expert-model-parallel-size", 1)
	s.ExpertTensor = v.wholeOr("expert-tensor-parallel-size", 0)
	s.Precision, s.Unfused = FP32, v.on("no-gradient-accumulation-fusion")
	half, wide, narrow := v.on("fp16"), v.on("accumulate-allreduce-grads-in-fp32"), v.on("grad-reduce-in-bf16")
	if v.on("bf16") {
		if s.Precision = BF16; narrow {
			s.Gradients = 2
		}
	}
	if half {
		if s.Precision = FP16; wide {
			s.Gradients = 4
		}
	}
	if v.choice("fp8-format", "", "hybrid", "e4m3") != "" {
		s.Precision = FP8
	}
	if v.on("use-distributed-optimizer") {
		s.Zero = 1
	}
	switch v.choice("optimizer", "adam", "sgd", "lion") {
	case "sgd":
		if s.Optimizer = SGD; v.positive("sgd-momentum", true) {
			s.Optimizer = Momentum
		}
	case "lion":
		s.Optimizer = Momentum
	}
	granularity := v.choice("recompute-granularity", "", "full", "selective")
	if v.on("recompute-activations") {
		granularity = "selective"
	}
	switch granularity {
	case "full":
		s.Recompute = Recompute{All: true}
	case "selective":
		modules := v.value("recompute-modules")
		if modules == "" {
			modules = "core_attn"
		}
		for _, module := range strings.Fields(modules) {
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
	if each := v.wholeOr("num-layers-per-virtual-pipeline-stage", 0); each > 0 && c.Ranks > 0 {
		layers := c.Model.Layers
		for _, flag := range []string{"account-for-embedding-in-pipeline-split", "account-for-loss-in-pipeline-split"} {
			if _, counts := v.raw[flag]; counts {
				layers++
			}
		}
		if c.VirtualStages = layers / c.Ranks / each; c.VirtualStages*c.Ranks*each != layers {
			v.add("num-layers-per-virtual-pipeline-stage is %d: %d layers do not divide into such stages on each of %d ranks: give another with --set num-layers-per-virtual-pipeline-stage=N", each, layers, c.Ranks)
		}
	}
	c.VirtualStages = v.wholeOr("num-virtual-stages-per-pipeline-rank", c.VirtualStages)
	shown := slices.ContainsFunc(fused, v.on)
	switch backend, kernels := v.choice("attention-backend", "", "auto", "flash", "fused", "unfused", "local"), v.choice("transformer-impl", "", "transformer_engine", "local"); {
	case backend != "":
		s.UnfusedAttention = backend == "unfused" || backend == "local"
	case kernels == "local":
		s.UnfusedAttention = !v.on("use-flash-attn")
	case kernels == "" && !shown && s.Context == 1:
		s.UnfusedAttention = true
		v.assumed = append(v.assumed, "attention keeps its scores, as before Megatron-LM used TransformerEngine by default; if it does not, give --set attention-backend=auto")
	}
}
