package runner

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/weir-ml/weir/loss"
	"github.com/weir-ml/weir/memory"
)

// report is what a rank tells the others at step end.
type report struct {
	numbers [reportNumbers]int64
	squares []float64 // of the gradients that the rank owns, in the order of their owners
	record  []byte    // of its losses
}

// The numbers of a report. Start and end are by the rank's clock, in Unix time; 0 where
// it has no computations.
const (
	repStep = iota
	repMicrobatches
	repMode
	repPeak
	repLive
	repReserved
	repExcess
	repGrowth
	repBooks
	repActions
	repStart
	repEnd
	repWait
	repPlanned // 1 where memory was planned
	repHeight
	repPeakPlanned
	repPeakClasses // and those of the other classes behind it
	reportNumbers  = repPeakClasses + memory.NumClasses
)

// exchange merges the losses of all ranks into the record, in the order of the ranks,
// and returns what each has measured.
func (r *worker[T]) exchange(ctx context.Context, record *loss.Record) ([]RankResult, error) {
	if r.cfg.Replicas.Merge != nil {
		if err := r.cfg.Replicas.Merge(ctx, r.rank, record); err != nil {
			return nil, err
		}
	}
	if r.transport == nil {
		return []RankResult{r.account()}, nil
	}
	all, err := r.tell(ctx, record)
	if err != nil {
		return nil, err
	}
	if len(all) != r.placement.Ranks {
		return nil, fmt.Errorf("%w: %d ranks answered of %d", ErrRanks, len(all), r.placement.Ranks)
	}
	ranks := make([]RankResult, len(all))
	for rank, data := range all {
		if err := r.hear(rank, data, record); err != nil {
			return nil, err
		}
		ranks[rank] = r.report.rank()
	}
	return ranks, nil
}

// account writes down what the books and the clock say of this rank.
func (r *worker[T]) account() RankResult {
	own := RankResult{
		Live: r.context.Live(), Excess: r.context.Excess(), Growth: r.result.Growth.Bytes,
		Books: r.result.Books, Actions: r.result.Actions,
	}
	if book, ok := r.space.(memory.Book); ok {
		var stats memory.Stats
		book.Stats(&stats)
		r.result.rise(stats.Peak, &stats.PeakClasses)
		own.Live, own.Reserved = stats.Live, stats.Reserved
	}
	own.Peak, own.PeakClasses = r.result.Peak, r.result.PeakClasses
	if l := &r.levels; l.rank != nil {
		own.Planned, own.Height, own.PeakPlanned = true, l.rank.Layout.Height, r.context.Baseline()+l.top
	}
	if c := &r.clock; !c.first.IsZero() {
		own.Start = time.Duration(c.first.UnixNano())
		own.End = own.Start + c.last.Sub(c.first)
		own.Wait = c.waited - c.waitedBefore
	}
	return own
}

// tell sends this rank's report and returns the bytes of all.
func (r *worker[T]) tell(ctx context.Context, record *loss.Record) ([][]byte, error) {
	own, mine := r.account(), &r.report
	mine.numbers = [reportNumbers]int64{
		repStep: r.step, repMicrobatches: int64(r.plan.Microbatches), repMode: int64(r.plan.Mode),
		repPeak: own.Peak, repLive: own.Live, repReserved: own.Reserved, repExcess: own.Excess, repGrowth: own.Growth,
		repBooks: int64(own.Books), repActions: int64(own.Actions),
		repStart: int64(own.Start), repEnd: int64(own.End), repWait: int64(own.Wait),
		repHeight: own.Height, repPeakPlanned: own.PeakPlanned,
	}
	if own.Planned {
		mine.numbers[repPlanned] = 1
	}
	copy(mine.numbers[repPeakClasses:], own.PeakClasses[:])
	mine.squares = mine.squares[:0]
	for i, owner := range r.owners {
		if r.rankOf(owner) == r.rank {
			mine.squares = append(mine.squares, r.squares[i])
		}
	}
	var err error
	if mine.record, err = record.AppendBinary(mine.record[:0]); err != nil {
		return nil, err
	}
	r.bytes = mine.append(r.bytes[:0])
	return r.transport.Exchange(ctx, r.bytes)
}

