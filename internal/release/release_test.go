package main

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"debug/buildinfo"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-ml/weir/internal/testing/testkit"
)

// sample is a release whose program is odd in length, so that archives have to pad it.
var (
	sample  = &release{version: "v1.2.3", made: time.Unix(1_700_000_000, 0).UTC()}
	program = []byte("\x7fELF, or so")
	license = []byte("do as you like\n")
	beside  = &extras{license, []byte("# Weir\n"), []byte("Go\n"), []byte(".TH WEIR 1\n"), map[string][]byte{"bash": []byte("complete\n")}}
)

// A Debian package is an ar archive whose members begin at even offsets, and its data have every
// folder before the files in it.
func TestDeb(t *testing.T) {
	deb, err := sample.deb("amd64", program, beside)
	require.NoError(t, err)
	again, err := sample.deb("amd64", program, beside)
	require.NoError(t, err)
	require.Equal(t, deb, again)

	rest, found := bytes.CutPrefix(deb, []byte("!<arch>\n"))
	require.True(t, found)
	members := map[string][]byte{}
	var order []string
	for len(rest) > 0 {
		header := string(rest[:60])
		require.Equal(t, "`\n", header[58:])
		size, err := strconv.Atoi(strings.TrimSpace(header[48:58]))
		require.NoError(t, err)
		name := strings.TrimSpace(header[:16])
		order, members[name] = append(order, name), rest[60:60+size]
		rest = rest[60+size+size%2:]
	}
	require.Equal(t, []string{"debian-binary", "control.tar.gz", "data.tar.gz"}, order)
	require.Equal(t, "2.0\n", string(members["debian-binary"]))
	control := unpack(t, members["control.tar.gz"])
	require.Contains(t, control["./control"], "Package: weir\nVersion: 1.2.3\nArchitecture: amd64\n")
	data := unpack(t, members["data.tar.gz"])
	require.Equal(t, string(program), data["./usr/bin/weir"])
	require.Equal(t, "complete\n", data["./usr/share/bash-completion/completions/weir"])
	for _, name := range []string{"man/man1/weir.1.gz", "doc/weir/changelog.gz"} {
		_, err := gzip.NewReader(strings.NewReader(data["./usr/share/"+name]))
		require.NoError(t, err, name)
	}
}

// unpack returns the files of an archive, and fails if one precedes its folder.
func unpack(t *testing.T, packed []byte) map[string]string {
	t.Helper()
	plain, err := gzip.NewReader(bytes.NewReader(packed))
	require.NoError(t, err)
	files := map[string]string{}
	for r := tar.NewReader(plain); ; {
		header, err := r.Next()
		if err == io.EOF {
			return files
		}
		require.NoError(t, err)
		content, err := io.ReadAll(r)
		require.NoError(t, err)
		files[header.Name] = string(content)
		if folder := filepath.Dir(strings.TrimSuffix(header.Name, "/")); folder != "." {
			require.Contains(t, files, "./"+folder+"/", header.Name)
		}
	}
}

// RECORD has the checksum and the size of every other file of a wheel, and the program can be
// run after it is unpacked.
func TestWheel(t *testing.T) {
	wheel, err := sample.wheel([]string{"one", "two"}, "weir", program, []file{{"weir/py.typed", 0o644, nil}}, sample.metadata([]byte("# Weir\n")), []byte("{}"), beside)
	require.NoError(t, err)
	packed, err := zip.NewReader(bytes.NewReader(wheel), int64(len(wheel)))
	require.NoError(t, err)
	lines, record := "", ""
	for _, f := range packed.File {
		r, err := f.Open()
		require.NoError(t, err)
		content, err := io.ReadAll(r)
		require.NoError(t, err)
		switch {
		case strings.HasSuffix(f.Name, "/RECORD"):
			record = string(content)
			lines += f.Name + ",,\n"
			continue
		case strings.HasSuffix(f.Name, "/WHEEL"):
			require.Contains(t, string(content), "Tag: py3-none-one\nTag: py3-none-two\n")
		case strings.HasSuffix(f.Name, "/METADATA"):
			require.True(t, strings.HasSuffix(string(content), "\nDescription-Content-Type: text/markdown; charset=UTF-8\n\n# Weir\n"), "PyPI shows the description")
		case strings.HasSuffix(f.Name, "scripts/weir"):
			require.Equal(t, os.FileMode(0o755), f.Mode())
		}
		sum := sha256.Sum256(content)
		lines += fmt.Sprintf("%s,sha256=%s,%d\n", f.Name, base64.RawURLEncoding.EncodeToString(sum[:]), len(content))
	}
	require.Equal(t, lines, record)
}

// A wheel has every file of the package weir.
func TestPython(t *testing.T) {
	modules, err := (&release{source: "../.."}).python()
	require.NoError(t, err)
	var names []string
	for _, f := range modules {
		names = append(names, f.name)
	}
	printed, err := command("../../python", nil, "git", "ls-files", "weir")
	require.NoError(t, err)
	want := strings.Fields(printed)
	require.Contains(t, want, "weir/py.typed")
	require.ElementsMatch(t, want, names)
}

// The wheel requires the oldest PyTorch that weir.schedule was tested on.
func TestWheelRequiresTestedPyTorch(t *testing.T) {
	module := []byte(testkit.Read(t, "../../python/weir/_pytorch.py"))
	tested := regexp.MustCompile(`(?m)^TESTED = "([\d.]+)", `).FindSubmatch(module)
	require.NotNil(t, tested)
	wheel, err := sample.wheel([]string{"one"}, "weir", program, nil, sample.metadata(nil), nil, beside)
	require.NoError(t, err)
	packed, err := zip.NewReader(bytes.NewReader(wheel), int64(len(wheel)))
	require.NoError(t, err)
	at := slices.IndexFunc(packed.File, func(f *zip.File) bool { return strings.HasSuffix(f.Name, "/METADATA") })
	r, err := packed.File[at].Open()
	require.NoError(t, err)
	metadata, err := io.ReadAll(r)
	require.NoError(t, err)
	require.Contains(t, string(metadata), fmt.Sprintf("Requires-Dist: torch>=%s; ", tested[1]))
}

