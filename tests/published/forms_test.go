package published_test

// form is a schedule with its published properties, for P ranks and V stages on each. F, I and W
// take 1 on a rank, and a hop takes no time.
type form struct {
	name     string
	perRank  int
	lost     string // the part of the makespan in which the busiest rank does not work
	lostOf   func(p, v float64) float64
	peak     string // microbatches in flight on the fullest rank, if W frees all
	peakOf   func(p, v, m float64) float64
	spanLost string // the same part of the span, if it differs
	spanOf   func(p, v float64) float64
	source   string
	rule     string // in words
	notes    string
	params   func(ranks int) (group, cap, slices int)
}

// forms lists the schedules in the order of schedule.Schedules.
var forms = []form{
	{
		name: "gpipe", perRank: 1, source: "GPipe",
		lost: "(P-1)(F+B)", lostOf: func(p, v float64) float64 { return (p - 1) * 3 },
		peak: "M", peakOf: func(p, v, m float64) float64 { return m },
		rule: "Every rank runs all forwards, then all backwards, both in ascending order.",
	},
	{
		name: "1f1b", perRank: 1, source: "PipeDream-Flush, Megatron-LM, DeepSpeed, PyTorch",
		lost: "(P-1)(F+B)", lostOf: func(p, v float64) float64 { return (p - 1) * 3 },
		peak: "P", peakOf: func(p, v, m float64) float64 { return p },
		rule: "Rank r runs P-1-r forwards, then alternates forwards and backwards, then runs the remaining backwards.",
	},
	{
		name: "interleaved", perRank: 2, source: "Megatron-LM",
		lost: "(P-1)(F+B)/V", lostOf: func(p, v float64) float64 { return (p - 1) * 3 / v },
		peak: "((V-1)N + 2(P-1) + 1)/V with N = P", peakOf: func(p, v, m float64) float64 { return ((v-1)*p + 2*(p-1) + 1) / v },
		rule: "1F1B with V stages per rank. Groups of N microbatches go through a rank's first stage, then its second, and so on; rank r begins with 2(P-1-r) + (V-1)N forwards.",
	},
	{
		name: "breadth-first", perRank: 2, source: "Breadth-First Pipeline Parallelism; in PyTorch's LoopedBFS, backwards take microbatches in descending order (`--descending`)",
		lost: "(P-1)(F+B)/V", lostOf: func(p, v float64) float64 { return (p - 1) * 3 / v },
		peak: "M", peakOf: func(p, v, m float64) float64 { return m },
		rule: "Every rank runs all forwards stage by stage, then all backwards stage by stage, so sharded weights are gathered once for each stage in each direction.",
	},
	{
		name: "depth-first", perRank: 1, source: "list scheduling with a depth-first tie-break",
		lost: "(P-1)(F+B), as 1F1B", lostOf: func(p, v float64) float64 { return (p - 1) * 3 },
		peak: "P", peakOf: func(p, v, m float64) float64 { return p },
		rule: "A rank runs a ready backward first, else the forward of the highest ready stage, lowest microbatch first, with a cap on the microbatches in flight. With one stage per rank and a cap of P-r on rank r, this is 1F1B.",
	},
	{
		name: "zb-h1", perRank: 1, source: "Zero Bubble Pipeline Parallelism; PyTorch's InterleavedZeroBubble with V = 1",
		lost: "(P-1)(F+I-W)", lostOf: func(p, v float64) float64 { return p - 1 },
		peak: "P", peakOf: func(p, v, m float64) float64 { return p },
		rule: "1F1B with split backwards. Rank r postpones its first r weight gradients and catches up at the end.",
	},
	{
		name: "zb-h2", perRank: 1, source: "Zero Bubble Pipeline Parallelism",
		lost: "(P-1)F", lostOf: func(p, v float64) float64 { return p - 1 },
		spanLost: "(P-1)(F+I-2W)", spanOf: func(p, v float64) float64 { return 0 },
		peak: "2P-1", peakOf: func(p, v, m float64) float64 { return 2*p - 1 },
		rule: "Like zb-h1, with more forwards first, so that no rank waits between its first action and its last; `--cap` limits microbatches in flight.",
	},
	{
		name: "zb1p", perRank: 2, source: "PyTorch's InterleavedZeroBubble",
		lost: "(P-1)(F+I-W)/V", lostOf: func(p, v float64) float64 { return (p - 1) / v },
		peak: "P", peakOf: func(p, v, m float64) float64 { return p },
		rule: "Interleaved with split backwards. Rank r begins with P-1-r + (V-1)N forwards; a weight gradient follows each I except the first r.",
	},
	{
		name: "zb-v", perRank: 2, source: "Zero Bubble Pipeline Parallelism, Pipeline Parallelism with Controllable Memory; PyTorch's ZBVZeroBubble",
		lost: "(P-1)F/2", lostOf: func(p, v float64) float64 { return (p - 1) / 2 },
		spanLost: "0", spanOf: func(p, v float64) float64 { return 0 },
		peak: "P", peakOf: func(p, v, m float64) float64 { return p },
		rule: "Two stages per rank, placed down the ranks and back (a V), so the last stage is on the first rank. Designed for F = I = W.",
	},
	{
		name: "v-half", perRank: 2, source: "Pipeline Parallelism with Controllable Memory; the times were computed with the schedule generator that the paper's authors published",
		lost: "2.5, 8.5 and 20.5 at P = 4, 8 and 16, for F = I = W = 1", lostOf: func(p, v float64) float64 { return 1.5*p - 3.5 },
		peak: "(P+2)/2, rounded down", peakOf: func(p, v, m float64) float64 { return float64((int(p) + 2) / 2) },
		rule: "Stages are placed as in zb-v. A block of four actions, F and I of both stages, repeats every six slots of time, and each W runs in the next free slot. For many ranks, the peak is half of that of 1F1B.",
	},
	{
		name: "v-min", perRank: 2, source: "Pipeline Parallelism with Controllable Memory; the times were computed with the schedule generator that the paper's authors published",
		lost: "5.5, 13.5 and 29.5 at P = 4, 8 and 16, for F = I = W = 1", lostOf: func(p, v float64) float64 { return 2*p - 2.5 },
		peak: "(P+4)/3, rounded down", peakOf: func(p, v, m float64) float64 { return float64((int(p) + 4) / 3) },
		rule:  "Like v-half, with the tightest possible block. For many ranks, the peak is a third of that of 1F1B.",
		notes: "It loses more time if F, I and W differ: simulate it with your own costs.",
	},
	{
		name: "grouped-interleave", perRank: 2, source: "PipeOffload; the time was computed with the schedule generator that the paper's authors published",
		lost: "7 at P = 8, for F = I = W = 1", lostOf: func(p, v float64) float64 { return p - 1 },
		peak: "P with groups of P", peakOf: func(p, v, m float64) float64 { return p },
		rule: "Groups of N microbatches go through a rank's stages, with W right after I; a smaller N (`--group`) takes less memory and more time.",
	},
	{
		name: "dualpipe", perRank: 1, source: "DeepSeek",
		lost: "(P/2-1)(F&B + B - 3W)", lostOf: func(p, v float64) float64 { return (p/2 - 1) * 2 },
		peak: "P+1", peakOf: func(p, v, m float64) float64 { return p + 1 },
		rule:  "Two copies of the model, run through the ranks in opposite directions; a forward of one overlaps with a backward of the other.",
		notes: "The copies take a batch's microbatches in turn, so each gradient is the sum of two sums, and its last bits differ from those under other plans.",
	},
	{
		name: "dualpipev", perRank: 2, source: "DeepSeek, PyTorch's DualPipeV",
		lost: "(P-1)(F&B + B - 3W)/2", lostOf: func(p, v float64) float64 { return p - 1 },
		peak: "P + 1/2", peakOf: func(p, v, m float64) float64 { return p + 0.5 },
		rule: "DualPipe cut in half: one copy, placed as a V.",
	},
	{
		name: "seq1f1b", perRank: 1, source: "Seq1F1B",
		lost: "(P-1)(F+B)/k, where F and B are the times of a whole sequence", lostOf: func(p, v float64) float64 { return (p - 1) * 3 },
		peak: "(P-1+k)/k sequences", peakOf: func(p, v, m float64) float64 { return p + 1 },
		rule:   "1F1B over slices of sequences: forwards of the k slices ascend, backwards descend. Each slice is a microbatch of the plan; the table uses k = 2 and counts slices.",
		notes:  "Because backwards descend, the last bits of gradients differ from those under other plans.",
		params: func(int) (group, cap, slices int) { return 0, 0, 2 },
	},
}
