package safetensors

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"slices"
	"unicode/utf8"

	"github.com/weir-ml/weir/internal/formats/jsonfile"
)

// Info describes one tensor of a file.
type Info struct {
	Name  string
	DType DType
	Shape []int

	// Begin and End delimit the values within the data, in bytes.
	Begin, End int64
}

// count returns the number of elements.
func (t *Info) count() int64 { return (t.End - t.Begin) / int64(t.DType.Size()) }

// parseHeader parses and checks a header for a file with this many bytes of data. It returns
// the tensors in the order of their data.
func parseHeader(header []byte, data int64) (infos []Info, metadata map[string]string, err error) {
	if !utf8.Valid(header) {
		return nil, nil, corrupt("the header is not UTF-8")
	}
	text := bytes.TrimRight(header, " ")
	if len(text) == 0 || text[0] != '{' {
		return nil, nil, corrupt("the header starts with %.10q, expected \"{\"", header)
	}
	fault := jsonfile.Members(text, "the header", func(name string, _ int, value []byte) *jsonfile.Error {
		if name == metadataKey {
			return jsonfile.Unmarshal(value, "the header", maxDimensions, &metadata)
		}
		info, fault := readInfo(value, name)
		if infos = append(infos, info); fault != nil {
			fault.Text = fmt.Sprintf("tensor %.80q: %s", name, fault.Text)
		}
		return fault
	})
	if fault != nil {
		return nil, nil, corrupt("header byte %d: %s", fault.Offset, fault.Text)
	}
	if last := text[len(text)-1]; last != '}' {
		return nil, nil, corrupt("the header ends with %q, expected spaces", string(last))
	}
	// Empty tensors share an offset with their successor, so that the end determines the order.
	slices.SortStableFunc(infos, func(a, b Info) int {
		return cmp.Or(cmp.Compare(a.Begin, b.Begin), cmp.Compare(a.End, b.End))
	})
	var end int64
	for _, t := range infos {
		if t.Begin != end {
			return nil, nil, corrupt("tensor %.80q begins at data byte %d, expected %d where the one before it ends", t.Name, t.Begin, end)
		}
		end = t.End
	}
	if end != data {
		return nil, nil, corrupt("the tensors have %d bytes and the file has %d for them", end, data)
	}
	return infos, metadata, nil
}

// maxDimensions is the maximum number of dimensions of a tensor.
const maxDimensions = 1024

// known is a supported dtype.
type known DType

// UnmarshalText implements encoding.TextUnmarshaler.
func (k *known) UnmarshalText(text []byte) error {
	*k = known(text)
	if DType(text).Size() == 0 {
		return errors.New("expected a supported dtype, such as F32")
	}
	return nil
}

// readInfo reads the description of a tensor.
func readInfo(text []byte, name string) (Info, *jsonfile.Error) {
	var own struct {
		DType   known   `json:"dtype"`
		Shape   []int   `json:"shape"`
		Offsets []int64 `json:"data_offsets"`
	}
	wrong := func(format string, args ...any) (Info, *jsonfile.Error) {
		return Info{}, &jsonfile.Error{Text: fmt.Sprintf(format, args...)}
	}
	if fault := badName(name); fault != "" {
		return wrong("its name %s", fault)
	}
	if fault := jsonfile.Unmarshal(text, "the header", maxDimensions, &own); fault != nil {
		return Info{}, fault
	}
	dtype := DType(own.DType)
	size, fits := byteSize(dtype, own.Shape)
	switch {
	case dtype == "" || own.Shape == nil || len(own.Offsets) != 2:
		return wrong("expected dtype, shape and two data_offsets")
	case slices.ContainsFunc(own.Shape, func(n int) bool { return n < 0 }) || own.Offsets[0] < 0:
		return wrong("found a negative number in shape %.80v or data_offsets %v", fmt.Sprint(own.Shape), own.Offsets)
	case !fits:
		return wrong("the size of shape %.80v overflows", fmt.Sprint(own.Shape))
	case own.Offsets[1]-own.Offsets[0] != size: // an end before its begin never equals a size
		return wrong("data_offsets %v, expected %d bytes for %s of shape %.80v", own.Offsets, size, dtype, fmt.Sprint(own.Shape))
	}
	return Info{Name: name, DType: dtype, Shape: own.Shape, Begin: own.Offsets[0], End: own.Offsets[1]}, nil
}
