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
	squares []float64 // of the gradients whose owner is on this rank: see measure
	parts   []uint64  // digests of the parts made by the source; empty if it is not checked
	audit   []uint64  // digests of an audited step; empty if it is not audited
	record  []byte    // the rank's encoded losses
}

// reports holds a rank's messages, whose memory is reused from step to step.
type reports struct {
	report  report // this rank's report, then each received one
	encoded []byte // this rank's report
	hello   []byte // this rank's description of the step
}

// reportHeader is the beginning of a report, little-endian. The squares, the digests and the record
// follow it.
type reportHeader struct {
	Magic                    [4]byte // its last byte is the version
	Squares, Parts, Audit    uint32  // lengths of the slices in the report
	Step, Microbatches, Mode int64
	// Rank holds the rank's measurements. Start and End are Unix times by its clock, or 0 if it ran
	// no computations.
	Rank RankResult
}

var reportMagic = [4]byte{'W', 'R', 'R', 10}

// exchange merges the losses of all ranks into record, in rank order, adds up the squares of the
// gradients, and returns the measurements of each rank. In an audited step it also compares the digests.
func (r *worker[T]) exchange(ctx context.Context, record *loss.Record) ([]RankResult, error) {
	clear(r.params.squares)
	if r.links.transport == nil {
		var err error
		if r.running.plan.Mode == schedule.Training {
			err = r.params.addSquares(0, r.params.sums)
		}
		if err == nil && r.running.audit != nil {
			err = r.checkAudit([][]uint64{r.audit.sums})
		}
		return []RankResult{r.account()}, err
	}
	all, err := r.sendReport(ctx, record)
	if err != nil {
		return nil, err
	}
	if total := r.cfg.total(); len(all) != total {
		return nil, fmt.Errorf("%w: %d ranks answered of %d", transport.ErrRanks, len(all), total)
	}
	ranks, audits := make([]RankResult, len(all)), [][]uint64(nil)
	for rank, data := range all {
		if err := r.mergeReport(rank, data, record); err != nil {
			return nil, err
		}
		ranks[rank] = r.reports.report.Rank
		if r.running.audit != nil {
			audits = append(audits, slices.Clone(r.reports.report.audit))
		}
	}
	if r.running.audit != nil {
		return ranks, r.checkAudit(audits)
	}
	return ranks, nil
}

// account returns this rank's measurements, taken from its books and clock.
func (r *worker[T]) account() RankResult {
	own := RankResult{
		Live: r.calls.Frames.Live(), Excess: r.calls.Frames.Excess(), Growth: r.running.result.Growth.Bytes,
		Books: int64(r.running.result.Books), Actions: int64(r.running.result.Actions),
	}
	if own.Books > 1 {
		stats := r.calls.Frames.Stats()
		r.running.result.raisePeak(stats.Peak, &stats.PeakClasses)
		own.Live, own.Reserved = stats.Live, stats.Reserved
	}
	own.Peak, own.PeakClasses = r.running.result.Peak, r.running.result.PeakClasses
	l := &r.memory.levels
	if l.near.layout != nil {
		own.Planned, own.Height, own.PeakPlanned = true, l.near.layout.Height, r.calls.Frames.Baseline()+l.top
	}
	if l.far.layout != nil {
		own.FarPeak, own.FarHeight, own.FarWaits = r.running.result.FarPeak, l.far.layout.Height, r.calls.Frames.FarWaits()
	}
	if shared := r.params.shared; shared != nil {
		own.Reduce, own.Gather = shared.Took()
		own.ReplicaWait = shared.Waited()
	}
	if c := &r.running.clock; !c.first.IsZero() {
		own.Start = time.Duration(c.first.UnixNano())
		own.End = own.Start + c.last.Sub(c.first)
		own.Wait = c.waited - c.waitedBefore
	}
	return own
}

