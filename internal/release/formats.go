package main

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"crypto/md5"
	"crypto/sha256"
	"debug/buildinfo"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"runtime/debug"
	"slices"
	"strings"
	"time"
)

const (
	maintainer = "The Weir authors <weir@localhost>"
	summary    = "Pipeline schedules and memory lifetimes for training: made, proven, simulated, drawn, and explained."
)

// file is a file of an archive, or a folder if its name ends in a slash.
type file struct {
	name    string
	mode    fs.FileMode
	content []byte
}

// tarball returns a compressed tar archive.
func (r *release) tarball(files []file) ([]byte, error) {
	var packed bytes.Buffer
	w := tar.NewWriter(&packed)
	for _, f := range files {
		header := &tar.Header{Name: f.name, Mode: int64(f.mode), Size: int64(len(f.content)), ModTime: r.made, Uname: "root", Gname: "root"}
		if err := w.WriteHeader(header); err != nil {
			return nil, err
		}
		if _, err := w.Write(f.content); err != nil {
			return nil, err
		}
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	return compressed(packed.Bytes())
}

// compressed returns the content as a gzip file.
func compressed(content []byte) ([]byte, error) {
	var packed bytes.Buffer
	w, err := gzip.NewWriterLevel(&packed, gzip.BestCompression)
	if err != nil {
		return nil, err
	}
	if _, err := w.Write(content); err != nil {
		return nil, err
	}
	err = w.Close()
	return packed.Bytes(), err
}

// zipped returns a zip archive.
func (r *release) zipped(files []file) ([]byte, error) {
	var packed bytes.Buffer
	w := zip.NewWriter(&packed)
	for _, f := range files {
		header := &zip.FileHeader{Name: f.name, Method: zip.Deflate, Modified: r.made}
		header.SetMode(f.mode)
		part, err := w.CreateHeader(header)
		if err != nil {
			return nil, err
		}
		if _, err := part.Write(f.content); err != nil {
			return nil, err
		}
	}
	err := w.Close()
	return packed.Bytes(), err
}

// deb returns a Debian package: an ar archive of a version, a control and a data archive.
func (r *release) deb(processor string, program []byte, e *extras) ([]byte, error) {
	changes := fmt.Sprintf("weir (%s) unstable; urgency=medium\n\n  * The changes are in https://%s/blob/%s/CHANGELOG.md\n\n -- %s  %s\n",
		r.number(), mainModule, r.version, maintainer, r.made.Format(time.RFC1123Z))
	copyright := fmt.Sprintf("The Weir authors wrote this package, whose source is https://%s.\n\nCopyright: The Weir authors\n\n"+
		"Its license is the Apache License, version 2.0, in /usr/share/common-licenses/Apache-2.0.\nThe program contains the following modules.\n\n%s", mainModule, e.notices)
	files := []file{
		{"usr/bin/weir", 0o755, program}, {"usr/share/doc/weir/copyright", 0o644, []byte(copyright)},
		{"usr/share/lintian/overrides/weir", 0o644, []byte("# Go links statically.\nweir: statically-linked-binary\n")},
	}
	for name, content := range map[string][]byte{"doc/weir/changelog.gz": []byte(changes), "man/man1/weir.1.gz": e.manual} {
		small, err := compressed(content)
		if err != nil {
			return nil, err
		}
		files = append(files, file{"usr/share/" + name, 0o644, small})
	}
	for shell, name := range map[string]string{"bash": "bash-completion/completions/weir", "zsh": "zsh/vendor-completions/_weir", "fish": "fish/vendor_completions.d/weir.fish"} {
		files = append(files, file{"usr/share/" + name, 0o644, e.completions[shell]})
	}
	slices.SortFunc(files, func(a, b file) int { return strings.Compare(a.name, b.name) })
	size, sums, folders := 0, "", map[string]file{"./": {"./", 0o755, nil}}
	for i, f := range files {
		for folder := path.Dir(f.name); folder != "."; folder = path.Dir(folder) {
			folders["./"+folder+"/"] = file{"./" + folder + "/", 0o755, nil}
		}
		files[i].name, size = "./"+f.name, size+len(f.content)
		sums += fmt.Sprintf("%x  %s\n", md5.Sum(f.content), f.name)
	}
	files = append(files, slices.Collect(maps.Values(folders))...)
	slices.SortFunc(files, func(a, b file) int { return strings.Compare(a.name, b.name) })
	data, err := r.tarball(files)
	if err != nil {
		return nil, err
	}
	control, err := r.tarball([]file{{"./", 0o755, nil}, {"./md5sums", 0o644, []byte(sums)}, {"./control", 0o644, fmt.Appendf(nil, `Package: weir
Version: %s
Architecture: %s
Maintainer: %s
Installed-Size: %d
Section: science
Priority: optional
Homepage: https://%s
Description: pipeline schedules and memory lifetimes for training
 Chooses, proves, simulates and draws the schedules of pipeline-parallel
 training, says whether a training run fits into memory, and names the rank
 that hangs a job and the line of code that keeps memory.
`, r.number(), processor, maintainer, size>>10, mainModule)}})
	if err != nil {
		return nil, err
	}
	packed := bytes.NewBufferString("!<arch>\n")
	for _, member := range []file{{"debian-binary", 0, []byte("2.0\n")}, {"control.tar.gz", 0, control}, {"data.tar.gz", 0, data}} {
		fmt.Fprintf(packed, "%-16s%-12d%-6d%-6d%-8s%-10d`\n", member.name, r.made.Unix(), 0, 0, "100644", len(member.content))
		packed.Write(member.content)
		if len(member.content)%2 == 1 {
			packed.WriteByte('\n')
		}
	}
	return packed.Bytes(), nil
}

// platforms maps each GOOS/GOARCH of a release to its wheel platform tags. The binaries for Linux are
// static, so they run with glibc and with musl. macOS 12 is the oldest version that Go supports.
var platforms = map[string][]string{
	"linux/amd64":   {"manylinux_2_17_x86_64", "musllinux_1_1_x86_64"},
	"linux/arm64":   {"manylinux_2_17_aarch64", "musllinux_1_1_aarch64"},
	"darwin/amd64":  {"macosx_12_0_x86_64"},
	"darwin/arm64":  {"macosx_12_0_arm64"},
	"windows/amd64": {"win_amd64"},
	"windows/arm64": {"win_arm64"},
}

// python returns the files of the package for PyTorch, as a wheel contains them.
func (r *release) python() (modules []file, err error) {
	folder := filepath.Join(r.source, "python")
	err = filepath.WalkDir(filepath.Join(folder, "weir"), func(path string, entry fs.DirEntry, err error) error {
		if err != nil || filepath.Ext(path) != ".py" && filepath.Ext(path) != ".typed" {
			return err
		}
		content, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		name, err := filepath.Rel(folder, path)
		modules = append(modules, file{filepath.ToSlash(name), 0o644, content})
		return err
	})
	return modules, err
}

// notBuilt matches the files that a source distribution leaves out.
var notBuilt = regexp.MustCompile(`^(\.|docs/|examples/|python/|tests/)|_test\.go$|/testdata/`)

// sdist returns the source distribution: the package for PyTorch, the Go code of the command without
// its tests, and a backend that builds a wheel of both.
func (r *release) sdist(modules []file, metadata, license []byte) ([]byte, error) {
	files := append(slices.Clone(modules), file{"PKG-INFO", 0o644, metadata}, file{"LICENSE", 0o644, license})
	for _, name := range []string{"README.md", "sdist/pyproject.toml", "sdist/backend.py"} {
		content, err := os.ReadFile(filepath.Join(r.source, "python", name))
		if err != nil {
			return nil, err
		}
		files = append(files, file{path.Base(name), 0o644, content})
	}
	printed, err := command(r.source, nil, "git", "ls-files")
	if err != nil {
		return nil, err
	}
	for name := range strings.FieldsSeq(printed) {
		if notBuilt.MatchString(name) {
			continue
		}
		content, err := os.ReadFile(filepath.Join(r.source, name))
		if err != nil {
			return nil, err
		}
		files = append(files, file{"source/" + name, 0o644, content})
	}
	for i := range files {
		files[i].name = fmt.Sprintf("weir_ml-%s/%s", r.number(), files[i].name)
	}
	return r.tarball(files)
}

// metadata returns the METADATA file of the wheel and of the source distribution. The description, in
// Markdown, becomes the project's page on PyPI.
func (r *release) metadata(description []byte) []byte {
	return fmt.Appendf(nil, `Metadata-Version: 2.4
Name: weir-ml
Version: %s
Summary: %s
License-Expression: Apache-2.0
License-File: LICENSE
Project-URL: Source, https://%s
Requires-Python: >=3.8
Provides-Extra: torch
Requires-Dist: torch>=2.14; extra == "torch"
Description-Content-Type: text/markdown; charset=UTF-8

%s`, r.number(), summary, mainModule, description)
}

// wheel returns a package for pip, with the binary as a script and the package for PyTorch.
func (r *release) wheel(tags []string, name string, program []byte, modules []file, metadata, parts []byte, e *extras) ([]byte, error) {
	info := fmt.Sprintf("weir_ml-%s.dist-info/", r.number())
	wheel := "Wheel-Version: 1.0\nGenerator: weir\nRoot-Is-Purelib: false\n"
	for _, tag := range tags {
		wheel += "Tag: py3-none-" + tag + "\n"
	}
	files := append(slices.Clone(modules),
		file{fmt.Sprintf("weir_ml-%s.data/scripts/%s", r.number(), name), 0o755, program},
		file{info + "licenses/LICENSE", 0o644, e.license},
		file{info + "licenses/NOTICES", 0o644, e.notices},
		file{info + "sboms/weir.cdx.json", 0o644, parts},
		file{info + "METADATA", 0o644, bytes.Replace(metadata, []byte("File: LICENSE\n"), []byte("File: LICENSE\nLicense-File: NOTICES\n"), 1)},
		file{info + "WHEEL", 0o644, []byte(wheel)},
	)
	var record bytes.Buffer
	for _, f := range files {
		sum := sha256.Sum256(f.content)
		fmt.Fprintf(&record, "%s,sha256=%s,%d\n", f.name, base64.RawURLEncoding.EncodeToString(sum[:]), len(f.content))
	}
	fmt.Fprintf(&record, "%sRECORD,,\n", info)
	return r.zipped(append(files, file{info + "RECORD", 0o644, record.Bytes()}))
}

// bill returns a software bill of materials of a binary, in CycloneDX's JSON, made from the build information
// in the binary.
func (r *release) bill(binary string) ([]byte, error) {
	info, err := buildinfo.ReadFile(binary)
	if err != nil {
		return nil, err
	}
	if info.Main.Version != r.version {
		return nil, fmt.Errorf("the binary says that it is %s, not %s: is the tag on this commit the only version?", info.Main.Version, r.version)
	}
	type property struct {
		Name  string `json:"name"`
		Value string `json:"value"`
	}
	type component struct {
		Type       string     `json:"type"`
		Ref        string     `json:"bom-ref"`
		Name       string     `json:"name"`
		Version    string     `json:"version"`
		URL        string     `json:"purl"`
		Properties []property `json:"properties,omitempty"`
	}
	part := func(kind string, m *debug.Module) component {
		url := "pkg:golang/" + m.Path + "@" + m.Version
		one := component{Type: kind, Ref: url, Name: m.Path, Version: m.Version, URL: url}
		if m.Sum != "" {
			one.Properties = []property{{"go.sum", m.Sum}}
		}
		return one
	}
	main := part("application", &info.Main)
	for _, s := range info.Settings {
		main.Properties = append(main.Properties, property{"go.build." + s.Key, s.Value})
	}
	parts := []component{part("library", &debug.Module{Path: "std", Version: info.GoVersion})}
	for _, m := range info.Deps {
		parts = append(parts, part("library", m))
	}
	refs := []string{}
	for _, p := range parts {
		refs = append(refs, p.Ref)
	}
	return json.MarshalIndent(map[string]any{
		"bomFormat": "CycloneDX", "specVersion": "1.6", "version": 1,
		"metadata":     map[string]any{"timestamp": r.made.Format(time.RFC3339), "component": main},
		"components":   parts,
		"dependencies": []map[string]any{{"ref": main.Ref, "dependsOn": refs}},
	}, "", "  ")
}
