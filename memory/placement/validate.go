package placement

import (
	"errors"
	"fmt"
	"math"
)

// ErrProblem is wrapped by the errors about invalid problems and options.
var ErrProblem = errors.New("placement: not a problem")

// maxFaults is the number of faults that are described; any others are only counted.
const maxFaults = 16

// Validate reports the faults of a problem, the first 16 of them with the numbers of the buffers. Every fault
// wraps ErrProblem. A valid problem can always be laid out: even end to end, its buffers fit in an int64.
func (p *Problem) Validate() error {
	var faults []error
	more := 0
	fault := func(format string, args ...any) {
		if len(faults) == maxFaults {
			more++
			return
		}
		faults = append(faults, fmt.Errorf("%w: "+format, append([]any{ErrProblem}, args...)...))
	}
	room := int64(math.MaxInt64) // what remains if all buffers up to here are placed end to end
	pieces := 0
	full := false
	for i := range p.Buffers {
		b := &p.Buffers[i]
		if b.Lower >= b.Upper {
			fault("buffer %d: lower %d is not before upper %d", i, b.Lower, b.Upper)
		}
		if b.Align < 0 || b.Align&(b.Align-1) != 0 {
			fault("buffer %d: alignment %d is not a power of two", i, b.Align)
		}
		if b.Size <= 0 {
			fault("buffer %d: size %d is not positive", i, b.Size)
		} else if !full {
			if full = b.Size > room || b.Align > room-b.Size; full {
				fault("buffer %d: the sizes up to here sum to more than %d", i, int64(math.MaxInt64))
			} else {
				room -= b.Size + max(b.Align, 0)
			}
		}
		from := b.Lower
		for k, g := range b.Gaps {
			switch {
			case g.Lower >= g.Upper:
				fault("buffer %d: gap %d: lower %d is not before upper %d", i, k, g.Lower, g.Upper)
			case g.Lower <= from:
				fault("buffer %d: gap %d: lower %d is not after %d, at which the buffer is born or its last gap ends", i, k, g.Lower, from)
			case g.Upper >= b.Upper:
				fault("buffer %d: gap %d: upper %d is not before %d, the upper of the buffer", i, k, g.Upper, b.Upper)
			}
			from = g.Upper
		}
		pieces += 1 + len(b.Gaps)
	}
	if pieces > math.MaxInt32 {
		fault("%d buffers and gaps, want at most %d", pieces, math.MaxInt32)
	}
	if more > 0 {
		faults = append(faults, fmt.Errorf("%w: and %d more faults", ErrProblem, more))
	}
	return errors.Join(faults...)
}