// The notices have the license of Go, and of each module that the command contains.
func TestNotices(t *testing.T) {
	notices, err := (&release{source: "../.."}).notices()
	require.NoError(t, err)
	require.Contains(t, string(notices), "Go\n\nCopyright 2009 The Go Authors")
	require.Regexp(t, `\ngithub.com/alecthomas/kong v[\d.]+\n\nCopyright `, string(notices))
	require.NotContains(t, string(notices), mainModule)
}

// The recipes name the archives of the release, the formula with their checksums.
func TestRecipes(t *testing.T) {
	r := &release{version: "v1.2.3", output: t.TempDir()}
	for _, platform := range []string{"linux_amd64", "darwin_arm64"} {
		require.NoError(t, r.write("weir_1.2.3_"+platform+".tar.gz", []byte(platform)))
	}
	require.NoError(t, r.recipes())
	formula := testkit.Read(t, filepath.Join(r.output, "weir.rb"))
	for _, platform := range []string{"linux_amd64", "darwin_arm64"} {
		require.Regexp(t, `url "\S*/v1.2.3/weir_1.2.3_`+platform+`.tar.gz"\n *sha256 "`+fmt.Sprintf("%x", sha256.Sum256([]byte(platform)))+`"\n`, formula)
	}
	recipe := testkit.Read(t, filepath.Join(r.output, "Dockerfile"))
	require.Contains(t, recipe, "ADD weir_1.2.3_linux_${TARGETARCH}.tar.gz ")
}

// The bill of materials names each module that is in the binary, with its checksum. A binary of
// another version is refused.
func TestBill(t *testing.T) {
	binary, err := os.Executable()
	require.NoError(t, err)
	info, err := buildinfo.ReadFile(binary)
	require.NoError(t, err)
	own := &release{version: info.Main.Version, made: sample.made}
	text, err := own.bill(binary)
	require.NoError(t, err)
	var bill struct {
		Components []struct {
			Name, Version string
			Properties    []struct{ Name, Value string }
		}
	}
	require.NoError(t, json.Unmarshal(text, &bill))
	require.Len(t, bill.Components, 1+len(info.Deps), "Go itself comes first")
	for i, dep := range info.Deps {
		one := bill.Components[1+i]
		require.Equal(t, dep.Path+" "+dep.Version, one.Name+" "+one.Version)
		require.Equal(t, dep.Sum, one.Properties[0].Value)
	}
	_, err = sample.bill(binary)
	require.ErrorContains(t, err, "v1.2.3")
}

// A tag must be a version, and nested modules must require it under a tag of their own. The proxy
// then has both modules, and SHA256SUMS has all files.
func TestTags(t *testing.T) {
	require.ErrorContains(t, run(filepath.Join(t.TempDir(), "dist"), "v1.2", nil), "v0.1.0")
	source := t.TempDir()
	git := func(args ...string) {
		t.Helper()
		_, err := command(source, nil, "git", append([]string{"-c", "user.name=a", "-c", "user.email=a@localhost"}, args...)...)
		require.NoError(t, err)
	}
	for name, text := range map[string]string{
		"go.mod":        "module " + mainModule + "\n\ngo 1.26\n",
		"LICENSE":       string(license),
		"nested/go.mod": "module " + mainModule + "/nested\n\ngo 1.26\n\nrequire " + mainModule + " v0.0.0\n\nreplace " + mainModule + " => ../\n",
		"tests/go.mod":  "module " + mainModule + "/tests\n\ngo 1.26\n",
	} {
		path := filepath.Join(source, name)
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o777))
		require.NoError(t, os.WriteFile(path, []byte(text), 0o666))
	}
	git("init", "-q")
	git("add", "-A")
	git("commit", "-qm", "one")
	git("tag", "v1.2.3")
	r := &release{version: "v1.2.3", source: source, output: t.TempDir(), made: sample.made}
	require.ErrorContains(t, r.proxy(), "-prepare v1.2.3")
	require.ErrorContains(t, r.checkNested("nested", []byte("module "+mainModule+"/nested\n")), "-prepare v1.2.3", "without a requirement")
	require.NoError(t, prepare(source, "v1.2.3"))
	git("commit", "-qam", "two")
	git("tag", "-f", "v1.2.3")
	require.ErrorContains(t, r.proxy(), "the nested module needs the tag nested/v1.2.3")
	git("tag", "nested/v1.2.3")
	r.sums = nil // of the failed attempts
	require.NoError(t, r.proxy())
	for name, has := range map[string]bool{"": true, "/nested": true, "/tests": false} {
		_, err := os.Stat(filepath.Join(r.output, "proxy", mainModule+name, "@v", "v1.2.3.zip"))
		require.Equal(t, has, err == nil, name)
	}

	require.NoError(t, r.checksums())
	sums := testkit.Read(t, filepath.Join(r.output, "SHA256SUMS"))
	var want string
	for _, name := range []string{mainModule, mainModule + "/nested"} {
		for _, file := range []string{"list", "v1.2.3.info", "v1.2.3.mod", "v1.2.3.zip"} {
			path := "proxy/" + name + "/@v/" + file
			content := []byte(testkit.Read(t, filepath.Join(r.output, path)))
			want += fmt.Sprintf("%x  %s\n", sha256.Sum256(content), path)
		}
	}
	require.Equal(t, want, sums, "of every file, by name")
}