// rank returns what a rank has measured.
func (p *report) rank() RankResult {
	n := &p.numbers
	return RankResult{
		Peak: n[repPeak], Live: n[repLive], Reserved: n[repReserved], Excess: n[repExcess], Growth: n[repGrowth],
		Books: int(n[repBooks]), Actions: int(n[repActions]),
		Start: time.Duration(n[repStart]), End: time.Duration(n[repEnd]), Wait: time.Duration(n[repWait]),
		Planned: n[repPlanned] != 0, Height: n[repHeight], PeakPlanned: n[repPeakPlanned],
		PeakClasses: memory.ByClass(n[repPeakClasses:]),
	}
}

// hear takes what a rank tells: the first one's losses replace those in the record,
// all others are merged into them.
func (r *worker[T]) hear(rank int, data []byte, record *loss.Record) error {
	said := &r.report
	if err := said.decode(data); err != nil {
		return fmt.Errorf("%w: rank %d: %w", ErrRanks, rank, err)
	}
	if n := &said.numbers; n[repStep] != r.step || n[repMicrobatches] != int64(r.plan.Microbatches) || n[repMode] != int64(r.plan.Mode) {
		return fmt.Errorf("%w: rank %d ran step %d of %d microbatches (mode %d), this one step %d of %d (mode %d)", ErrRanks, rank,
			n[repStep], n[repMicrobatches], n[repMode], r.step, r.plan.Microbatches, r.plan.Mode)
	}
	squares := said.squares
	for i, owner := range r.owners {
		if r.rankOf(owner) != rank {
			continue
		}
		if len(squares) == 0 {
			return fmt.Errorf("%w: rank %d has fewer parameters than its stages declare here", ErrRanks, rank)
		}
		r.squares[i], squares = squares[0], squares[1:]
	}
	if len(squares) > 0 {
		return fmt.Errorf("%w: rank %d has %d more parameters than its stages declare here", ErrRanks, rank, len(squares))
	}
	if rank == 0 {
		return record.UnmarshalBinary(said.record)
	}
	if err := r.other.UnmarshalBinary(said.record); err != nil {
		return err
	}
	return record.Merge(&r.other)
}

// The layout of a report, version 3, little-endian throughout: "WRR" and the version,
// how many squares as uint32, the numbers, the squares, the record.
const (
	reportVersion = 3
	reportHeader  = 8 + 8*reportNumbers
)

func (p *report) append(b []byte) []byte {
	b = append(b, 'W', 'R', 'R', reportVersion)
	b = binary.LittleEndian.AppendUint32(b, uint32(len(p.squares)))
	for _, n := range p.numbers {
		b = binary.LittleEndian.AppendUint64(b, uint64(n))
	}
	for _, s := range p.squares {
		b = binary.LittleEndian.AppendUint64(b, math.Float64bits(s))
	}
	return append(b, p.record...)
}

// errReport says what bytes are not.
var errReport = errors.New("not a report of this version")

// decode replaces p by the report that b holds, reusing p's memory.
func (p *report) decode(b []byte) error {
	if len(b) < reportHeader || string(b[:3]) != "WRR" || b[3] != reportVersion {
		return fmt.Errorf("%w: %d bytes", errReport, len(b))
	}
	squares := int64(binary.LittleEndian.Uint32(b[4:]))
	if int64(len(b)-reportHeader) < 8*squares {
		return fmt.Errorf("%w: %d bytes for %d squares", errReport, len(b), squares)
	}
	b = b[8:]
	for i := range p.numbers {
		p.numbers[i] = int64(binary.LittleEndian.Uint64(b[8*i:]))
	}
	b = b[8*reportNumbers:]
	p.squares = p.squares[:0]
	for ; squares > 0; squares-- {
		p.squares = append(p.squares, math.Float64frombits(binary.LittleEndian.Uint64(b)))
		b = b[8:]
	}
	p.record = append(p.record[:0], b...)
	return nil
}
