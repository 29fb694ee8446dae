package checkpoint

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"unicode/utf8"

	"github.com/weir-ml/weir/trainer/safetensors"
)

// State is the state of a run apart from its tensors.
type State struct {
	Step     int64             `json:"step"` // steps that have updated the weights
	Seed     uint64            `json:"seed"`
	Metadata map[string]string `json:"metadata"` // of the trainer
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

// Tensor describes a tensor of a shard.
type Tensor struct {
	Name  string            `json:"name"`
	DType safetensors.DType `json:"dtype"`
	Shape []int             `json:"shape"`
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
	version      = 1
	manifestName = "manifest.json"
	latestName   = "latest"
	mostManifest = 256 << 20 // bytes
)

var noDigest = strings.Repeat("0", 2*sha256.Size)

// encode returns the bytes of the file.
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

// readManifest reads and checks the manifest of a checkpoint, but not its shards.
func readManifest(folder string) (*manifest, error) {
	path := filepath.Join(folder, manifestName)
	text, err := read(path, mostManifest)
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
	case head.Version != version:
		return nil, fmt.Errorf("%w: %s has version %d, this program reads %d", ErrVersion, path, head.Version, version)
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

// check returns an error for a manifest that Commit does not write.
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
	ranks, names := map[int]bool{}, map[string]bool{}
	for _, s := range m.Shards {
		if s.Rank < 0 || s.Rank >= s.Ranks || s.Ranks != len(m.Shards) || ranks[s.Rank] {
			return fmt.Errorf("rank %d of %d among %d shards: each rank writes one", s.Rank, s.Ranks, len(m.Shards))
		}
		ranks[s.Rank] = true
		if s.File == "" || s.File != filepath.Base(s.File) || !filepath.IsLocal(s.File) || s.File == "." {
			return fmt.Errorf("%.80q is not the name of a file in the manifest's folder", s.File)
		}
		for _, t := range s.Tensors {
			if names[t.Name] {
				return fmt.Errorf("tensor %.80q is in two shards", t.Name)
			}
			names[t.Name] = true
		}
	}
	return nil
}
