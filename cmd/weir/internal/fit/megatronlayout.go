package fit

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
)

// MegatronLayout writes a cut in the form of Megatron-LM's --pipeline-model-parallel-layout, where E, t, m
// and L stand for the embedding, a layer, a layer that predicts further tokens, and the loss. The stages
// are in the order of the model. furtherStage is the stage of the further layers; 0 means the last stage.
func MegatronLayout(cut []int, further, furtherStage int) string {
	var stages []string
	for stage, layers := range cut {
		text := ""
		switch {
		case layers == 1:
			text = "t"
		case layers > 1:
			text = fmt.Sprintf("t*%d", layers)
		}
		if stage == furtherStage && stage > 0 || stage == len(cut)-1 && furtherStage == 0 {
			text += strings.Repeat("m", further)
		}
		stages = append(stages, text)
	}
	return "E" + strings.Join(stages, "|") + "L"
}

var (
	layoutGroup = regexp.MustCompile(`\(([^)]+)\)\*(\d+)`)
	layoutTimes = regexp.MustCompile(`(.)\*(\d+)`)
)

// maxLayout is the maximum number of characters of a layout after expanding its repetitions.
const maxLayout = 4 * maxLayers

// megatronLayout reads --pipeline-model-parallel-layout, as parse_str_to_list and validate_layer_layout of
// megatron-core 0.20.0 do (core/transformer/pipeline_parallel_layer_layout.py). It sets the cut, the stage of the
// further layers and the virtual stages.
func (v *values) megatronLayout(c *Config) {
	const flag = "pipeline-model-parallel-layout"
	given := v.value(flag)
	if given == "" {
		return
	}
	text := strings.ReplaceAll(given, ",", "")
	for _, pattern := range []*regexp.Regexp{layoutGroup, layoutTimes} {
		text = pattern.ReplaceAllStringFunc(text, func(match string) string {
			parts := pattern.FindStringSubmatch(match)
			times, err := strconv.Atoi(parts[2])
			if err != nil || times > maxLayout/len(parts[1]) {
				return "?" // no layout has this character
			}
			return strings.Repeat(parts[1], times)
		})
	}
	refuse := func(why string, args ...any) { v.add("%s is %.80s: "+why, append([]any{flag, given}, args...)...) }
	if i := strings.IndexFunc(text, func(r rune) bool { return !strings.ContainsRune("EtmL|", r) }); i >= 0 || len(text) > maxLayout {
		refuse("expected E, t, m, L and |, with x*N and (...)*N, of at most %d stages and layers", maxLayout)
		return
	}
	stages := strings.Split(text, "|")
	flat, further := strings.ReplaceAll(text, "|", ""), strings.Count(text, "m")
	for stage, letters := range stages {
		c.Cut = append(c.Cut, strings.Count(letters, "t"))
		if strings.Contains(letters, "m") {
			c.Setup.FurtherStage = stage
		}
	}
	switch {
	case !strings.HasPrefix(flat, "E") || strings.Count(flat, "E") > 1:
		refuse("expected one E, before all else")
	case strings.Count(flat, "L") > 1:
		refuse("found %d losses; Megatron-LM takes one, and so does fit, which counts the logits of m with m", strings.Count(flat, "L"))
	case !strings.HasSuffix(flat, "L"):
		refuse("expected an L after all else")
	case strings.Contains(flat[strings.IndexByte(flat+"m", 'm'):], "t"):
		refuse("expected all t before the first m")
	case strings.Count(flat, "t") != c.Model.Layers:
		refuse("found %d layers t, and --num-layers is %d", strings.Count(flat, "t"), c.Model.Layers)
	case further != c.Model.MTP:
		refuse("found %d layers m, and --mtp-num-layers is %d", further, c.Model.MTP)
	case strings.Count(stages[c.Setup.FurtherStage], "m") != further:
		refuse("expected all m on one stage, as Megatron-LM does")
	case c.Ranks > 0 && len(stages)%c.Ranks != 0:
		refuse("found %d stages, which do not divide over %d ranks", len(stages), c.Ranks)
	case further > 0 && c.Ranks > 0 && (c.Setup.FurtherStage%c.Ranks == 0 && len(stages) > 1 || c.Setup.FurtherStage < len(stages)-c.Ranks):
		refuse("expected m on the last virtual stage of a rank that is not the first one, as Megatron-LM does")
	}
	if c.Setup.FurtherStage == len(stages)-1 {
		c.Setup.FurtherStage = 0
	} else if further > 0 { // models/gpt/gpt_model.py builds the embedding where mtp_process is set
		v.assumed = append(v.assumed, fmt.Sprintf("stage %d, which has m, has the logits of m, and its copy of the embedding is not counted", c.Setup.FurtherStage))
	}
	if c.Ranks > 0 {
		c.VirtualStages = len(stages) / c.Ranks
	}
}
