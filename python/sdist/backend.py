"""Builds a wheel from the source distribution (PEP 517): the package weir, and the command, which needs Go to build."""

import base64
import hashlib
import os
import pathlib
import shutil
import subprocess
import sysconfig
import tempfile
import zipfile

HERE = pathlib.Path(__file__).parent


def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):
    """Writes the wheel and returns its name. With command=no in config_settings, the wheel does not contain the command."""
    metadata = (HERE / "PKG-INFO").read_text("utf-8")
    version = next(line.split()[1] for line in metadata.splitlines() if line.startswith("Version: "))
    files = {p.relative_to(HERE).as_posix(): p.read_bytes() for p in sorted((HERE / "weir").rglob("*")) if p.suffix in (".py", ".typed")}
    tag = "any"
    if (config_settings or {}).get("command") != "no":
        name, program = command(version)
        files[f"weir_ml-{version}.data/scripts/{name}"] = program
        tag = sysconfig.get_platform().replace("-", "_").replace(".", "_")
    info = f"weir_ml-{version}.dist-info"
    files[f"{info}/licenses/LICENSE"] = (HERE / "LICENSE").read_bytes()
    files[f"{info}/METADATA"] = metadata.encode()
    files[f"{info}/WHEEL"] = f"Wheel-Version: 1.0\nGenerator: weir\nRoot-Is-Purelib: {str(tag == 'any').lower()}\nTag: py3-none-{tag}\n".encode()
    record = [f"{path},sha256={base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b'=').decode()},{len(content)}\n" for path, content in files.items()]
    files[f"{info}/RECORD"] = "".join([*record, f"{info}/RECORD,,\n"]).encode()
    wheel = f"weir_ml-{version}-py3-none-{tag}.whl"
    with zipfile.ZipFile(os.path.join(wheel_directory, wheel), "w", zipfile.ZIP_DEFLATED) as archive:
        for path, content in files.items():
            entry = zipfile.ZipInfo(path)
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry.external_attr = (0o100755 if "/scripts/" in path else 0o100644) << 16  # a regular file; pip asks for that
            archive.writestr(entry, content)
    return wheel


def build_sdist(sdist_directory, config_settings=None):
    raise RuntimeError("weir-ml: this is a source distribution already; in a clone of the repository, `go run ./internal/release` makes one")


def command(version):
    """Builds the command with Go, and returns its file name and content."""
    go = shutil.which("go")
    if go is None:
        raise RuntimeError("weir-ml: building the command takes Go 1.26 or later, and there is no go on the PATH. Install Go (https://go.dev/dl), "
                           "or leave the command out: pip install --config-settings command=no weir-ml")
    name = "weir.exe" if os.name == "nt" else "weir"
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, name)
        subprocess.run([go, "build", "-trimpath", "-buildvcs=false", f"-ldflags=-s -w -X main.release=v{version}", "-o", path, "./cmd/weir"],
                       cwd=HERE / "source", env={**os.environ, "CGO_ENABLED": "0"}, check=True)
        return name, pathlib.Path(path).read_bytes()
