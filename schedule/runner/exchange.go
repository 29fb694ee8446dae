package runner

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/weir-ml/weir/loss"
	"github.com/weir-ml/weir/schedule"
	"github.com/weir-ml/weir/transport"
)

// report is a rank's message to the others at step end.
type report struct {
	reportHeader
	// squares describes each gradient whose owner is on the rank, in the order of the owners: its
	// sum of squares. With several replicas it is the number of parts of the gradient that the
	// replica owns, and then the sum of squares of each part.
	squares []float64
	parts   []uint64 // digests of the source's parts; empty if the source is not checked
	record  []byte   // of the rank's losses
}

// reportHeader is the beginning of a report, little-endian. The squares, the digests of the parts
// and the record follow it.
type reportHeader struct {
	Magic                    [4]byte // its last byte is the version
	Squares, Parts           uint32  // the lengths of the slices
	Step, Microbatches, Mode int64
	// Rank is the rank's measurements. Start and End are Unix times of its clock, or 0 if it has no
	// computations.
	Rank RankResult
}

var reportMagic = [4]byte{'W', 'R', 'R', 8}

// exchange merges the losses of all ranks into record, in the order of the ranks, and returns the
// measurements of each rank.
func (r *worker[T]) exchange(ctx context.Context, record *loss.Record) ([]RankResult, error) {
	if r.transport == nil {
		return []RankResult{r.account()}, nil
	}
	all, err := r.sendReport(ctx, record)
	if err != nil {
		return nil, err
	}
	if total := r.cfg.total(); len(all) != total {
		return nil, fmt.Errorf("%w: %d ranks answered of %d", transport.ErrRanks, len(all), total)
	}
	if r.cfg.ranksPerReplica() > 0 {
		clear(r.squares)
	}
	ranks := make([]RankResult, len(all))
	for rank, data := range all {
		if err := r.mergeReport(rank, data, record); err != nil {
			return nil, err
		}
		ranks[rank] = r.report.Rank
	}
	return ranks, nil
}

// account returns the measurements of this rank from its books and clock.
func (r *worker[T]) account() RankResult {
	own := RankResult{
		Live: r.Frames.Live(), Excess: r.Frames.Excess(), Growth: r.result.Growth.Bytes,
		Books: int64(r.result.Books), Actions: int64(r.result.Actions),
	}
	if own.Books > 1 {
		stats := r.Frames.Stats()
		r.result.raisePeak(stats.Peak, &stats.PeakClasses)
		own.Live, own.Reserved = stats.Live, stats.Reserved
	}
	own.Peak, own.PeakClasses = r.result.Peak, r.result.PeakClasses
	l := &r.levels
	if l.rank != nil {
		own.Planned, own.Height, own.PeakPlanned = true, l.rank.Layout.Height, r.Frames.Baseline()+l.top
	}
	if l.far != nil {
		own.FarPeak, own.FarHeight, own.FarWaits = r.result.FarPeak, l.far.Height, r.Frames.FarWaits()
	}
	if d := r.shards; d != nil {
		own.Reduce, own.Gather, own.ReplicaWait = d.reduces.busy, d.gathers.busy, d.reduces.waited+d.gathers.waited
	}
	if c := &r.clock; !c.first.IsZero() {
		own.Start = time.Duration(c.first.UnixNano())
		own.End = own.Start + c.last.Sub(c.first)
		own.Wait = c.waited - c.waitedBefore
	}
	return own
}

// sendReport sends this rank's report and returns the encoded reports of all ranks.
func (r *worker[T]) sendReport(ctx context.Context, record *loss.Record) ([][]byte, error) {
	mine := &r.report
	mine.reportHeader = reportHeader{Step: r.step, Microbatches: int64(r.m), Mode: int64(r.plan.Mode), Rank: r.account()}
	mine.squares = mine.squares[:0]
	if r.shards != nil && r.plan.Mode == schedule.Training {
		mine.squares = append(mine.squares, r.sums...)
	}
	for i, owner := range r.owners {
		if r.rankOf(owner) == r.Rank && r.cfg.ranksPerReplica() == 0 {
			mine.squares = append(mine.squares, r.squares[i])
		}
	}
	mine.parts = append(mine.parts[:0], r.sourceCheck.made...)
	var err error
	if mine.record, err = record.AppendBinary(mine.record[:0]); err != nil {
		return nil, err
	}
	r.encoded = mine.append(r.encoded[:0])
	return r.transport.Exchange(ctx, r.encoded)
}

