package runner

import (
	"fmt"
	"hash/fnv"
	"slices"

	"github.com/weir-ml/weir/internal/engine/effects"
	"github.com/weir-ml/weir/internal/engine/frames"
	"github.com/weir-ml/weir/schedule"
	"github.com/weir-ml/weir/transport"
)

// In an audited step (Config.Audit) some replicas run an additional microbatch before all others. It repeats the first
// microbatch of one of the replicas, which is called the author. The step discards the losses that the repetition
// records. The repetition and the author's own computation are each the first to add gradients to the accumulators of
// their rank, so the accumulators then hold exactly the contribution of this microbatch. The next microbatch overwrites
// the gradients of the repetition. Every rank makes digests of its results, and at step end compares the digests of all
// ranks.

// repeat says which microbatch of a batch is computed again, and where.
type repeat struct {
	audits bool // Config.Audit is set, and the step trains
	on     bool // the step repeats a microbatch
	author int  // the replica that has the microbatch
	index  int  // the index of the microbatch in the batch
	first  int  // the first replica that repeats it; all later ones do as well
}

// setRepeat chooses the microbatch that a step repeats, if the step is audited.
func (b *batch) setRepeat(mode schedule.Mode, every int, step int64) {
	r := &b.repeat
	if r.audits = mode == schedule.Training && every > 0; !r.audits || (step+1)%int64(every) != 0 {
		return
	}
	authors := b.replicas
	if longer := b.m % b.replicas; longer > 0 && b.order == nil { // the other replicas have one microbatch less, and would wait
		r.first, authors = longer, longer
	}
	r.author = int(step / int64(every) % int64(authors))
	if b.own(r.author) > 0 { // otherwise there is no plan
		r.index, r.on = b.index(r.author, 0), true
	}
}

// extra returns the number of microbatches that a replica repeats, 0 or 1.
func (r *repeat) extra(replica int) int {
	if r.on && replica >= r.first {
		return 1
	}
	return 0
}

// planError adds to an error about a plan the number of microbatches for which the plan was requested.
func (b *batch) planError(err error) error {
	also := ""
	if b.repeat.on {
		also = ", and one that is repeated (Config.Audit)"
	}
	return fmt.Errorf("runner: a plan for %d microbatches%s: %w", b.m, also, err)
}

// checkAudit checks what an audited step needs.
func (c *Config[T]) checkAudit(f *faults) {
	if c.Audit == 0 {
		return
	}
	if c.Audit < 0 {
		f.add("Audit is %d: give the number of steps of which one is audited, or 0", c.Audit)
	}
	for i, space := range c.Spaces {
		if _, able := space.(transport.Codec[T]); !able {
			f.add("Audit is set, and the space of rank %d has no bytes to sum: give one that implements transport.Codec", c.Topology.First+i)
		}
	}
	if c.Plan.Placement.Copies > 1 || c.Plan.Slices > 1 {
		f.add("Audit is set, and the plan has %d copies of the model and %d slices of a sequence: an audit needs one of each", max(c.Plan.Placement.Copies, 1), max(c.Plan.Slices, 1))
	}
	if p := c.Plan.Fixed; p != nil && c.Plan.Rule != nil {
		if _, err := c.Plan.Rule(schedule.Params{Placement: p.Placement, Microbatches: p.Microbatches + 1}); err != nil {
			f.add("Audit is set, and an audited step has one microbatch more: %w", err)
		}
	}
}

// A rank makes these digests in an audited step: one of the name of its space, which tells how it rounds, two of the
// entry, and seven for each of its stages: one of the weights and six of the results. The entry and each result have a
// digest for the repetition and another one for the author's own computation.
const (
	sumRounding = 0
	sumEntry    = 1
	sumStages   = 3

	sumResults  = 1 // after the weights: the digests of the forward, the gradient of the input, and the gradients of parameters
	results     = 3
	sumsOfStage = sumResults + 2*results
)

