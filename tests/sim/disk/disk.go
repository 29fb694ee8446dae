// Package disk replaces package os in simulations of trainer/checkpoint and trainer/atomicfile. It
// is a file system in memory that fails and loses power as determined by a seed. After a loss of
// power, the bytes of a file and the names in a folder that were not flushed may be present,
// absent, or partly present. It has the functions that those packages call; a test builds them
// with this package instead of os.
package disk

import (
	"errors"
	"io"
	"io/fs"
	"maps"
	"math/rand/v2"
	"os"
	"path"
	"slices"
	"strings"
	"syscall"
	"time"
)

// Identifiers of package os.
const (
	O_WRONLY = os.O_WRONLY
	O_CREATE = os.O_CREATE
	O_EXCL   = os.O_EXCL
)

var (
	ErrNotExist    = fs.ErrNotExist
	ErrClosed      = fs.ErrClosed
	Stdout, Stderr = &File{name: "stdout"}, &File{name: "stderr"}
	ErrLocked      = errors.New("locked")
)

type (
	FileMode  = fs.FileMode
	FileInfo  = fs.FileInfo
	LinkError = os.LinkError
)

// Disk is a disk. The functions of this package use the disk of the last Mount.
type Disk struct {
	random *rand.Rand
	root   *node
	calls  int
	// At is the number of the call, from 1, at which Fault occurs; 0 means none.
	At      int
	Fault   Fault
	dead    bool
	Ignores string // files and folders with this prefix are not flushed: a planted bug
}

// Fault is a fault of a call.
type Fault int

const (
	Fails   Fault = iota // the call fails with EIO, a write in its middle
	Full                 // the same with ENOSPC
	Kills                // the process ends
	NoPower              // the process ends, and unflushed data may be lost
	NumFaults
)

// Killed is the panic value of a call that ends the process.
type Killed struct{}

// node is a file or a folder.
type node struct {
	folder  bool
	mode    fs.FileMode
	data    []byte
	flushed []byte // contents on the disk
	names   map[string]*node
	kept    map[string]*node // contents on the disk
	pending []change         // of names, in order
	locked  *File
}

// change is a change of a folder: one name is removed, and one is added.
type change struct {
	gone, come string
	node       *node
}

func newFolder() *node {
	return &node{folder: true, mode: fs.ModeDir | 0o777, names: map[string]*node{}, kept: map[string]*node{}}
}

func (n *node) change(c change) {
	c.apply(n.names)
	n.pending = append(n.pending, c)
}

func (c change) apply(names map[string]*node) {
	if c.gone != "" {
		delete(names, c.gone)
	}
	if c.come != "" {
		names[c.come] = c.node
	}
}

var mounted *Disk

// Mount mounts an empty disk.
func Mount(random *rand.Rand) *Disk {
	mounted = &Disk{random: random, root: newFolder()}
	return mounted
}

// Calls returns the number of calls since Reset.
func (d *Disk) Calls() int { return d.calls }

// Reset restarts the count of calls, and removes the fault.
func (d *Disk) Reset() { d.calls, d.At = 0, 0 }

// Restart releases all locks and calls Reset. After a loss of power it decides the contents of the
// disk.
func (d *Disk) Restart() {
	if d.dead && d.Fault == NoPower {
		d.lose(d.root)
	}
	d.dead = false
	d.unlock(d.root)
	d.Reset()
}

func (d *Disk) unlock(n *node) {
	n.locked = nil
	for _, child := range n.names {
		d.unlock(child)
	}
}

