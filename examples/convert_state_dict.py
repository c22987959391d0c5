#!/usr/bin/env python3
"""Convert a PyTorch state dict to safetensors, which xtape reads and writes, and back.

    convert_state_dict.py model.pt model.safetensors
    convert_state_dict.py model.safetensors model.pt
    convert_state_dict.py weights.npz weights.safetensors      (needs NumPy alone)

The endings of the two names say what is read and what is written: .safetensors,
.npz, or anything of torch.save (.pt, .pth, .bin). Elements are F64 F32 F16 BF16
I64 I32 I16 I8 U8 BOOL and are kept bit by bit; only BF16, which NumPy does not
know, becomes float32 in an .npz, without loss. Tied tensors are written under each
of their names, as a state dict lists them. The target is replaced whole or not at
all. Exit codes: 0, or 1 with a sentence that says what is wrong.

As a module: save(path, state_dict) and load(path) for .safetensors files; load
gives tensors, or NumPy arrays with as_numpy=True; save takes both.
"""
import argparse
import json
import os
import pathlib
import struct
import sys
import tempfile
import zipfile

try:
    import numpy as np
except ImportError:
    sys.exit(f"{sys.argv[0]}: {sys.executable} has no NumPy (in Debian it is the package python3-numpy for "
             "/usr/bin/python3)")

WIDTHS = {"F64": 8, "F32": 4, "F16": 2, "BF16": 2, "I64": 8, "I32": 4, "I16": 2, "I8": 1, "U8": 1, "BOOL": 1}
NUMPY = {"F64": "<f8", "F32": "<f4", "F16": "<f2", "I64": "<i8", "I32": "<i4", "I16": "<i2", "I8": "|i1", "U8": "|u1",
         "BOOL": "|b1"}
TORCH = {"F64": "float64", "F32": "float32", "F16": "float16", "BF16": "bfloat16", "I64": "int64", "I32": "int32",
         "I16": "int16", "I8": "int8", "U8": "uint8", "BOOL": "bool"}
LONGEST_HEADER = 100_000_000


class ConversionError(Exception):
    """What is wrong, as a sentence."""


def expect(ok, sentence):
    if not ok:
        raise ConversionError(sentence)


# ---- arrays of NumPy and PyTorch as (type, shape, bytes), and back


def torch_for(path):
    try:
        import torch
        return torch
    except ImportError as error:
        raise ConversionError(f"{path}: this needs PyTorch, which {sys.executable} has not (in Debian it is the "
                              "package python3-torch for /usr/bin/python3)") from error


def raw(name, array):
    """(type, shape, bytes in row-major, little-endian order) of a tensor or NumPy array."""
    torch = sys.modules.get("torch")  # without it there are no tensors
    if torch and isinstance(array, torch.Tensor):
        expect(array.layout == torch.strided and not array.is_quantized, f"{name} must be dense, got {array.layout}")
        known = {getattr(torch, theirs): ours for ours, theirs in TORCH.items()}
        expect(array.dtype in known, f"{name} has the type {array.dtype}, expected one of {', '.join(TORCH.values())}")
        dense, dtype = array.detach().cpu().resolve_neg(), known[array.dtype]
        if dtype == "BF16":
            dense = dense.view(torch.int16)
        return dtype, list(array.shape), dense.numpy().tobytes()
    expect(isinstance(array, (np.ndarray, np.generic)),
           f"{name} must be a tensor, got {'a dict' if isinstance(array, dict) else type(array).__name__}")
    little = array.astype(array.dtype.newbyteorder("<"), copy=False)
    known = {np.dtype(theirs): ours for ours, theirs in NUMPY.items()}
    expect(little.dtype in known, f"{name} has the type {array.dtype}, expected one of "
                                  f"{', '.join(np.dtype(theirs).name for theirs in NUMPY.values())}")
    return known[little.dtype], list(array.shape), little.tobytes()


def as_numpy_array(dtype, shape, data):
    if dtype == "BF16":  # the upper half of a float32
        return (np.frombuffer(data, "<u2").astype("<u4") << 16).view("<f4").reshape(shape)
    return np.frombuffer(data, NUMPY[dtype]).reshape(shape).copy()


def as_tensor(torch, dtype, shape, data):
    if dtype == "BF16":
        return torch.from_numpy(np.frombuffer(data, "<i2").copy()).view(torch.bfloat16).reshape(shape)
    return torch.from_numpy(as_numpy_array(dtype, shape, data))


