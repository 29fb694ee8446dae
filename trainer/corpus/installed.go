package corpus

import (
	"bytes"
	"context"
	"errors"
	"go/build"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/weir-ml/weir/schedule/units"
)

const maxSource = 4 << 20 // bytes of the standard library, if it replaces a text

// Installed returns at most most bytes of a text that is part of every Go installation: Newton's Opticks from its
// test data, or, if that cannot be read, the source of the standard library.
func Installed(ctx context.Context, most int) (*Text, error) {
	root := goroot(ctx)
	opticks := filepath.Join(root, "src", "testdata", "Isaac.Newton-Opticks.txt")
	if text, err := Read(ctx, opticks, most, nil); err == nil {
		text.Name = "Newton's Opticks (" + opticks + ")"
		return text, nil
	}
	return GoSource(ctx, min(most, maxSource))
}

// GoSource returns the files of the standard library's source, up to most bytes.
func GoSource(ctx context.Context, most int) (*Text, error) {
	source := filepath.Join(goroot(ctx), "src")
	text, err := Read(ctx, source, most, isGo)
	if err != nil {
		return nil, errors.New("no text was found in the Go installation: name a file or a folder")
	}
	text.Name = "Go source in " + source
	if text.Cut {
		text.Name = "the first " + units.Size(int64(most)) + " of " + text.Name
	}
	return text, nil
}

// goroot returns the root of the Go installation, or "" if it is not found.
func goroot(ctx context.Context) string {
	if root := build.Default.GOROOT; root != "" {
		if _, err := os.Stat(filepath.Join(root, "src")); err == nil {
			return root
		}
	}
	// A program built with -trimpath does not contain GOROOT.
	out, err := exec.CommandContext(ctx, "go", "env", "GOROOT").Output()
	if err != nil {
		return ""
	}
	return string(bytes.TrimSpace(out))
}

// isGo reports whether a file is Go source of the standard library.
func isGo(path string, head []byte) bool {
	for _, folder := range [...]string{"cmd", "vendor", "testdata"} {
		if strings.Contains(path, string(filepath.Separator)+folder+string(filepath.Separator)) {
			return false
		}
	}
	return filepath.Ext(path) == ".go" && LooksLikeText(path, head)
}
