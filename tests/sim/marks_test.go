package sim

import (
	"context"
	"errors"
	"math/rand/v2"
	"testing"

	"github.com/weir-ml/weir/schedule"
	"github.com/weir-ml/weir/schedule/runner"
	"github.com/weir-ml/weir/transport"
	"github.com/weir-ml/weir/transport/tcp"
)

// mark is the name of a rare state. A sweep that never reaches it has not tested it.
type mark string

// seedMarks and jobMarks are the marks of TestSeeds and TestJobs.
var seedMarks, jobMarks []mark

// of adds a mark to a list, and returns it.
func of(list *[]mark, name mark) mark {
	*list = append(*list, name)
	return name
}

var (
	abortMeetsAbort    = of(&seedMarks, "an abort meets an abort")
	abortMeetsBegin    = of(&seedMarks, "an abort meets a rank that has not begun")
	abortMeetsExchange = of(&seedMarks, "an abort meets an exchange")
	abortMeetsCopy     = of(&seedMarks, "an abort meets a copy of the rank's tensor")
	abortMeetsRead     = of(&seedMarks, "an abort meets a read of the rank's memory")
	lostInReduction    = of(&seedMarks, "a peer is lost in a reduction")
	lostInGather       = of(&seedMarks, "a peer is lost in a gather")
	failsInReduction   = of(&seedMarks, "a read of a gradient fails")
	failsInGather      = of(&seedMarks, "a read of weights fails")
	bothFull           = of(&seedMarks, "both directions of a link are full")
	faultAfterFailure  = of(&seedMarks, "a fault after the step has failed")
	threeFaults        = of(&seedMarks, "three faults in a step")
	fiveFaults         = of(&seedMarks, "five faults in a step")
	firstEvent         = of(&seedMarks, "a fault at the first event of a step")
	cancelWhenDone     = of(&seedMarks, "a context ends in a step that is done")
	cancelInPrepare    = of(&seedMarks, "a context of a step ends during Prepare")
	prepareCancelled   = of(&seedMarks, "a context of Prepare ends beside a step")
	exitsInHook        = of(&seedMarks, "a goroutine ends in a hook")
	failsAtPeak        = of(&seedMarks, "a hook fails after the exchange of its rank")
	failsInOutputs     = of(&seedMarks, "a fault while outputs are handed over")
	twoHang            = of(&seedMarks, "two ranks hang")
	stallEnds          = of(&seedMarks, "a stall ends a step")
	someCount          = of(&seedMarks, "a step counts on some ranks, and fails on others after the exchange")
	failsAgain         = of(&seedMarks, "three steps in a row fail")
	evaluationFails    = of(&seedMarks, "an evaluation fails after it has handed over outputs")
	reloadMeetsOffload = of(&seedMarks, "a reload is asked for while a copy to far memory runs")
	offloadMeetsReload = of(&seedMarks, "an offload is asked for while a copy back runs")
	reloadWaits        = of(&seedMarks, "a stage waits for its reload")
	farFails           = of(&seedMarks, "far memory fails in a step with another fault")
	sumDiffers         = of(&seedMarks, "a bit changes in flight")
	audits             = of(&seedMarks, "an audit of all replicas")
	auditsIdle         = of(&seedMarks, "an audit of the replicas that would wait")
	auditFinds         = of(&seedMarks, "an audit finds a bit that has changed")

	dieWhileJoining   = of(&jobMarks, "a rank is lost while others join")
	joinMeetsLeave    = of(&jobMarks, "a join meets a leave")
	resetWhileJoining = of(&jobMarks, "a connection is reset while ranks join")
	twoLost           = of(&jobMarks, "two ranks are lost")
	lostInAbort       = of(&jobMarks, "a rank is lost in an abort")
	lostInExchange    = of(&jobMarks, "a peer is lost in an exchange")
	lostInRead        = of(&jobMarks, "a peer is lost in a reduction or a gather")
	lostInTransfer    = of(&jobMarks, "a peer is lost in a transfer")
	jobAborts         = of(&jobMarks, "an abort meets an abort")
	withdraws         = of(&jobMarks, "a context ends while its rank begins")
	doneAnyway        = of(&jobMarks, "a context ends in an exchange that succeeds")
	bothWindowsFull   = of(&jobMarks, "both directions of a connection are full")
	resetInWrite      = of(&jobMarks, "a connection is reset in the middle of a write")
	dialsDead         = of(&jobMarks, "a rank connects to one that has died")
	dialsCut          = of(&jobMarks, "a rank connects to one that is cut off")
	healsBefore       = of(&jobMarks, "a network heals before the silence limit")
	healsAfter        = of(&jobMarks, "a network heals after the silence limit")
	silentLink        = of(&jobMarks, "a link between ranks that both reach rank 0 is silent")
)