# ---- files


def replace(path, write):
    """Calls write(file) for a temporary beside `path`, flushes it to disk, and gives it the name."""
    path = pathlib.Path(path)
    descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=path.name + ".")
    try:
        with os.fdopen(descriptor, "wb") as file:
            write(file)
            file.flush()
            os.fsync(file.fileno())
        umask = os.umask(0)
        os.umask(umask)
        os.chmod(temporary, 0o666 & ~umask)
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise


def write_safetensors(path, entries, metadata):
    # The widest first, so that each array starts at a multiple of its width.
    ordered = sorted(entries.items(), key=lambda entry: -WIDTHS[entry[1][0]])
    header, at = {"__metadata__": metadata}, 0
    for name, (dtype, shape, data) in ordered:
        expect(name != "__metadata__", "an array cannot have the name __metadata__")
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [at, at + len(data)]}
        at += len(data)
    text = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode()
    text += b" " * (-len(text) % 8)
    expect(len(text) <= LONGEST_HEADER, f"{path}: the header would have {len(text)} bytes, more than {LONGEST_HEADER}")

    def write(file):
        file.write(struct.pack("<Q", len(text)) + text)
        for _, (_, _, data) in ordered:
            file.write(data)

    replace(path, write)


def without_duplicates(pairs):
    names = [name for name, _ in pairs]
    twice = {name for name in names if names.count(name) > 1} if len(set(names)) < len(names) else ()
    expect(not twice, f"the header names {', '.join(sorted(twice))} twice")
    return dict(pairs)


def is_count(value):
    return type(value) is int and value >= 0


def read_safetensors(path):
    """{name: (type, shape, bytes)} of a file that keeps every rule of the format."""
    content = pathlib.Path(path).read_bytes()
    try:
        expect(len(content) >= 8, f"expected at least 8 bytes, got {len(content)}")
        size, = struct.unpack("<Q", content[:8])
        expect(size <= min(LONGEST_HEADER, len(content) - 8),
               f"the header claims {size} bytes in this file of {len(content)}")
        text, data = content[8:8 + size], memoryview(content)[8 + size:]
        expect(text[:1] == b"{", "the header must be a JSON object")
        header = json.loads(text.decode(), object_pairs_hook=without_duplicates)
        metadata = header.pop("__metadata__", {})
        expect(isinstance(metadata, dict) and all(isinstance(value, str) for value in metadata.values()),
               "__metadata__ must be an object of texts")
        for name, entry in header.items():
            expect(isinstance(entry, dict) and entry.keys() == {"dtype", "shape", "data_offsets"}
                   and isinstance(entry["shape"], list) and all(map(is_count, entry["shape"]))
                   and isinstance(entry["data_offsets"], list) and len(entry["data_offsets"]) == 2
                   and all(map(is_count, entry["data_offsets"])),
                   f"the entry of {name} must hold dtype, shape and data_offsets [begin, end]")
            expect(isinstance(entry["dtype"], str) and entry["dtype"] in WIDTHS,
                   f"{name} has the type {entry['dtype']}, expected one of {', '.join(WIDTHS)}")
        entries, at = {}, 0
        for name, entry in sorted(header.items(), key=lambda item: item[1]["data_offsets"]):
            begin, end = entry["data_offsets"]
            bytes_of_shape = WIDTHS[entry["dtype"]]
            for extent in entry["shape"]:
                bytes_of_shape *= extent
            expect(begin == at, f"expected data without hole or overlap, but {at} bytes are followed by {name}, which "
                                f"begins at {begin}")
            expect(begin <= end and end - begin == bytes_of_shape,
                   f"{name} of shape {tuple(entry['shape'])} and type {entry['dtype']} does not fill [{begin}, {end})")
            expect(end <= len(data), f"the data of {name} ends at {end}, but there are {len(data)} bytes of data")
            entries[name], at = (entry["dtype"], entry["shape"], data[begin:end]), end
        expect(at == len(data), f"expected {at} bytes of data, got {len(data)}")
        return {name: entries[name] for name in header}
    except (ConversionError, ValueError, RecursionError) as error:  # JSON and UTF-8 raise a ValueError
        raise ConversionError(f"{path}: {error}") from error