// audit holds the digests of a rank in an audited step.
type audit struct {
	at    []int // by stage: the index of its first digest among the digests of its rank
	sizes []int // by rank of the pipeline: the number of its digests
	sums  []uint64
	loss  uint64 // the digest of the losses of the latest forward
}

func newAudit(placement *schedule.Placement) *audit {
	a := &audit{sizes: slices.Repeat([]int{sumStages}, placement.Ranks)}
	for _, rank := range placement.Rank {
		a.at = append(a.at, a.sizes[rank])
		a.sizes[rank] += sumsOfStage
	}
	return a
}

// beginAudit begins to audit the step, if it is due.
func (r *worker[T]) beginAudit() {
	r.calls.Frames.LossDigest = r.lossDigest()
	if !r.running.batch.repeat.on {
		return
	}
	a := r.audit
	a.loss = 0
	clear(a.sums)
	if able, ok := r.calls.Space.(interface{ Name() string }); ok {
		sum := fnv.New64a()
		_, _ = sum.Write([]byte(able.Name())) // Write never fails
		a.sums[sumRounding] = sum.Sum64()
	}
	r.running.audit = a
}

// lossDigest returns the place where the frames digest the losses of a forward, or nil if the step is not audited.
func (r *worker[T]) lossDigest() *uint64 {
	if r.running.batch.repeat.on {
		return &r.audit.loss
	}
	return nil
}

// extra returns the number of microbatches that the rank repeats in this step.
func (r *worker[T]) extra() int { return r.running.batch.repeat.extra(r.replica) }

// computation returns 0 for the repetition, 1 for the author's own computation of the microbatch, and -1 for other
// microbatches.
func (r *worker[T]) computation(batchIndex int) int {
	switch extra := r.extra(); {
	case batchIndex < extra:
		return 0
	case batchIndex == extra && r.replica == r.running.batch.repeat.author:
		return 1
	}
	return -1
}

// addSum adds the bits of a tensor to a digest.
func (r *worker[T]) addSum(digest *uint64, h T) error {
	sum, err := transport.SumOf(r.calls.Space.(transport.Codec[T]), h)
	frames.Digest(digest, uint64(sum))
	return err
}

// auditEntry makes the digest of an entry if the entry belongs to the audited microbatch.
func (r *worker[T]) auditEntry(batchIndex int) error {
	c := r.computation(batchIndex)
	for part := range r.calls.Parts {
		if h, held := r.calls.Frames.EntryPart(batchIndex, part); held && c >= 0 {
			if err := r.addSum(&r.audit.sums[sumEntry+c], h); err != nil {
				return err
			}
		}
	}
	return nil
}

// auditWeights makes a digest of the weights of each stage of the rank. At the end of the step, it instead compares
// them with the digests from the beginning.
func (r *worker[T]) auditWeights(end bool) error {
	for s := range r.calls.Stages {
		st := &r.calls.Stages[s]
		if !st.Own {
			continue
		}
		var sum uint64
		for i := range st.Params {
			if w := st.Params[i].Weight; r.calls.Space.Bytes(w) > 0 {
				if err := r.addSum(&sum, w); err != nil {
					return err
				}
			}
		}
		if begun := &r.audit.sums[r.audit.at[s]]; !end {
			*begun = sum
		} else if *begun != sum {
			return fmt.Errorf("%w: weights of stage %d (%s) have changed during the step: resume from a checkpoint, without this machine if its memory fails again", ErrCorrupt, s, st.Spec.Name)
		}
	}
	return nil
}