// sendReport sends this rank's report and returns the encoded reports of all ranks.
func (r *worker[T]) sendReport(ctx context.Context, record *loss.Record) ([][]byte, error) {
	mine := &r.reports.report
	mine.reportHeader = reportHeader{Step: r.step, Microbatches: int64(r.running.batch.m), Mode: int64(r.running.plan.Mode), Rank: r.account()}
	mine.squares = mine.squares[:0]
	if r.running.plan.Mode == schedule.Training {
		mine.squares = append(mine.squares, r.params.sums...)
	}
	mine.parts, mine.audit = append(mine.parts[:0], r.running.sourceCheck.made...), mine.audit[:0]
	if r.running.audit != nil {
		mine.audit = append(mine.audit, r.audit.sums...)
	}
	var err error
	if mine.record, err = record.AppendBinary(mine.record[:0]); err != nil {
		return nil, err
	}
	r.reports.encoded = mine.append(r.reports.encoded[:0])
	return r.links.transport.Exchange(ctx, r.reports.encoded)
}

// mergeReport decodes a rank's report into r.reports, checks it, adds its squares in a training step, and
// merges its losses into record. Rank 0 comes first, and its losses replace the contents of record.
func (r *worker[T]) mergeReport(rank int, data []byte, record *loss.Record) error {
	theirs := &r.reports.report
	if err := theirs.decode(data); err != nil {
		return fmt.Errorf("%w: rank %d: %w", transport.ErrRanks, rank, err)
	}
	if theirs.Step != r.step || theirs.Microbatches != int64(r.running.batch.m) || theirs.Mode != int64(r.running.plan.Mode) {
		return fmt.Errorf("%w: rank %d ran step %d of %d microbatches (mode %d), this rank ran step %d of %d (mode %d)", transport.ErrRanks, rank,
			theirs.Step, theirs.Microbatches, theirs.Mode, r.step, r.running.batch.m, r.running.plan.Mode)
	}
	if r.running.plan.Mode == schedule.Training {
		if err := r.params.addSquares(rank, theirs.squares); err != nil {
			return err
		}
	}
	if err := r.checkAgreement(rank, theirs.parts); err != nil {
		return err
	}
	if rank == 0 {
		return record.UnmarshalBinary(theirs.record)
	}
	if err := r.losses.other.UnmarshalBinary(theirs.record); err != nil {
		return err
	}
	return record.Merge(&r.losses.other)
}

// append appends the encoded report to b.
func (p *report) append(b []byte) []byte {
	p.Magic, p.Squares, p.Parts, p.Audit = reportMagic, uint32(len(p.squares)), uint32(len(p.parts)), uint32(len(p.audit))
	b, _ = binary.Append(b, binary.LittleEndian, &p.reportHeader) // the header has a fixed size
	b, _ = binary.Append(b, binary.LittleEndian, p.squares)
	b, _ = binary.Append(b, binary.LittleEndian, p.parts)
	b, _ = binary.Append(b, binary.LittleEndian, p.audit)
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
	if again, _ := binary.Append(nil, binary.LittleEndian, &p.reportHeader); !bytes.Equal(again, b[:n]) { // for example, a bool must be 0 or 1
		return fmt.Errorf("%w: a header that is not canonical", errReport)
	}
	if b = b[n:]; int64(len(b)) < 8*(int64(p.Squares)+int64(p.Parts)+int64(p.Audit)) {
		return fmt.Errorf("%w: %d bytes for %d squares and %d digests", errReport, len(b), p.Squares, int64(p.Parts)+int64(p.Audit))
	}
	p.squares = slices.Grow(p.squares[:0], int(p.Squares))[:p.Squares]
	p.parts = slices.Grow(p.parts[:0], int(p.Parts))[:p.Parts]
	p.audit = slices.Grow(p.audit[:0], int(p.Audit))[:p.Audit]
	_, _ = binary.Decode(b, binary.LittleEndian, p.squares) // b is long enough
	b = b[8*len(p.squares):]
	_, _ = binary.Decode(b, binary.LittleEndian, p.parts)
	b = b[8*len(p.parts):]
	_, _ = binary.Decode(b, binary.LittleEndian, p.audit)
	p.record = append(p.record[:0], b[8*len(p.audit):]...)
	return nil
}