def read_npz(path):
    try:
        file = np.load(path, allow_pickle=False)
        expect(hasattr(file, "files"), f"{path}: expected an .npz of named arrays, got a single array")
        with file:
            return {name: raw(name, file[name]) for name in file.files}
    except (ValueError, EOFError, zipfile.BadZipFile) as error:
        raise ConversionError(f"{path}: this is not an .npz file ({error})") from error


def write_npz(path, entries):
    def write(file):
        with zipfile.ZipFile(file, "w") as archive:  # by hand, since savez cannot write an array named "file"
            for name, entry in entries.items():
                with archive.open(name + ".npy", "w", force_zip64=True) as member:
                    np.lib.format.write_array(member, as_numpy_array(*entry))

    replace(path, write)


def read_torch(path, key):
    torch = torch_for(path)
    with open(path, "rb"):  # so that a missing file is reported as such
        pass
    try:
        content = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # torch.load names no set of exceptions
        raise ConversionError(f"{path}: torch.load cannot read this as tensors ({error})") from error
    for part in key.split("/") if key else ():
        expect(isinstance(content, dict) and part in content, f"{path}: there is no {part} in it, it holds "
               f"{', '.join(map(str, content)) if isinstance(content, dict) else type(content).__name__}")
        content = content[part]
    expect(isinstance(content, dict), f"{path}: expected a state dict, got a {type(content).__name__}")
    try:
        return {name: raw(name, tensor) for name, tensor in content.items()}
    except ConversionError as error:
        dicts = [str(name) for name, value in content.items() if isinstance(value, dict)]
        hint = f"; --key chooses a dict in the file: {', '.join(dicts)}" if dicts else ""
        raise ConversionError(f"{path}: {error}{hint}") from error


def write_torch(path, entries):
    torch = torch_for(path)
    tensors = {name: as_tensor(torch, *entry) for name, entry in entries.items()}
    replace(path, lambda file: torch.save(tensors, file))


# ---- what others call


def save(path, state_dict, metadata=None):
    """Writes a state dict, or a dict of NumPy arrays, as a .safetensors file, whole or not at all."""
    entries = {name: raw(name, array) for name, array in state_dict.items()}
    write_safetensors(path, entries, {"format": "pt"} if metadata is None else metadata)


def load(path, as_numpy=False):
    """The tensors of a .safetensors file, for load_state_dict; NumPy arrays if asked for."""
    entries = read_safetensors(path)
    if as_numpy:
        return {name: as_numpy_array(*entry) for name, entry in entries.items()}
    torch = torch_for(path)
    return {name: as_tensor(torch, *entry) for name, entry in entries.items()}


def convert(source, target, key=None):
    kind, target_kind = pathlib.Path(source).suffix, pathlib.Path(target).suffix
    expect(not key or kind not in (".safetensors", ".npz"), f"{source}: --key is for files of torch.save")
    if kind == ".safetensors":
        entries = read_safetensors(source)
    else:
        entries = read_npz(source) if kind == ".npz" else read_torch(source, key)
    if target_kind == ".safetensors":
        write_safetensors(target, entries, {"format": "pt"})
    else:
        (write_npz if target_kind == ".npz" else write_torch)(target, entries)
    return len(entries)


class Parser(argparse.ArgumentParser):
    def error(self, message):
        self.exit(1, f"{self.prog}: {message} (--help explains)\n")


def main(command_line):
    parser = Parser(prog="convert_state_dict.py", description=__doc__,
                    formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("source", help="the file to read")
    parser.add_argument("target", help="the file to write")
    parser.add_argument("--key", help="the state dict's place in a file that holds more, for instance model, or "
                                      "state/model for one in another")
    arguments = parser.parse_args(command_line)
    try:
        count = convert(arguments.source, arguments.target, arguments.key)
    except ConversionError as error:
        parser.exit(1, f"{parser.prog}: {error}\n")
    except (ValueError, OverflowError) as error:  # shapes that NumPy cannot hold, names that are not Unicode
        parser.exit(1, f"{parser.prog}: {arguments.source}: {error}\n")
    except OSError as error:
        parser.exit(1, f"{parser.prog}: {error.filename or arguments.target}: {error.strerror or error}\n")
    print(f"{arguments.target}: {count} arrays")


if __name__ == "__main__":
    main(sys.argv[1:])