// auditCall makes the digests of a call's results if the call is for the audited microbatch. It discards the gradients
// of the repetition.
func (r *worker[T]) auditCall(action schedule.Action, e *effects.Effects) error {
	a, s, m := r.audit, action.Stage(), action.Microbatch()
	loss := a.loss
	a.loss = 0
	c := r.computation(m)
	if c < 0 || action.Kind() == schedule.Quantize {
		return nil
	}
	sums := a.sums[a.at[s]+sumResults+c*results:][:results]
	result := &sums[0]
	if action.Kind() == schedule.F {
		*result = loss
	} else {
		result = &sums[1]
	}
	if e.To != effects.None {
		for h := range r.calls.Frames.Held(e.To, int(e.Stage), m) {
			if err := r.addSum(result, h); err != nil {
				return err
			}
		}
	}
	if !r.contributes(action) {
		return nil
	}
	for i := range r.calls.Stages[s].Params {
		if r.calls.Frames.Written(s, i) {
			if err := r.addSum(&sums[2], r.calls.Frames.Grad(s, i)); err != nil {
				return err
			}
		}
	}
	if c == 0 {
		r.calls.Frames.DiscardGradients(s)
	}
	return nil
}

// contributes reports whether an action adds to the gradients of parameters.
func (r *worker[T]) contributes(action schedule.Action) bool {
	kind := action.Kind()
	return kind == schedule.W || kind == schedule.B || kind == schedule.I && r.calls.Stages[action.Stage()].Split == nil
}

// checkAudited returns an error unless each stage of the rank adds the gradients of microbatches 0 to extra first, in
// this order.
func (r *worker[T]) checkAudited(plan *program, extra int) error {
	next := make([]int, len(r.calls.Stages)) // by stage
	for _, segment := range plan.Programs[r.calls.Rank] {
		for repeat := range min(segment.Repeat, 2) {
			for _, action := range segment.Body {
				if action = action.Shift(repeat * segment.Stride); !r.contributes(action) || next[action.Stage()] > extra {
					continue
				}
				if action.Microbatch() != next[action.Stage()] {
					return fmt.Errorf("%w: %v adds to gradients before microbatch %d does, and Config.Audit needs a backward in ascending order", ErrPlan, action, next[action.Stage()])
				}
				next[action.Stage()]++
			}
		}
	}
	return nil
}

// computed holds the digest of one result of a replica.
type computed struct {
	replica int
	sum     uint64
	again   bool // it is the digest of the repetition
}

// checkAudit compares the digests of all ranks, in the order in which the results depend on each other, because the
// first difference shows where a fault has happened.
func (r *worker[T]) checkAudit(all [][]uint64) error {
	a, p, repeat := r.audit, &r.calls.Placement, &r.running.batch.repeat
	for rank, sums := range all {
		if want := a.sizes[rank%p.Ranks]; len(sums) != want {
			return fmt.Errorf("%w: rank %d sends %d digests of an audit, not %d", transport.ErrRanks, rank, len(sums), want)
		}
	}
	var list []computed
	collect := func(rank, at, stride int) []computed { // stride is 0 for weights, which every replica has
		list = list[:0]
		for replica := range r.cfg.Replicas.count() {
			sums := all[replica*p.Ranks+rank]
			if r.roundsAlike(all, replica) && (stride == 0 || repeat.extra(replica) > 0) {
				list = append(list, computed{replica, sums[at], true})
			}
			if stride > 0 && replica == repeat.author {
				list = append(list, computed{replica, sums[at+stride], false})
			}
		}
		if stride > 0 && len(list) > 1 {
			r.running.result.Audited = repeat.index
		}
		return list
	}
	if r.params.level < 3 { // at level 3 each replica has other weights
		for s, rank := range p.Rank {
			if err := r.compare(collect(rank, a.at[s], 0), s, schedule.None, "a weight"); err != nil {
				return err
			}
		}
	}
	for rank := range p.Ranks {
		if suspect, other, _ := vote(collect(rank, sumEntry, 1)); suspect != other {
			return fmt.Errorf("%w: replicas %d and %d make different entries of microbatch %d: draw by Entry.Index alone, as rand.NewPCG(seed, index) does; if they do so already, suspect the memory of one of the two", ErrIndexed,
				list[suspect].replica, list[other].replica, repeat.index)
		}
	}
	for s, rank := range p.Rank {
		if err := r.compare(collect(rank, a.at[s]+sumResults, results), s, schedule.F, "the result"); err != nil {
			return err
		}
	}
	kinds := [...]schedule.Kind{schedule.B, schedule.B}
	if r.running.plan.Kinds()[schedule.I] {
		kinds = [...]schedule.Kind{schedule.I, schedule.W}
	}
	for s, rank := range slices.Backward(p.Rank) {
		for k, what := range [...]string{"the gradient of the input", "the contribution to the gradients of parameters"} {
			if err := r.compare(collect(rank, a.at[s]+sumResults+1+k, results), s, kinds[k], what); err != nil {
				return err
			}
		}
	}
	return nil
}

