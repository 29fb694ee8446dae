package memlog

import (
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/rs/zerolog"

	"github.com/weir-ml/weir/internal/formats/diagnostic"
	"github.com/weir-ml/weir/memory"
)

// field maps a key to the location of its value.
type field struct {
	key string
	to  any // a pointer of a type that the function value reads
	// optional fields may be absent from a line; Log.Sample leaves them out.
	optional bool
}

// object lists the fields of an object, for writing or reading.
type object []field

// MarshalZerologObject implements zerolog.LogObjectMarshaler.
func (o object) MarshalZerologObject(e *zerolog.Event) {
	for _, f := range o {
		f.write(e)
	}
}

// write writes the field.
func (f *field) write(e *zerolog.Event) {
	switch value := f.to.(type) {
	case *int:
		e.Int(f.key, *value)
	case *int64:
		e.Int64(f.key, *value)
	case *signed:
		e.Int64(f.key, int64(*value))
	case *uint64:
		e.Uint64(f.key, *value)
	case *float64:
		e.Float64(f.key, *value)
	case *string:
		e.Str(f.key, *value)
	case *memory.Class:
		e.Str(f.key, value.String())
	case *memory.ByClass:
		e.Object(f.key, (*classes)(value))
	}
}

// signed is a time, or a number of bytes that may be negative.
type signed int64

// parse reads one line that is not blank.
func parse(text []byte) (Record, error) {
	all, err := members(text, 1)
	if err != nil {
		return Record{}, err
	}
	var r Record
	switch {
	case !has(all, "schema"): // written by another trainer; its other keys are ignored
		err = fill(1, all, "the minimal form (no schema)", []field{
			{key: "step", to: &r.Step},
			{key: "rank", to: &r.Rank},
			{key: "microbatch", to: &r.Microbatch},
			{key: "allocated", to: &r.Live},
			{key: "reserved", to: &r.Reserved},
			{key: "peak", to: &r.Peak},
		})
	case has(all, "owner"):
		r.Owner = new(memory.Info)
		err = fillInside(all, "owner", &r, "an owner", ownerFields(r.Owner))
	case has(all, "peak_owner"):
		r.PeakOwner = &memory.PeakOwner{First: -1, Last: -1}
		err = fillInside(all, "peak_owner", &r, "an owner at the peak", peakOwnerFields(r.PeakOwner))
	case has(all, "fp8"):
		r.FP8 = &FP8{}
		err = fillInside(all, "fp8", &r, "a role in FP8", fp8Fields(r.FP8))
	default:
		r.Planned = has(all, "live_planned") || has(all, "peak_planned")
		r.Replicated = has(all, "replica")
		fields := sampleFields(&r.Sample, &r.Every)
		err = fill(1, all, "schema 1", append([]field{{key: "schema", to: &r.Schema}}, fields[:]...))
	}
	return r, err
}

// fillInside fills in a record's schema, and fills fields from the object under a key.
func fillInside(all []member, key string, r *Record, form string, fields object) error {
	var o member
	if err := fill(1, all, "schema 1", []field{{key: "schema", to: &r.Schema}, {key: key, to: &o}}); err != nil {
		return err
	}
	inner, err := members(o.raw, o.column)
	if err != nil {
		return err
	}
	if key == "peak_owner" && !has(inner, "first") && !has(inner, "last") {
		fields = fields[:len(fields)-2]
	}
	return fill(o.column, inner, form, fields)
}

func has(all []member, key string) bool {
	return slices.ContainsFunc(all, func(m member) bool { return m.key == key })
}

// fill sets every field to its value. It ignores keys that match no field; a missing key is a fault
// unless its field is optional.
func fill(column int, all []member, form string, fields []field) error {
	var missing []string
	for _, f := range fields {
		i := slices.IndexFunc(all, func(m member) bool { return m.key == f.key })
		switch {
		case i >= 0:
			if err := value(all[i], f.to); err != nil {
				return err
			}
		case !f.optional:
			missing = append(missing, f.key)
		}
	}
	if missing != nil {
		return expected(column, form+" with all its fields", "none of these: "+strings.Join(missing, " "))
	}
	return nil
}

// value reads the value of m into the variable that to points to.
func value(m member, to any) error {
	switch to := to.(type) {
	case *member:
		*to = m
	case *int:
		n, err := integer(m, math.MaxInt)
		*to = int(n)
		if err == nil && m.key == "schema" && n != schema {
			return &Error{Column: m.column, Text: fmt.Sprintf("expected schema %d, found %d: %s", schema, n, diagnostic.OtherVersion)}
		}
		return err
	case *int64:
		n, err := integer(m, math.MaxInt64)
		*to = int64(n)
		return err
	case *uint64:
		n, err := integer(m, math.MaxUint64)
		*to = n
		return err
	case *signed:
		n, err := strconv.ParseInt(string(m.raw), 10, 64)
		*to = signed(n)
		if err != nil {
			return expected(m.column, m.key+", an integer of 64 bits", short(m.raw))
		}
	case *float64:
		text := string(m.raw)
		switch text {
		case `"NaN"`, `"+Inf"`, `"-Inf"`: // as zerolog writes them
			text = strings.Trim(text, `"`)
		}
		f, err := strconv.ParseFloat(text, 64)
		*to = f
		if err != nil {
			return expected(m.column, m.key+", a number", short(m.raw))
		}
	case *string:
		if json.Unmarshal(m.raw, to) != nil {
			return expected(m.column, m.key+", a string", short(m.raw))
		}
	case *memory.Class:
		var name string
		class, ok := memory.Class(0), json.Unmarshal(m.raw, &name) == nil
		if ok {
			class, ok = memory.ParseClass(name)
		}
		*to = class
		if !ok {
			return expected(m.column, "the name of a class", short(m.raw))
		}
	case *memory.ByClass:
		inner, err := members(m.raw, m.column)
		if err != nil {
			return err
		}
		fields := make([]field, memory.NumClasses)
		for i := range fields {
			fields[i] = field{key: memory.Class(i).String(), to: &to[i], optional: true}
		}
		for _, c := range inner {
			if _, ok := memory.ParseClass(c.key); !ok {
				return expected(c.column, "bytes of a class", "class "+short([]byte(strconv.Quote(c.key))))
			}
		}
		return fill(m.column, inner, "classes", fields)
	}
	return nil
}

// integer reads an integer from 0 to most.
func integer(m member, most uint64) (uint64, error) {
	n, err := strconv.ParseUint(string(m.raw), 10, 64)
	if err != nil || n > most {
		return 0, expected(m.column, fmt.Sprintf("%s, an integer from 0 to %d", m.key, most), short(m.raw))
	}
	return n, nil
}
