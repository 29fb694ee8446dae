package simulate

import (
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/weir-ml/weir/internal/jsontext"
	"github.com/weir-ml/weir/schedule"
)

// MaxCostsText is the most bytes that ReadCosts reads.
const MaxCostsText = 16 << 20

// ReadCosts reads what WriteCosts writes. All fields may be left out but schema and
// stages. It reads at most MaxCostsText bytes and allocates no more than a small
// multiple of what it has read.
//
// Errors wrap ErrCosts and say where the fault is, what was found there and what was
// expected. Where r has a Name, as a file does, the place is file:line:column.
func ReadCosts(r io.Reader) (*Costs, error) {
	text, err := jsontext.New(r, MaxCostsText, "the costs")
	if errors.Is(err, jsontext.ErrLong) {
		return nil, fmt.Errorf("%w: the text is longer than %d bytes", ErrCosts, MaxCostsText)
	}
	if err != nil {
		return nil, fmt.Errorf("schedule: %w", err)
	}
	d := costsReader{text}
	c := d.costs()
	if f := d.Fault(); f != nil {
		return nil, &costsFault{*f}
	}
	if err := c.Validate(); err != nil {
		return nil, err
	}
	return c, nil
}

// costsReader takes costs out of a text.
type costsReader struct{ *jsontext.Reader }

func (d costsReader) costs() *Costs {
	c := &Costs{}
	schema := false
	d.Object(func(field string) {
		switch field {
		case "schema":
			schema = true
			if d.Whole("the schema", costsSchema, costsSchema) != costsSchema {
				return
			}
		case "unit":
			c.Unit = d.Word()
		case "scale":
			c.Scale = d.amount(field)
		case "latency":
			c.Latency = d.amount(field)
		case "per_mib":
			c.PerMiB = d.amount(field)
		case "microbatch":
			c.Microbatch = d.amount(field)
		case "links":
			d.List(schedule.MaxStages, func() { c.Links = append(c.Links, d.link()) })
		case "resident":
			d.List(schedule.MaxStages, func() { c.Resident = append(c.Resident, d.amount("the bytes of a rank")) })
		case "stages":
			d.List(schedule.MaxStages, func() { c.Stages = append(c.Stages, d.stage()) })
		default:
			d.Unknown("schema, unit, scale, latency, per_mib, microbatch, links, resident or stages")
		}
	})
	d.End(costsSchema, schema)
	return c
}

func (d costsReader) link() LinkCosts {
	var l LinkCosts
	d.Object(func(field string) {
		switch field {
		case "from":
			l.From = int(d.Whole("a rank", 0, schedule.MaxStages-1))
		case "to":
			l.To = int(d.Whole("a rank", 0, schedule.MaxStages-1))
		case "latency":
			l.Latency = d.amount(field)
		case "per_mib":
			l.PerMiB = d.amount(field)
		default:
			d.Unknown("from, to, latency or per_mib")
		}
	})
	return l
}

func (d costsReader) stage() StageCosts {
	var s StageCosts
	d.Object(func(field string) {
		if v := s.field(field); v != nil {
			*v = d.amount(field)
		} else {
			n := len(stageFields) - 1
			d.Unknown(strings.Join(stageFields[:n], ", ") + " or " + stageFields[n])
		}
	})
	return s
}

// amount takes a time or a size.
func (d costsReader) amount(what string) int64 { return d.Whole(what, 0, maxCost) }

// costsFault is a fault at a place of a text.
type costsFault struct{ at jsontext.Fault }

func (f *costsFault) Error() string {
	return fmt.Sprintf("%v: %s: %s", ErrCosts, f.at.Place, f.at.Text)
}

func (f *costsFault) Unwrap() error { return ErrCosts }

// Place returns where the fault is, for those who read costs out of a larger text.
func (f *costsFault) Place() (line, column int) { return f.at.Line, f.at.Column }

// Fault returns what was found and what was expected.
func (f *costsFault) Fault() string { return f.at.Text }
