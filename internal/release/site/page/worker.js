"use strict";
// One run of the command. A message brings the compiled module, the arguments and the files.
// Messages go back with what the command prints, with the part of its input that it has read,
// and at the end with its exit status and the files that it made.

const readAhead = 1 << 20; // bytes of an input that are read at once
const files = new Map(); // by name
const open = new Map(); // by descriptor
let last = 2; // descriptor or inode
let total = 0; // bytes of all inputs
let done = 0; // bytes of the inputs that were read, each counted once

const failure = (code) => Object.assign(new Error(code), { code });

// A Node is a file. The bytes of an input stay where the browser has them; a part is in memory.
class Node {
  constructor(blob) {
    Object.assign(this, { blob, ino: ++last, start: 0, bytes: new Uint8Array(0), size: blob ? blob.size : 0, reached: 0 });
  }
  read(into, at) {
    if (at >= this.size) return 0;
    if (this.blob && (at < this.start || at >= this.start + this.bytes.length)) {
      this.start = at;
      this.bytes = new Uint8Array(new FileReaderSync().readAsArrayBuffer(this.blob.slice(at, at + readAhead)));
      const end = at + this.bytes.length;
      done += Math.max(0, end - this.reached);
      this.reached = Math.max(this.reached, end);
      postMessage({ progress: Math.min(1, done / total) });
    }
    const part = this.bytes.subarray(at - this.start, Math.min(this.size - this.start, at - this.start + into.length));
    into.set(part);
    return part.length;
  }
  write(bytes, at) {
    if (this.blob) throw failure("EACCES");
    this.truncate(Math.max(this.size, at + bytes.length));
    this.bytes.set(bytes, at);
    return bytes.length;
  }
  truncate(size) {
    if (size > this.bytes.length) {
      const larger = new Uint8Array(Math.max(size, 2 * this.bytes.length));
      larger.set(this.bytes.subarray(0, this.size));
      this.bytes = larger;
    } else if (size < this.size) this.bytes.fill(0, size, this.size);
    this.size = size;
  }
}

const root = { ino: 1, size: 0, folder: true };
const nameOf = (path) => path.split("/").filter((part) => part && part !== ".").join("/");
const find = (path) => {
  const node = nameOf(path) === "" ? root : files.get(nameOf(path));
  if (!node) throw failure("ENOENT");
  return node;
};
const at = (fd) => open.get(fd) ?? (() => { throw failure("EBADF"); })();
const stat = (node) => ({
  dev: 1, ino: node.ino, mode: node.folder ? 0o40755 : 0o100644, nlink: 1, uid: 0, gid: 0, rdev: 0,
  size: node.size, blksize: 4096, blocks: 0, atimeMs: 0, mtimeMs: 0, ctimeMs: 0, isDirectory: () => !!node.folder,
});
const constants = { O_WRONLY: 1, O_RDWR: 2, O_CREAT: 64, O_EXCL: 128, O_TRUNC: 512, O_APPEND: 1024, O_DIRECTORY: 65536 };

// The calls of Go's package syscall, as in Node's package fs, without their callbacks.
const calls = {
  open(path, flags) {
    let node = nameOf(path) === "" ? root : files.get(nameOf(path));
    if (node && flags & constants.O_CREAT && flags & constants.O_EXCL) throw failure("EEXIST");
    if (node?.folder && flags & (constants.O_WRONLY | constants.O_RDWR)) throw failure("EISDIR");
    if (node && !node.folder && flags & constants.O_DIRECTORY) throw failure("ENOTDIR");
    if (!node && !(flags & constants.O_CREAT)) throw failure("ENOENT");
    if (!node || flags & constants.O_TRUNC) files.set(nameOf(path), node = new Node());
    open.set(++last, { node, position: flags & constants.O_APPEND ? node.size : 0 });
    return last;
  },
  close(fd) { open.delete(fd); },
  read(fd, buffer, offset, length, position) {
    if (fd === 0) return 0;
    const file = at(fd);
    if (file.node.folder) throw failure("EISDIR");
    const n = file.node.read(buffer.subarray(offset, offset + length), position ?? file.position);
    if (position === null) file.position += n;
    return n;
  },
  write(fd, buffer, offset, length, position) {
    const bytes = buffer.subarray(offset, offset + length);
    if (fd === 1 || fd === 2) return fs.writeSync(fd, bytes);
    const file = at(fd);
    const n = file.node.write(bytes, position ?? file.position);
    if (position === null) file.position += n;
    return n;
  },
  stat: (path) => stat(find(path)),
  lstat: (path) => stat(find(path)),
  fstat: (fd) => stat(at(fd).node),
  readdir(path) {
    if (!find(path).folder) throw failure("ENOTDIR");
    return [...files.keys()];
  },
  rename(from, to) {
    files.set(nameOf(to), find(from));
    files.delete(nameOf(from));
  },
  unlink(path) { find(path); files.delete(nameOf(path)); },
  truncate(path, size) { find(path).truncate(size); },
  ftruncate(fd, size) { at(fd).node.truncate(size); },
  fsync() {}, chmod() {}, fchmod() {}, chown() {}, fchown() {}, lchown() {}, utimes() {},
};

globalThis.fs = {
  constants,
  writeSync(fd, bytes) {
    postMessage({ fd, bytes: bytes.slice() });
    return bytes.length;
  },
};
for (const name of ["link", "mkdir", "readlink", "rmdir", "symlink"]) calls[name] = () => { throw failure("ENOSYS"); };
for (const [name, call] of Object.entries(calls)) {
  fs[name] = (...args) => {
    const callback = args.pop();
    let result;
    try {
      result = call(...args);
    } catch (error) {
      return callback(failure(error.code && typeof error.code === "string" ? error.code : "EIO"));
    }
    callback(null, result);
  };
}
globalThis.path = { resolve: (...parts) => "/" + nameOf(parts.join("/")) };
globalThis.process = { pid: 1, ppid: 0, cwd: () => "/", getuid: () => 0, geteuid: () => 0, getgid: () => 0, getegid: () => 0, umask: () => 0o22 };
importScripts("wasm_exec.js");

onmessage = async ({ data }) => {
  for (const { name, blob } of data.files) {
    files.set(name, new Node(blob));
    total += blob.size;
  }
  const go = new Go();
  let status;
  go.argv = ["weir", ...data.args];
  go.exit = (code) => { status = code; };
  try {
    await go.run(await WebAssembly.instantiate(data.module, go.importObject));
  } catch (error) {
    return postMessage({ status: 2, failure: String(error), made: [] });
  }
  const made = [...files].filter(([, node]) => !node.blob).map(([name, node]) => ({ name, blob: new Blob([node.bytes.subarray(0, node.size)]) }));
  postMessage({ status, made });
};