// lose discards some of the unflushed data: of a folder, the last changes or a random subset; of
// a file, all changes, the last bytes, the values of the last bytes, or nothing.
func (d *Disk) lose(n *node) {
	if !n.folder {
		if string(n.data) != string(n.flushed) {
			switch d.random.IntN(4) {
			case 0:
				n.data = slices.Clone(n.flushed)
			case 1:
				n.data = n.data[:d.random.IntN(len(n.data)+1)]
			case 2: // its length was written before its bytes
				clear(n.data[d.random.IntN(len(n.data)+1):])
			}
		}
		n.flushed = slices.Clone(n.data)
		return
	}
	first, any := d.random.IntN(len(n.pending)+1), d.random.IntN(2) == 0
	for i, c := range n.pending {
		if any && d.random.IntN(2) == 0 || !any && i < first {
			c.apply(n.kept)
		}
	}
	n.names, n.pending = maps.Clone(n.kept), nil
	for _, name := range slices.Sorted(maps.Keys(n.names)) {
		d.lose(n.names[name])
	}
}

// call counts a call that opens, closes, lists, flushes or changes something, and fails or ends the
// process if the fault is due. After the end of the process it returns ENODEV.
func (d *Disk) call(op, name string) error {
	if d.dead {
		return &fs.PathError{Op: op, Path: name, Err: syscall.ENODEV}
	}
	if d.calls++; d.calls != d.At {
		return nil
	}
	switch d.Fault {
	case Kills, NoPower:
		d.dead = true
		panic(Killed{})
	case Full:
		return &fs.PathError{Op: op, Path: name, Err: syscall.ENOSPC}
	}
	return &fs.PathError{Op: op, Path: name, Err: syscall.EIO}
}

// find returns the node at a path, its folder, and its name there. n is nil if the path does not
// exist; in is also nil if its folder does not exist, and for the root.
func (d *Disk) find(name string) (n, in *node, base string) {
	n = d.root
	for part := range strings.SplitSeq(strings.Trim(path.Clean(name), "/"), "/") {
		if part == "." || part == "" {
			continue
		}
		if n == nil || !n.folder {
			return nil, nil, part
		}
		in, n, base = n, n.names[part], part
	}
	return n, in, base
}

// File is an open file or folder.
type File struct {
	name string
	node *node
	at   int64
}

func missing(op, name string) error { return &fs.PathError{Op: op, Path: name, Err: fs.ErrNotExist} }

// Open opens a file for reading, or a folder.
func Open(name string) (*File, error) { return OpenFile(name, 0, 0) }

// OpenFile opens or creates a file.
func OpenFile(name string, flag int, mode fs.FileMode) (*File, error) {
	if err := mounted.call("open", name); err != nil {
		return nil, err
	}
	n, in, base := mounted.find(name)
	switch {
	case n != nil && flag&O_EXCL != 0:
		return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrExist}
	case n == nil && (flag&O_CREATE == 0 || in == nil):
		return nil, missing("open", name)
	case n == nil:
		n = &node{mode: mode}
		in.change(change{come: base, node: n})
	}
	return &File{name: name, node: n}, nil
}

// Lock locks the file until it is closed. It returns ErrLocked if another File has locked it.
func (f *File) Lock() error {
	if f.node.locked != nil && f.node.locked != f {
		return ErrLocked
	}
	f.node.locked = f
	return nil
}

func (f *File) Name() string { return f.name }

func (f *File) Write(p []byte) (int, error) {
	if err := mounted.call("write", f.name); err != nil {
		n := 0
		if !mounted.dead {
			n = mounted.random.IntN(len(p) + 1)
			f.node.data = append(f.node.data, p[:n]...)
		}
		return n, err
	}
	f.node.data = append(f.node.data, p...)
	return len(p), nil
}

func (f *File) ReadAt(p []byte, off int64) (int, error) {
	if off >= int64(len(f.node.data)) {
		return 0, io.EOF
	}
	n := copy(p, f.node.data[off:])
	if n < len(p) {
		return n, io.EOF
	}
	return n, nil
}

func (f *File) Read(p []byte) (int, error) {
	n, err := f.ReadAt(p, f.at)
	if f.at += int64(n); n > 0 {
		err = nil
	}
	return n, err
}

// Sync flushes. If it fails, the data may never be flushed.
func (f *File) Sync() error {
	if err := mounted.call("sync", f.name); err != nil {
		return err
	}
	if mounted.Ignores != "" && strings.HasPrefix(strings.TrimPrefix(path.Base(f.name), "."), mounted.Ignores) {
		return nil
	}
	n := f.node
	for _, c := range n.pending {
		c.apply(n.kept)
	}
	n.flushed, n.pending = slices.Clone(n.data), nil
	return nil
}

