package pack_test

import (
	"bufio"
	"cmp"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-ml/weir/schedule"
	"github.com/weir-ml/weir/schedule/lengths"
	"github.com/weir-ml/weir/schedule/lower"
	"github.com/weir-ml/weir/schedule/pack"
	"github.com/weir-ml/weir/schedule/simulate"
)

var (
	verlFlag     = flag.String("verl", "", "a command that starts Python and the path of verl's seqlen_balancing.py, separated by a space")
	constantFlag = flag.Int64("constant", 0, "tokens that take as long as a microbatch takes without any, in the comparison")
	batchesFlag  = flag.Int("batches", 4, "batches of each cell of the comparison")
)

// distribution draws lengths: exp(ln + sigma·normal), clipped.
type distribution struct {
	name      string
	ln, sigma float64
	low, high float64
	budget    int64 // tokens of a microbatch
}

var distributions = []distribution{
	{"rollouts", math.Log(4000), 0.9, 1, 32768, 32768},
	{"conversations", 8.89, 1.05, 1, 126527, 131072}, // the Mooncake trace
	{"chat", 7.25, 0.54, 1, 14089, 16384},            // Azure's conversation trace
	{"pretraining", math.Log(4096) - 1.1*1.1/2, 1.1, 1024, 8192, 16384},
}

func (d *distribution) draw(random *rand.Rand, n int) (list []int64) {
	for range n {
		list = append(list, int64(min(max(math.Exp(d.ln+d.sigma*random.NormFloat64()), d.low), d.high)))
	}
	return list
}

// model returns the costs of equal stages of a transformer 4,096 wide: a forward of l tokens takes
// 49152·l + l² and a backward twice that.
func model(constant int64) *simulate.Costs {
	return &simulate.Costs{Stages: []simulate.StageCosts{{
		F: constant, B: 2 * constant, PerToken: simulate.Rates{F: 49152, B: 2 * 49152}, PerSquare: simulate.Rates{F: 1, B: 2},
	}}}
}

// judge simulates packings from any source, for 1F1B with links of one message.
type judge struct {
	ranks      int
	costs      *simulate.Costs
	evaluators map[int]*simulate.Evaluator
}

// makespan returns the makespan of the slowest replica, and requires that the packs hold each sequence once and no more
// tokens than the budget.
func (j *judge) makespan(t *testing.T, sequences []int64, budget int64, replicas [][][]int) (slowest int64) {
	var all []int
	for _, packs := range replicas {
		e := j.evaluators[len(packs)]
		if e == nil {
			plan, err := schedule.OneFOneB(schedule.Params{Placement: schedule.Looped(j.ranks, j.ranks), Microbatches: len(packs)})
			require.NoError(t, err)
			plan, err = lower.Transfers(plan, 1)
			require.NoError(t, err)
			e, err = simulate.NewEvaluator(plan, j.costs, 1)
			require.NoError(t, err)
			j.evaluators[len(packs)] = e
		}
		for mb, pack := range packs {
			var size lengths.Size
			for _, i := range pack {
				size = size.Add(lengths.Of(sequences[i]))
			}
			require.LessOrEqual(t, size.Tokens, budget)
			require.Positive(t, size.Tokens)
			e.Set(mb, size)
			all = append(all, pack...)
		}
		slowest = max(slowest, e.Makespan())
	}
	slices.Sort(all)
	require.Equal(t, len(sequences), len(all))
	require.Equal(t, len(sequences), len(slices.Compact(all)))
	return slowest
}

// descending deals each sequence, the one with the most work first, to the replica with the least work,
// and packs it there by first fit. The largest microbatches run first.
func descending(sequences, work []int64, budget int64, replicas int) [][][]int {
	order := make([]int, len(work))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(i, j int) int { return cmp.Compare(work[j], work[i]) })
	dealt, room, load := make([][][]int, replicas), make([][]int64, replicas), make([]int64, replicas)
	for _, i := range order {
		r := slices.Index(load, slices.Min(load))
		load[r] += work[i]
		at := slices.IndexFunc(room[r], func(left int64) bool { return left >= sequences[i] })
		if at < 0 {
			at = len(room[r])
			dealt[r], room[r] = append(dealt[r], nil), append(room[r], budget)
		}
		dealt[r][at], room[r][at] = append(dealt[r][at], i), room[r][at]-sequences[i]
	}
	sum := func(pack []int) (s int64) {
		for _, i := range pack {
			s += work[i]
		}
		return s
	}
	for r := range dealt {
		slices.SortStableFunc(dealt[r], func(a, b []int) int { return cmp.Compare(sum(b), sum(a)) })
	}
	return dealt
}

// verlProcess answers batches with verl's code.
type verlProcess struct {
	in  io.Writer
	out *bufio.Reader
}

