package safetensors

import (
	"bytes"
	"cmp"
	"fmt"
	"math"
	"slices"
	"unicode/utf8"

	"github.com/weir-ml/weir/internal/jsontext"
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
	d, tensor := jsontext.Of(text, "", "the header"), ""
	d.Object(func(name string) {
		if name == metadataKey {
			metadata = map[string]string{}
			d.Object(func(key string) { metadata[key] = d.Word() })
			return
		}
		tensor = fmt.Sprintf("tensor %.80q: ", name)
		infos = append(infos, readInfo(d, name))
		if d.Fault() == nil {
			tensor = ""
		}
	})
	d.End(0, true)
	if fault := d.Fault(); fault != nil {
		return nil, nil, corrupt("header byte %d: %s%s", d.Start(), tensor, fault.Text)
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

// mostDimensions is the maximum number of dimensions of a tensor.
const mostDimensions = 1024

// readInfo reads the description of a tensor.
func readInfo(d *jsontext.Reader, name string) Info {
	begin := d.Ahead()
	if fault := badName(name); fault != "" {
		d.Wrong(begin, "its name "+fault)
	}
	t := Info{Name: name}
	var offsets []int64
	d.Object(func(property string) {
		switch property {
		case "dtype":
			if t.DType = DType(d.Word()); t.DType.Size() == 0 {
				d.Found(string(t.DType), "expected a supported dtype, such as F32")
			}
		case "shape":
			t.Shape = []int{}
			d.List(mostDimensions, func() { t.Shape = append(t.Shape, int(d.Whole("a dimension", 0, math.MaxInt))) })
		case "data_offsets":
			d.List(2, func() { offsets = append(offsets, d.Whole("an offset", 0, math.MaxInt64)) })
		default:
			d.Unknown("dtype, shape or data_offsets")
		}
	})
	switch size, fits := byteSize(t.DType, t.Shape); {
	case t.DType == "" || t.Shape == nil || len(offsets) != 2:
		d.Wrong(begin, "expected dtype, shape and two data_offsets")
	case !fits:
		d.Wrong(begin, fmt.Sprintf("the size of shape %.80v overflows", fmt.Sprint(t.Shape)))
	case offsets[1]-offsets[0] != size: // an end before its begin never equals a size
		d.Wrong(begin, fmt.Sprintf("data_offsets %v, expected %d bytes for %s of shape %.80v", offsets, size, t.DType, fmt.Sprint(t.Shape)))
	default:
		t.Begin, t.End = offsets[0], offsets[1]
	}
	return t
}
