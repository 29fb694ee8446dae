package checkpoint

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/weir-ml/weir/internal/formats/diagnostic"
	"github.com/weir-ml/weir/trainer/safetensors"
)

// State is a run's state apart from its tensors.
type State struct {
	Step     int64             `json:"step"` // number of steps that have updated the weights
	Seed     uint64            `json:"seed"`
	Metadata map[string]string `json:"metadata"` // the trainer's own
}

// Shard describes the file that a rank has written.
type Shard struct {
	Rank    int      `json:"rank"`
	Ranks   int      `json:"ranks"`
	File    string   `json:"file"` // name in the manifest's folder
	Bytes   int64    `json:"bytes"`
	SHA256  string   `json:"sha256"` // of the file
	Tensors []Tensor `json:"tensors"`
}

// Tensor describes a tensor of a shard, or a piece of one: Count elements in row-major order,
// starting at First. Shape is the shape of the whole tensor; a Count of 0 means the whole tensor.
type Tensor struct {
	Name  string            `json:"name"`
	DType safetensors.DType `json:"dtype"`
	Shape []int             `json:"shape"`
	First int               `json:"first,omitempty"`
	Count int               `json:"count,omitempty"`
}

// stored returns the name of the tensor or piece in its shard's file.
func (t *Tensor) stored() string {
	if t.Count == 0 {
		return t.Name
	}
	return fmt.Sprintf("%s[%d:%d]", t.Name, t.First, t.First+t.Count)
}

// elements returns the number of elements of the whole tensor. ok is false if a size is negative
// or the number overflows an int.
func (t *Tensor) elements() (n int, ok bool) {
	n = 1
	for _, size := range t.Shape {
		if size < 0 || size > 0 && n > math.MaxInt/size {
			return 0, false
		}
		n *= size
	}
	return n, true
}

// end returns the index of the first element after the piece. The shape must be valid.
func (t *Tensor) end() int {
	if t.Count > 0 {
		return t.First + t.Count
	}
	n, _ := t.elements()
	return n
}

// manifest is the content of the manifest file.
type manifest struct {
	Format  string `json:"format"`
	Version int    `json:"version"`
	SHA256  string `json:"sha256"`
	State
	Shards []Shard `json:"shards"`
}

const (
	format       = "weir.checkpoint"
	version      = 2 // version 1 has no pieces
	manifestName = "manifest.json"
	latestName   = "latest"
	maxManifest  = 256 << 20 // bytes
)

var noDigest = strings.Repeat("0", 2*sha256.Size)

// encode sets m's format and version, and returns the contents of the manifest file.
func (m *manifest) encode() ([]byte, error) {
	m.Format, m.Version, m.SHA256 = format, version, noDigest
	text, err := json.MarshalIndent(m, "", " ")
	if err != nil {
		return nil, err
	}
	text = append(text, '\n')
	sum := sha256.Sum256(text)
	hex.Encode(text[bytes.Index(text, []byte(noDigest)):], sum[:]) // the first match: the only fields before it are format and version
	return text, nil
}

// readManifest reads and checks the manifest of a checkpoint, but not its shards. Its error wraps ErrNone if
// there is no manifest.
func readManifest(folder string) (*manifest, error) {
	path := filepath.Join(folder, manifestName)
	text, err := read(path, maxManifest)
	if errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("%w in %s: it has no %s", ErrNone, folder, manifestName)
	}
	if err != nil {
		return nil, err
	}
	var head struct {
		Format  string
		Version int
	}
	if json.Unmarshal(text, &head) != nil {
		return nil, damaged(path, "it is not the JSON of a manifest")
	}
	switch {
	case head.Format != format:
		return nil, damaged(path, "its format is %.40q, expected %q", head.Format, format)
	case head.Version != 1 && head.Version != version:
		return nil, fmt.Errorf("%w: %s has version %d, this program reads 1 and %d: %s", ErrVersion, path, head.Version, version, diagnostic.OtherVersion)
	}
	m := &manifest{}
	if json.Unmarshal(text, m) != nil {
		return nil, damaged(path, "it is not the JSON of a manifest")
	}
	at := bytes.Index(text, []byte(m.SHA256))
	if len(m.SHA256) != len(noDigest) || at < 0 {
		return nil, damaged(path, "its sha256 is %.80q, expected %d digits", m.SHA256, len(noDigest))
	}
	copy(text[at:], noDigest)
	if sum := sha256.Sum256(text); hex.EncodeToString(sum[:]) != m.SHA256 {
		return nil, damaged(path, "its SHA-256 is %x, and %s was written with it", sum, m.SHA256)
	}
	if err := m.check(); err != nil {
		return nil, damaged(path, "%v", err)
	}
	return m, nil
}

// check returns an error for a manifest that Commit would not write.
func (m *manifest) check() error {
	if m.Step < 0 {
		return fmt.Errorf("the step is %d", m.Step)
	}
	for key, value := range m.Metadata {
		if !utf8.ValidString(key) || !utf8.ValidString(value) {
			return fmt.Errorf("metadata %.80q is not UTF-8", key)
		}
	}
	if len(m.Shards) == 0 {
		return errors.New("there is no shard")
	}
	ranks := map[int]bool{}
	for _, s := range m.Shards {
		if s.Rank < 0 || s.Rank >= s.Ranks || s.Ranks != len(m.Shards) || ranks[s.Rank] {
			return fmt.Errorf("rank %d of %d among %d shards: each rank writes one", s.Rank, s.Ranks, len(m.Shards))
		}
		ranks[s.Rank] = true
		if s.File == "" || s.File != filepath.Base(s.File) || !filepath.IsLocal(s.File) || s.File == "." {
			return fmt.Errorf("%.80q is not the name of a file in the manifest's folder", s.File)
		}
	}
	return m.complete()
}

// complete returns an error unless every element of every tensor is in exactly one shard.
func (m *manifest) complete() error {
	pieces := map[string][]Tensor{}
	for _, s := range m.Shards {
		for _, t := range s.Tensors {
			n, ok := t.elements()
			if !ok || t.First < 0 || t.Count < 0 || t.Count > n || t.First > n-t.Count || t.Count == 0 && t.First > 0 {
				return fmt.Errorf("tensor %.80q of shape %v has no elements %d to %d", t.Name, t.Shape, t.First, t.First+t.Count)
			}
			pieces[t.Name] = append(pieces[t.Name], t)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(pieces)) {
		all := pieces[name]
		slices.SortFunc(all, func(a, b Tensor) int { return a.First - b.First })
		next, whole := 0, all[0]
		for i, t := range all {
			switch {
			case t.DType != whole.DType || !slices.Equal(t.Shape, whole.Shape):
				return fmt.Errorf("tensor %.80q is %s of shape %v in one shard, %s of shape %v in another", name, whole.DType, whole.Shape, t.DType, t.Shape)
			case t.First < next || i > 0 && t.end() == next:
				return fmt.Errorf("tensor %.80q is in two shards from element %d on", name, t.First)
			case t.First > next:
				return fmt.Errorf("tensor %.80q has its elements %d to %d in no shard", name, next, t.First)
			}
			next = t.end()
		}
		if n, _ := whole.elements(); next < n {
			return fmt.Errorf("tensor %.80q has its elements %d to %d in no shard", name, next, n)
		}
	}
	return nil
}