// marks counts how often a sweep has reached each mark.
type marks map[mark]int64

// add counts a mark if it is reached.
func (m *marks) add(name mark, reached bool) {
	if !reached {
		return
	}
	if *m == nil {
		*m = marks{}
	}
	(*m)[name]++
}

// enough is the number of runs after which a sweep must have reached every mark.
const enough = 20_000

// report prints how often each mark was reached. After enough runs each must have been.
func (m marks) report(t *testing.T, names []mark, runs int64) {
	t.Helper()
	for _, name := range names {
		t.Logf("%8d  %s", m[name], name)
		if runs >= enough && m[name] == 0 {
			t.Errorf("%d runs have never reached a mark: %s", runs, name)
		}
	}
}

// watched holds the state of a rank's step on which marks depend.
type watched struct {
	begun, exchanging, aborting bool
	copied, read                int // copies of its tensors, and reads of its memory, in progress
}

// link is a direction of a link between two ranks.
type link struct {
	from, to int
	backward bool
}

func (w *world) mark(name mark, reached bool) { w.tally.Marks.add(name, reached) }

// markAbort is called when a rank aborts the step.
func (w *world) markAbort(rank int) {
	for other := range w.watched {
		if o := &w.watched[other]; other != rank {
			w.mark(abortMeetsAbort, o.aborting && !w.aborted[other])
			w.mark(abortMeetsBegin, !o.begun)
			w.mark(abortMeetsExchange, o.exchanging)
		}
	}
	w.mark(abortMeetsCopy, w.watched[rank].copied > 0)
	w.mark(abortMeetsRead, w.watched[rank].read > 0)
}

// markFault is called when a fault happens, before it has an effect.
func (w *world) markFault(at place, what kind) {
	w.mark(faultAfterFailure, w.failed)
	w.mark(threeFaults, len(w.fired) == 3)
	w.mark(fiveFaults, len(w.fired) == 5)
	w.mark(firstEvent, w.events == 1)
	w.mark(cancelWhenDone, what == cancels && w.closed)
	w.mark(cancelInPrepare, what == cancels && w.preparing)
	w.mark(exitsInHook, what == exits && at == atHook)
	w.mark(failsAtPeak, at == atPeak && what < cancels)
	w.mark(failsInOutputs, at == atOutputs)
	w.mark(twoHang, what == hangs && w.hanging > 0)
}

// markAction is called before every action.
func (w *world) markAction(rank int, action schedule.Action) {
	if side := w.sides[rank]; side != nil {
		w.mark(reloadMeetsOffload, action.Kind() == schedule.Reload && side.writing.Load())
		w.mark(offloadMeetsReload, action.Kind() == schedule.Offload && side.reading.Load())
	}
}

// markRead is called with the result of a read of a rank's memory.
func (w *world) markRead(rank int, content transport.Content, err error, reduces, gathers mark) {
	own := w.watched[rank].aborting
	w.mark(reduces, err != nil && !own && content != transport.Weights)
	w.mark(gathers, err != nil && !own && content == transport.Weights)
}

// markEnd is called with the results of a step.
func (w *world) markEnd(endings []ending, well int) {
	for i := range endings {
		w.mark(stallEnds, errors.As(endings[i].err, new(*transport.StallError)))
		w.mark(sumDiffers, errors.Is(endings[i].err, transport.ErrSum))
		w.mark(auditFinds, errors.Is(endings[i].err, runner.ErrCorrupt))
		if r := endings[i].result; r != nil {
			w.mark(audits, r.Audited >= 0 && w.audit.first == 0)
			w.mark(auditsIdle, w.audit.first > 0)
			for _, of := range r.Ranks {
				w.mark(reloadWaits, of.FarWaits > 0)
			}
		}
	}
	w.mark(someCount, well > 0 && well < len(endings))
	w.mark(evaluationFails, well < len(endings) && len(w.outputs) > 0)
	if w.failures++; well == len(endings) {
		w.failures = 0
	}
	w.mark(failsAgain, w.failures == 3)
}

func (s *station) Begin(ctx context.Context, hello []byte) error {
	err := s.Endpoint.Begin(ctx, hello)
	s.w.watched[s.rank].begun = err == nil
	return err
}