// roundsAlike reports whether the ranks of a replica round in the same way as the author's ranks.
func (r *worker[T]) roundsAlike(all [][]uint64, replica int) bool {
	ranks, author := r.calls.Placement.Ranks, r.running.batch.repeat.author
	return slices.EqualFunc(all[replica*ranks:][:ranks], all[author*ranks:][:ranks], func(a, b []uint64) bool { return a[sumRounding] == b[sumRounding] })
}

// compare returns an error that names a rank whose result differs, or nil if all results agree.
func (r *worker[T]) compare(list []computed, s int, kind schedule.Kind, what string) error {
	suspect, other, certain := vote(list)
	if suspect == other {
		return nil
	}
	wrong, right, p, repeat := list[suspect], list[other], &r.calls.Placement, &r.running.batch.repeat
	e := &transport.StepError{Rank: wrong.replica*p.Ranks + p.Rank[s], Ranks: r.cfg.ranksPerReplica(), Microbatch: repeat.index, Name: r.calls.Stages[s].Spec.Name}
	switch than := transport.RankName(right.replica*p.Ranks+p.Rank[s], e.Ranks); {
	case differsFromItself(list, wrong.replica):
		e.Err = fmt.Errorf("%w: %s had other bits when it was computed again there", ErrCorrupt, what)
	case certain:
		e.Err = fmt.Errorf("%w: %s has other bits than on %s and most others", ErrCorrupt, what, than)
	default:
		e.Err = fmt.Errorf("%w: %s has other bits than on %s: one of the two is wrong", ErrCorrupt, what, than)
	}
	switch {
	case kind == schedule.None:
		e.Err = fmt.Errorf("stage %d (%s): %w", s, e.Name, e.Err)
	case wrong.again:
		e.Action = schedule.NewAction(kind, s, 0)
	default:
		e.Action = schedule.NewAction(kind, s, repeat.extra(wrong.replica))
	}
	return e
}

// vote returns the index of a suspect result, and of another result from which it differs; the indices are equal if all
// results agree. The other result is one that the most replicas have; the suspect is one that the fewest have. A replica
// with two different results has no vote. certain reports whether several replicas agree on the other result, and more
// than on any result that differs from it.
func vote(list []computed) (suspect, other int, certain bool) {
	n := len(list)
	votes := make([]int, n) // n for each replica with the same result, and 1 more if the replica has it twice
	for i := range list {
		for k := range list {
			switch {
			case list[i].sum != list[k].sum || differsFromItself(list, list[k].replica):
			case k > 0 && list[k].replica == list[k-1].replica:
				votes[i]++
			default:
				votes[i] += n
			}
		}
		if votes[i] > votes[other] {
			other = i
		}
	}
	suspect, certain = other, votes[other] >= 2*n
	for i := range list {
		if list[i].sum != list[other].sum {
			certain = certain && votes[i]/n < votes[other]/n
			if suspect == other || votes[i] < votes[suspect] {
				suspect = i
			}
		}
	}
	return suspect, other, certain
}

// differsFromItself reports whether a replica has two different results.
func differsFromItself(list []computed, replica int) bool {
	i := slices.IndexFunc(list, func(c computed) bool { return c.replica == replica })
	return i+1 < len(list) && list[i+1].replica == replica && list[i+1].sum != list[i].sum
}
