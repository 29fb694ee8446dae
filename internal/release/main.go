package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"flag"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/weir-ml/weir/internal/release/site"
)

const mainModule = "github.com/weir-ml/weir"

// release is a version whose packages are being made.
type release struct {
	version string    // with its v
	source  string    // a clean clone at the tag
	output  string    // the folder of the packages
	made    time.Time // the time of the commit
	sums    []string  // of the written files
}

func main() {
	version := flag.String("prepare", "", "let the nested modules require this version, in this tree, and end")
	output := flag.String("output", "dist", "folder for the packages; it must not exist")
	only := flag.String("platforms", strings.Join(slices.Sorted(maps.Keys(platforms)), ","), "platforms to build for")
	flag.Parse()
	var err error
	switch {
	case *version != "" && flag.NArg() == 0:
		err = prepare(".", *version)
	case *version == "" && flag.NArg() == 1:
		err = run(*output, flag.Arg(0), strings.Split(*only, ","))
	default:
		err = errors.New("give -prepare VERSION, or a tag")
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "release:", err)
		os.Exit(1)
	}
}

// run makes the packages of a tag of the repository in the current folder.
func run(output, tag string, chosen []string) error {
	if !regexp.MustCompile(`^v\d+\.\d+\.\d+$`).MatchString(tag) {
		return fmt.Errorf("%q is not a version: give a tag such as v0.1.0", tag)
	}
	output, err := filepath.Abs(output)
	if err != nil {
		return err
	}
	if err := os.Mkdir(output, 0o777); err != nil {
		return err
	}
	scratch, err := os.MkdirTemp("", "weir-release-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(scratch)
	r := &release{version: tag, source: filepath.Join(scratch, "source"), output: output}
	if _, err := command("", nil, "git", "-c", "advice.detachedHead=false", "clone", "-q", "--shared", "--branch", tag, ".", r.source); err != nil {
		return err
	}
	printed, err := command(r.source, nil, "git", "log", "-1", "--format=%ct")
	if err != nil {
		return err
	}
	seconds, err := strconv.ParseInt(strings.TrimSpace(printed), 10, 64)
	if err != nil {
		return err
	}
	r.made = time.Unix(seconds, 0).UTC()

	if err := r.proxy(); err != nil {
		return err
	}
	binary, err := r.build(scratch, runtime.GOOS+"/"+runtime.GOARCH)
	if err != nil {
		return err
	}
	e, err := r.extras(binary)
	if err != nil {
		return err
	}
	modules, err := r.python()
	if err != nil {
		return err
	}
	description, err := os.ReadFile(filepath.Join(r.source, "python", "README.md"))
	if err != nil {
		return err
	}
	metadata := r.metadata(description)
	sources, err := r.sdist(modules, metadata, e.license)
	if err != nil {
		return err
	}
	if err := r.write(fmt.Sprintf("weir_ml-%s.tar.gz", r.number()), sources); err != nil {
		return err
	}
	for _, platform := range chosen {
		if err := r.packages(platform, scratch, modules, metadata, e); err != nil {
			return fmt.Errorf("%s: %w", platform, err)
		}
	}
	if err := r.recipes(); err != nil {
		return err
	}
	if err := r.page(filepath.Join(scratch, "page")); err != nil {
		return err
	}
	return r.checksums()
}

// number returns the version without its v.
func (r *release) number() string { return r.version[1:] }

// build builds the command for a platform, unless it has been built, and returns the path of the binary.
func (r *release) build(scratch, platform string) (string, error) {
	system, processor, _ := strings.Cut(platform, "/")
	binary := filepath.Join(scratch, system, processor, "weir")
	if system == "windows" {
		binary += ".exe"
	}
	if _, err := os.Stat(binary); err == nil {
		return binary, nil
	}
	env := []string{"GOOS=" + system, "GOARCH=" + processor, "CGO_ENABLED=0"}
	_, err := command(r.source, env, "go", "build", "-trimpath", "-buildvcs=true", "-ldflags=-s -w", "-o", binary, "./cmd/weir")
	return binary, err
}

// packages writes the packages of the command for a platform. Wheels have the modules and the metadata.
func (r *release) packages(platform, scratch string, modules []file, metadata []byte, e *extras) error {
	system, processor, _ := strings.Cut(platform, "/")
	binary, err := r.build(scratch, platform)
	if err != nil {
		return err
	}
	name := filepath.Base(binary)
	program, err := os.ReadFile(binary)
	if err != nil {
		return err
	}
	parts, err := r.bill(binary)
	if err != nil {
		return err
	}
	base := fmt.Sprintf("weir_%s_%s_%s", r.number(), system, processor)
	if err := r.write(base+".cdx.json", parts); err != nil {
		return err
	}
	pack, ending := r.tarball, ".tar.gz"
	if system == "windows" {
		pack, ending = r.zipped, ".zip"
	}
	archive, err := pack(append([]file{{name, 0o755, program}}, e.files()...))
	if err != nil {
		return err
	}
	if err := r.write(base+ending, archive); err != nil {
		return err
	}
	if system == "linux" {
		deb, err := r.deb(processor, program, e)
		if err != nil {
			return err
		}
		if err := r.write(fmt.Sprintf("weir_%s_%s.deb", r.number(), processor), deb); err != nil {
			return err
		}
	}
	tags := platforms[platform]
	wheel, err := r.wheel(tags, name, program, modules, metadata, parts, e)
	if err != nil {
		return err
	}
	return r.write(fmt.Sprintf("weir_ml-%s-py3-none-%s.whl", r.number(), strings.Join(tags, ".")), wheel)
}

// page writes the page that runs the command in a browser, as an archive.
func (r *release) page(folder string) error {
	if err := site.Write(context.Background(), folder, r.source); err != nil {
		return err
	}
	entries, err := os.ReadDir(folder)
	if err != nil {
		return err
	}
	var files []file
	for _, entry := range entries {
		content, err := os.ReadFile(filepath.Join(folder, entry.Name()))
		if err != nil {
			return err
		}
		files = append(files, file{"weir-page/" + entry.Name(), 0o644, content})
	}
	archive, err := r.tarball(append([]file{{"weir-page/", 0o755, nil}}, files...))
	if err != nil {
		return err
	}
	return r.write(fmt.Sprintf("weir_%s_page.tar.gz", r.number()), archive)
}

// checksums writes SHA256SUMS, in the form of sha256sum.
func (r *release) checksums() error {
	slices.SortFunc(r.sums, func(a, b string) int { return strings.Compare(a[64:], b[64:]) })
	return r.write("SHA256SUMS", []byte(strings.Join(r.sums, "")))
}

// write writes a file of the release, and adds its checksum.
func (r *release) write(name string, content []byte) error {
	r.sums = append(r.sums, fmt.Sprintf("%x  %s\n", sha256.Sum256(content), name))
	path := filepath.Join(r.output, filepath.FromSlash(name))
	if err := os.MkdirAll(filepath.Dir(path), 0o777); err != nil {
		return err
	}
	return os.WriteFile(path, content, 0o666)
}

// command runs a program in a folder and returns its output. The variables in env are added to the environment.
func command(folder string, env []string, name string, args ...string) (string, error) {
	var stderr bytes.Buffer
	cmd := exec.Command(name, args...)
	cmd.Dir, cmd.Stderr = folder, &stderr
	cmd.Env = append(os.Environ(), env...)
	printed, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("%s %s: %w\n%s", name, strings.Join(args, " "), err, bytes.TrimSpace(stderr.Bytes()))
	}
	return string(printed), nil
}