func (f *File) Close() error {
	if f.node.locked == f {
		f.node.locked = nil
	}
	return mounted.call("close", f.name)
}

func (f *File) Chmod(mode fs.FileMode) error {
	f.node.mode = mode
	return mounted.call("chmod", f.name)
}

func (f *File) Stat() (fs.FileInfo, error) {
	if f.node == nil {
		return nil, missing("stat", f.name)
	}
	return info{path.Base(f.name), f.node}, nil
}

// info implements FileInfo.
type info struct {
	name string
	node *node
}

func (i info) Name() string       { return i.name }
func (i info) Size() int64        { return int64(len(i.node.data)) }
func (i info) Mode() fs.FileMode  { return i.node.mode }
func (i info) ModTime() time.Time { return time.Time{} }
func (i info) IsDir() bool        { return i.node.folder }
func (i info) Sys() any           { return nil }

// SameFile reports whether two infos describe the same file.
func SameFile(a, b fs.FileInfo) bool { return a.(info).node == b.(info).node }

// Stat returns the info of a file or a folder.
func Stat(name string) (fs.FileInfo, error) {
	n, _, _ := mounted.find(name)
	if n == nil {
		return nil, missing("stat", name)
	}
	return info{path.Base(name), n}, nil
}

// Lstat is Stat, because there are no links.
func Lstat(name string) (fs.FileInfo, error) { return Stat(name) }

// Readlink returns an error, because there are no links.
func Readlink(name string) (string, error) {
	return "", &fs.PathError{Op: "readlink", Path: name, Err: fs.ErrInvalid}
}

// ReadDir lists a folder by name.
func ReadDir(name string) ([]fs.DirEntry, error) {
	if err := mounted.call("readdir", name); err != nil {
		return nil, err
	}
	n, _, _ := mounted.find(name)
	if n == nil || !n.folder {
		return nil, missing("readdir", name)
	}
	var all []fs.DirEntry
	for _, base := range slices.Sorted(maps.Keys(n.names)) {
		all = append(all, fs.FileInfoToDirEntry(info{base, n.names[base]}))
	}
	return all, nil
}

// Rename renames a file within its folder.
func Rename(from, to string) error {
	err := mounted.call("rename", from)
	n, in, base := mounted.find(from)
	if err == nil && n == nil {
		err = fs.ErrNotExist
	}
	if err != nil {
		if at, ok := errors.AsType[*fs.PathError](err); ok {
			err = at.Err
		}
		return &os.LinkError{Op: "rename", Old: from, New: to, Err: err}
	}
	in.change(change{base, path.Base(to), n})
	return nil
}

// Remove removes a file, or an empty folder.
func Remove(name string) error {
	if err := mounted.call("remove", name); err != nil {
		return err
	}
	n, in, base := mounted.find(name)
	if n == nil {
		return missing("remove", name)
	}
	if n.folder && len(n.names) > 0 {
		return &fs.PathError{Op: "remove", Path: name, Err: syscall.ENOTEMPTY}
	}
	in.change(change{gone: base})
	return nil
}

// Mkdir creates a folder.
func Mkdir(name string, _ fs.FileMode) error {
	if err := mounted.call("mkdir", name); err != nil {
		return err
	}
	n, in, base := mounted.find(name)
	if n != nil {
		return &fs.PathError{Op: "mkdir", Path: name, Err: fs.ErrExist}
	}
	in.change(change{come: base, node: newFolder()})
	return nil
}

// MkdirAll creates a folder and its parents.
func MkdirAll(name string, mode fs.FileMode) error {
	if n, _, _ := mounted.find(name); n != nil {
		return nil
	}
	if parent := path.Dir(name); parent != name {
		if err := MkdirAll(parent, mode); err != nil {
			return err
		}
	}
	return Mkdir(name, mode)
}
