package layout

import (
	"io"

	"github.com/weir-ml/weir/internal/formats/jsonfile"
	"github.com/weir-ml/weir/schedule"
)

const (
	// MaxText is the largest number of bytes that Read accepts.
	MaxText = 64 << 20
	// maxIndex bounds the numbers of buffers, and the lengths of lists.
	maxIndex = 1 << 20
)

var form = jsonfile.Form{Kind: ErrProfile, Package: "layout", Content: "the profile", Schema: 1, Bytes: MaxText, Values: maxIndex}

// Read reads the output of Write. It reads at most MaxText bytes, and the memory that it allocates is
// proportional to them. Errors wrap ErrProfile, and state the location, the text that was found and the
// text that was expected. If r has a Name method, as a file does, the location is file:line:column.
func Read(r io.Reader) (*Profile, error) {
	var file profileFile
	if err := form.Read(r, &file, &file.Schema); err != nil {
		return nil, err
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
		facts := schedule.StageInfo{Frozen: own.Frozen, Split: own.Split, Recomputes: own.Recomputes, Quantizes: own.Quantizes}
		for kind, set := range own.Reads.byKind() {
			facts.Reads[kind] = uint64(*set)
		}
		t.StageInfo = append(t.StageInfo, facts)
	}
	for _, own := range f.Shapes {
		shape := ShapeProfile{Name: own.Name, Stages: own.Stages}
		for _, e := range own.Entries {
			shape.Entries = append(shape.Entries, EntryProfile{uint64(e.Parts), e.Buffers, e.Events, e.Out})
		}
		t.Shapes = append(t.Shapes, shape)
	}
	return t
}