// mergeReport decodes the report of a rank into r.report, checks it, stores its squares, and merges
// its losses into record. The losses of rank 0, which comes first, replace the contents of record.
func (r *worker[T]) mergeReport(rank int, data []byte, record *loss.Record) error {
	theirs := &r.report
	if err := theirs.decode(data); err != nil {
		return fmt.Errorf("%w: rank %d: %w", transport.ErrRanks, rank, err)
	}
	if theirs.Step != r.step || theirs.Microbatches != int64(r.m) || theirs.Mode != int64(r.plan.Mode) {
		return fmt.Errorf("%w: rank %d ran step %d of %d microbatches (mode %d), this one step %d of %d (mode %d)", transport.ErrRanks, rank,
			theirs.Step, theirs.Microbatches, theirs.Mode, r.step, r.m, r.plan.Mode)
	}
	squares := theirs.squares
	for i, owner := range r.owners {
		several := r.cfg.ranksPerReplica() > 0
		if r.rankOf(owner) != rank%r.Placement.Ranks || several && r.plan.Mode != schedule.Training {
			continue
		}
		if len(squares) == 0 {
			return fmt.Errorf("%w: rank %d has fewer parameters than its stages declare here", transport.ErrRanks, rank)
		}
		if !several {
			r.squares[i], squares = squares[0], squares[1:]
			continue
		}
		if n := squares[0]; !(n >= 0 && n < float64(len(squares))) {
			return fmt.Errorf("%w: rank %d sends %v parts of a parameter", transport.ErrRanks, rank, n)
		}
		parts := squares[1:][:int(squares[0])]
		for _, sum := range parts { // reports come in the order of the replicas, which is the order of the parts
			r.squares[i] += sum
		}
		squares = squares[1+len(parts):]
	}
	if len(squares) > 0 {
		return fmt.Errorf("%w: rank %d has %d more parameters than its stages declare here", transport.ErrRanks, rank, len(squares))
	}
	if err := r.checkAgreement(rank, theirs.parts); err != nil {
		return err
	}
	if rank == 0 {
		return record.UnmarshalBinary(theirs.record)
	}
	if err := r.otherRecord.UnmarshalBinary(theirs.record); err != nil {
		return err
	}
	return record.Merge(&r.otherRecord)
}

// append appends the encoded report to b.
func (p *report) append(b []byte) []byte {
	p.Magic, p.Squares, p.Parts = reportMagic, uint32(len(p.squares)), uint32(len(p.parts))
	b, _ = binary.Append(b, binary.LittleEndian, &p.reportHeader) // the header has a fixed size
	b, _ = binary.Append(b, binary.LittleEndian, p.squares)
	b, _ = binary.Append(b, binary.LittleEndian, p.parts)
	return append(b, p.record...)
}

// errReport is the error for bytes that are not a report.
var errReport = errors.New("not a report of this version")

// decode replaces p with the report encoded in b, reusing p's memory.
func (p *report) decode(b []byte) error {
	n, err := binary.Decode(b, binary.LittleEndian, &p.reportHeader)
	if err != nil || p.Magic != reportMagic {
		return fmt.Errorf("%w: %d bytes", errReport, len(b))
	}
	if again, _ := binary.Append(nil, binary.LittleEndian, &p.reportHeader); !bytes.Equal(again, b[:n]) { // a bool is 0 or 1
		return fmt.Errorf("%w: a header that is not canonical", errReport)
	}
	if b = b[n:]; int64(len(b)) < 8*(int64(p.Squares)+int64(p.Parts)) {
		return fmt.Errorf("%w: %d bytes for %d squares and %d parts", errReport, len(b), p.Squares, p.Parts)
	}
	p.squares = slices.Grow(p.squares[:0], int(p.Squares))[:p.Squares]
	p.parts = slices.Grow(p.parts[:0], int(p.Parts))[:p.Parts]
	_, _ = binary.Decode(b, binary.LittleEndian, p.squares) // b is long enough
	b = b[8*len(p.squares):]
	_, _ = binary.Decode(b, binary.LittleEndian, p.parts)
	p.record = append(p.record[:0], b[8*len(p.parts):]...)
	return nil
}
