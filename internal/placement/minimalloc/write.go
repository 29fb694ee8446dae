package minimalloc

import (
	"bufio"
	"io"
	"strconv"
	"strings"

	"github.com/weir-ml/weir/internal/formats/diagnostic"
)

// Write writes an instance in the form that Read reads. The columns are id, lower, upper and size, then
// alignment and gaps if a buffer has any, and offset if there is a layout. If IDs is nil, buffers are named
// 0, 1, and so on. If the problem, a name or the number of names or offsets is invalid, Write writes nothing
// and returns an error.
func Write(w io.Writer, in *Instance) error {
	if err := in.Problem.Validate(); err != nil {
		return err
	}
	n := len(in.Problem.Buffers)
	if in.IDs != nil && len(in.IDs) != n || in.Offsets != nil && len(in.Offsets) != n {
		return diagnostic.Errorf(ErrFormat, "%d names and %d offsets for %d buffers", len(in.IDs), len(in.Offsets), n)
	}
	for _, id := range in.IDs {
		if strings.ContainsAny(id, ",\r\n") || id != strings.TrimSpace(id) {
			return diagnostic.Errorf(ErrFormat, "the name %s has a comma, a line end, or spaces around it", quote(id))
		}
	}
	aligned, gapped := false, false
	for i := range in.Problem.Buffers {
		b := &in.Problem.Buffers[i]
		aligned = aligned || b.Align > 1
		gapped = gapped || len(b.Gaps) > 0
	}

	out := bufio.NewWriter(w)
	out.WriteString("id,lower,upper,size")
	if aligned {
		out.WriteString(",alignment")
	}
	if gapped {
		out.WriteString(",gaps")
	}
	if in.Offsets != nil {
		out.WriteString(",offset")
	}
	out.WriteByte('\n')
	var line []byte
	for i := range in.Problem.Buffers {
		b := &in.Problem.Buffers[i]
		if in.IDs == nil {
			line = strconv.AppendInt(line[:0], int64(i), 10)
		} else {
			line = append(line[:0], in.IDs[i]...)
		}
		for _, n := range []int64{b.Lower, b.Upper, b.Size} {
			line = strconv.AppendInt(append(line, ','), n, 10)
		}
		if aligned {
			line = strconv.AppendInt(append(line, ','), max(b.Align, 1), 10)
		}
		if gapped {
			line = append(line, ',')
			for k, g := range b.Gaps {
				if k > 0 {
					line = append(line, ' ')
				}
				line = strconv.AppendInt(line, g.Lower, 10)
				line = strconv.AppendInt(append(line, '-'), g.Upper, 10)
			}
		}
		if in.Offsets != nil {
			line = strconv.AppendInt(append(line, ','), in.Offsets[i], 10)
		}
		out.Write(append(line, '\n'))
	}
	return out.Flush()
}