func (s *station) Send(ctx context.Context, to int, tag transport.Tag, h []T) error {
	w, own, back := s.w, link{s.rank, to, tag.Backward()}, link{to, s.rank, !tag.Backward()}
	w.flight[own]++
	w.mark(bothFull, s.Capacity() > 0 && w.flight[own] > s.Capacity() && w.flight[back] >= s.Capacity())
	return s.Endpoint.Send(ctx, to, tag, h)
}

func (s *station) Recv(ctx context.Context, from int, tag transport.Tag, h []T) error {
	err := s.Endpoint.Recv(ctx, from, tag, h)
	s.w.flight[link{from, s.rank, tag.Backward()}]--
	return err
}

// prepare prepares a step with another number of microbatches at a random event of the current step. It may
// end the context of this call or of the step.
func (w *world) prepare(r *rand.Rand) {
	at := 1 + r.IntN(max(w.before, 1))
	w.clerk.Wait(func() bool { return w.events >= at || w.over.Load() })
	ctx, cancel := context.WithCancelCause(context.Background())
	defer cancel(nil)
	w.inRule = func() {
		for range r.IntN(8) {
			w.clerk.pause()
		}
		switch n := r.IntN(4); {
		case w.over.Load():
		case n == 0 && w.step < w.Steps:
			_ = w.fail(atHook, &Fault{Kind: cancels})
		case n < 3:
			w.mark(prepareCancelled, true)
			cancel(errCancelled)
		}
	}
	w.preparing = true
	_, err := w.runners[r.IntN(len(w.runners))].Prepare(ctx, 2*w.m, nil)
	w.preparing = false
	refused := w.Schedule == "" && 2*w.m%w.count() > 0 // random plans of different sizes may reduce in different orders
	if err != nil && !refused && !errors.Is(err, errCancelled) {
		w.violated("Prepare of %d microbatches: %w", 2*w.m, err)
	}
}

// post is a rank's end of the links of a job.
type post struct {
	*tcp.Endpoint[T]
	j    *job
	rank int
}

// mark counts a mark of a job.
func (j *job) mark(name mark, reached bool) {
	j.net.mu.Lock()
	defer j.net.mu.Unlock()
	j.marks.add(name, reached)
}

func (p *post) Begin(ctx context.Context, hello []byte) error {
	err := p.Endpoint.Begin(ctx, hello)
	p.j.mark(withdraws, errors.Is(err, errCancelled))
	return err
}

func (p *post) Exchange(ctx context.Context, mine []byte) ([][]byte, error) {
	all, err := p.Endpoint.Exchange(ctx, mine)
	p.j.mark(lostInExchange, errors.As(err, new(*tcp.LostError)))
	p.j.mark(doneAnyway, err == nil && ctx.Err() != nil)
	return all, err
}

func (p *post) Abort(cause error) {
	p.j.net.mu.Lock()
	p.j.marks.add(jobAborts, p.j.aborting > 0)
	p.j.aborting++
	p.j.net.mu.Unlock()
	p.Endpoint.Abort(cause)
	p.j.net.mu.Lock()
	p.j.aborting--
	p.j.net.mu.Unlock()
}

func (p *post) Send(ctx context.Context, to int, tag transport.Tag, h []T) error {
	return p.transferred(p.Endpoint.Send(ctx, to, tag, h))
}

func (p *post) Recv(ctx context.Context, from int, tag transport.Tag, h []T) error {
	return p.transferred(p.Endpoint.Recv(ctx, from, tag, h))
}

func (p *post) Get(ctx context.Context, from int, tag transport.Tag, offset int64, dst []byte) error {
	err := p.Endpoint.Get(ctx, from, tag, offset, dst)
	p.j.mark(lostInRead, errors.As(err, new(*tcp.LostError)))
	return err
}

func (p *post) transferred(err error) error {
	p.j.mark(lostInTransfer, errors.As(err, new(*tcp.LostError)))
	p.j.mark(silentLink, errors.Is(err, tcp.ErrSilent))
	return err
}

// markFault is called when a fault of a job happens, under the lock of the network.
func (j *job) markFault(f *JobFault) {
	lost := 0
	for _, is := range j.lost {
		if is {
			lost++
		}
	}
	losing := f.Kind < severs
	j.marks.add(dieWhileJoining, losing && j.joined < j.Job.Ranks)
	j.marks.add(joinMeetsLeave, losing && j.joined > 0 && j.joined < j.Job.Ranks)
	j.marks.add(resetWhileJoining, f.Kind == severs && j.joined < j.Job.Ranks)
	j.marks.add(twoLost, losing && lost == 2)
	j.marks.add(lostInAbort, losing && j.aborting > 0)
}
