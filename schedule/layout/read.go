package layout

import (
	"errors"
	"fmt"
	"io"

	"github.com/weir-ml/weir/internal/jsontext"
	"github.com/weir-ml/weir/schedule"
)

const (
	// MaxText is the largest number of bytes that Read accepts.
	MaxText = 64 << 20
	// maxIndex bounds the numbers of buffers.
	maxIndex = 1 << 20
)

// Read reads the output of Write. It reads at most MaxText bytes, and the memory that it allocates is
// proportional to them. Errors wrap ErrProfile, and state the location, the text that was found and the
// text that was expected. If r has a Name method, as a file does, the location is file:line:column.
func Read(r io.Reader) (*Profile, error) {
	text, err := jsontext.New(r, MaxText, "the profile")
	if errors.Is(err, jsontext.ErrLong) {
		return nil, fmt.Errorf("%w: the text is longer than %d bytes: name a file with a profile", ErrProfile, MaxText)
	}
	if err != nil {
		return nil, fmt.Errorf("layout: %w", err)
	}
	var file profileFile
	text.Into(&file)
	text.End(schema, file.Schema != 0)
	if f := text.Fault(); f != nil {
		return nil, fmt.Errorf("%w: %s: %s", ErrProfile, f.Place, f.Text)
	}
	t := file.profile()
	if err := t.Validate(); err != nil {
		return nil, err
	}
	return t, nil
}

// profile returns the profile in a file.
func (f *profileFile) profile() *Profile {
	t := &Profile{Parts: f.Parts, Params: f.Params}
	for _, own := range f.Facts {
		facts := schedule.Facts{Frozen: own.Frozen, Split: own.Split, Recomputes: own.Recomputes, Quantizes: own.Quantizes}
		for kind, list := range own.Reads.byKind() {
			facts.Reads[kind] = setOf(*list)
		}
		t.Facts = append(t.Facts, facts)
	}
	for _, own := range f.Shapes {
		shape := ShapeProfile{Name: own.Name, Stages: own.Stages}
		for _, e := range own.Entries {
			shape.Entries = append(shape.Entries, Entry{setOf(e.Parts), e.Buffers, e.Events, e.Out})
		}
		t.Shapes = append(t.Shapes, shape)
	}
	return t
}