func startVerl(t *testing.T) *verlProcess {
	python, file, _ := strings.Cut(*verlFlag, " ")
	run := exec.Command(python, "testdata/verl.py", file)
	run.Env = append(run.Environ(), "OMP_NUM_THREADS=1")
	in, err := run.StdinPipe()
	require.NoError(t, err)
	out, err := run.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, run.Start())
	t.Cleanup(func() {
		in.Close()
		run.Wait()
	})
	return &verlProcess{in, bufio.NewReaderSize(out, 1<<20)}
}

func (v *verlProcess) pack(t *testing.T, sequences, work []int64, budget int64, replicas int) (packs [][][]int) {
	line, err := json.Marshal(map[string]any{"lengths": sequences, "work": work, "replicas": replicas, "budget": budget})
	require.NoError(t, err)
	_, err = v.in.Write(append(line, '\n'))
	require.NoError(t, err)
	answer, err := v.out.ReadBytes('\n')
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(answer, &packs))
	return packs
}

// TestAgainstOthers compares packings with those of simple rules and, with -verl, of verl 0.9.1: none has a
// smaller makespan on any batch. -batches 100 is the comparison of docs/dev/measurements.md.
func TestAgainstOthers(t *testing.T) {
	lines := []string{"descending"}
	for _, m := range pack.Methods() {
		lines = append(lines, m.String())
	}
	var verl *verlProcess
	if *verlFlag != "" {
		verl = startVerl(t)
		lines = append(lines, "verl", "verl, true work")
	}
	var total [8]float64
	cells := 0
	for _, d := range distributions {
		for _, ranks := range []int{4, 8} {
			for _, replicas := range []int{1, 4} {
				costs := model(49152 * *constantFlag)
				p := newPacker(t, pack.Config{
					Rule: schedule.OneFOneB, Params: schedule.Params{Placement: schedule.Looped(ranks, ranks)}, Capacity: 1,
					Costs: costs, Replicas: replicas, Limits: pack.Limits{Tokens: d.budget},
				})
				j := &judge{ranks, costs, map[int]*simulate.Evaluator{}}
				var ratios, worst [8]float64
				gap, overWork, widest := 0.0, 0.0, 0.0
				for seed := range *batchesFlag {
					random := rand.New(rand.NewPCG(uint64(seed), uint64(1000*ranks+replicas)))
					sequences := d.draw(random, 128*replicas)
					var work []int64
					sum := int64(0)
					for _, l := range sequences {
						work = append(work, 49152*l+l*l)
						sum += 49152*l + l*l
					}
					packing, err := p.Pack(sequences)
					require.NoError(t, err)
					var own [][][]int
					for _, r := range packing.Replicas {
						own = append(own, r.Packs)
					}
					require.Equal(t, packing.Makespan, j.makespan(t, sequences, d.budget, own))
					require.LessOrEqual(t, packing.Bound, packing.Makespan)
					gap, widest = gap+packing.Gap()/float64(*batchesFlag), max(widest, packing.Gap())
					overWork += float64(packing.Makespan) / (3 * float64(sum) / float64(replicas)) / float64(*batchesFlag)
					for n, line := range lines {
						var other [][][]int
						switch line {
						case "verl":
							other = verl.pack(t, sequences, nil, d.budget, replicas)
						case "verl, true work":
							other = verl.pack(t, sequences, work, d.budget, replicas)
						case "descending":
							other = descending(sequences, work, d.budget, replicas)
						default:
							packing, err := p.Other(pack.Methods()[n-1], sequences)
							require.NoError(t, err)
							for _, r := range packing.Replicas {
								other = append(other, r.Packs)
							}
						}
						ratio := float64(packing.Makespan) / float64(j.makespan(t, sequences, d.budget, other))
						require.LessOrEqual(t, ratio, 1.0, "%s, %d ranks, %d replicas, seed %d: %s is faster", d.name, ranks, replicas, seed, line)
						ratios[n] += ratio / float64(*batchesFlag)
						worst[n] = max(worst[n], ratio)
					}
				}
				text := fmt.Sprintf("%-13s P=%d R=%d  makespan/work %.3f  gap mean %.3f max %.3f ", d.name, ranks, replicas, overWork, gap, widest)
				for n, line := range lines {
					text += fmt.Sprintf("  %s %.3f (worst %.3f)", line, ratios[n], worst[n])
					total[n] += ratios[n]
				}
				t.Log(text)
				cells++
			}
		}
	}
	for n, line := range lines {
		t.Logf("mean ratio to %s: %.4f", line, total[n]/float64(cells))
	}
	if verl != nil {
		require.LessOrEqual(t, total[4]/float64(cells), 0.95)
		require.LessOrEqual(t, total[5]/float64(cells), 0.97)
		require.InDelta(t, total[3], total[4], 0.02*total[4], "Balanced is verl's method")
	}
}

func transfers(t *testing.T, plan *schedule.Plan) *schedule.Plan {
	plan, err := lower.Transfers(plan, 1)
	require.NoError(t, err)
	return plan
}
