#!/usr/bin/env python3
"""Tests of examples/convert_state_dict.py. Those that need PyTorch are skipped where there is none."""
import contextlib
import io
import json
import os
import pathlib
import struct
import subprocess
import sys
import tempfile
import unittest

import numpy as np

try:
    import torch
except ImportError:
    torch = None

SCRIPT = pathlib.Path(__file__).resolve().parents[2] / "examples" / "convert_state_dict.py"
sys.path.insert(0, str(SCRIPT.parent))
import convert_state_dict as bridge  # noqa: E402

needs_torch = unittest.skipUnless(torch, "there is no PyTorch (in Debian: python3-torch)")


def tensors():
    """One of each type, with numbers that rounding would change."""
    half = [1, -2.5, 65504, 6e-8, float("inf"), float("nan")]
    return {
        "f64": torch.tensor([1 / 3, -0.0, 5e-324, float("nan")], dtype=torch.float64),
        "f32": torch.tensor([[1 / 3, 1e-45], [float("-inf"), 3]]),
        "f16": torch.tensor(half, dtype=torch.float16),
        "bf16": torch.tensor([*half, 3e38], dtype=torch.bfloat16),
        "i64": torch.tensor([-2 ** 63, 2 ** 63 - 1]),
        "i32": torch.tensor([-2 ** 31, 2 ** 31 - 1], dtype=torch.int32),
        "i16": torch.tensor([-2 ** 15, 2 ** 15 - 1], dtype=torch.int16),
        "i8": torch.tensor([-128, 127], dtype=torch.int8),
        "u8": torch.tensor([0, 255], dtype=torch.uint8),
        "bool": torch.tensor([True, False, True]),
        "scalar": torch.tensor(7.0),
        "scalar bf16": torch.tensor(7.0, dtype=torch.bfloat16),
        "empty": torch.zeros(2, 0, 3),
        "größe.β": torch.ones(1),
    }


class Folder(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="xtape_test_")
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

        self.addCleanup(os.chdir, os.getcwd())
        os.chdir(self.folder)

    def run_script(self, *arguments):
        """Exit code and both outputs of the script, run in this process: PyTorch takes long to import."""
        out, errors, code = io.StringIO(), io.StringIO(), 0
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(errors):
            try:
                bridge.main(arguments)
            except SystemExit as exit:
                code = exit.code
        return code, out.getvalue(), errors.getvalue()

    def converts(self, *arguments):
        code, out, errors = self.run_script(*arguments)
        self.assertEqual((code, errors), (0, ""))
        self.assertRegex(out, f"^{arguments[1]}: [0-9]+ arrays\n$")

    def refuses(self, arguments, *parts):
        before = sorted(self.folder.iterdir())
        code, out, errors = self.run_script(*arguments)
        self.assertEqual((code, out, len(errors.splitlines())), (1, "", 1), errors)
        self.assertTrue(errors.startswith("convert_state_dict.py: "), errors)
        for part in parts:
            self.assertIn(part, errors)
        self.assertEqual(sorted(self.folder.iterdir()), before)

    def assert_same(self, x, y):
        self.assertEqual(x.keys(), y.keys())
        for name in x:
            self.assertEqual(bridge.raw(name, x[name]), bridge.raw(name, y[name]), name)


class WithNumpyAlone(Folder):
    def arrays(self):
        return {
            "f64": np.array([1 / 3, np.nan]), "f32": np.float32([[1 / 3, -0.0]]), "f16": np.float16([6e-8, np.inf]),
            "i64": np.array([-2 ** 63]), "i32": np.int32([-5]), "i16": np.int16([-5]), "i8": np.int8([-5]),
            "u8": np.uint8([255]), "bool": np.array([True, False]), "scalar": np.float32(3), "empty": np.zeros((2, 0)),
            "file": np.arange(3), "a/b": np.arange(2), "transposed": np.arange(6.0).reshape(2, 3).T,
            "reversed": np.arange(4)[::-1], "big-endian": np.array([1.5, 2], ">f4"),
        }

    def test_arrays_come_back_bit_by_bit(self):
        arrays = self.arrays()
        bridge.save(self.folder / "x.safetensors", arrays)
        self.assert_same(bridge.load(self.folder / "x.safetensors", as_numpy=True), arrays)
        self.converts("x.safetensors", "y.npz")
        self.converts("y.npz", "z.safetensors")
        self.assert_same(bridge.load(self.folder / "z.safetensors", as_numpy=True), arrays)
        with np.load(self.folder / "y.npz") as file:
            self.assertEqual(sorted(file.files), sorted(arrays))
            np.testing.assert_array_equal(file["transposed"], arrays["transposed"])

    def test_every_array_starts_at_a_multiple_of_its_width(self):
        bridge.save(self.folder / "x", self.arrays())
        content = (self.folder / "x").read_bytes()
        size, = struct.unpack("<Q", content[:8])
        self.assertEqual(size % 8, 0)
        header = json.loads(content[8:8 + size])
        self.assertEqual(header.pop("__metadata__"), {"format": "pt"})
        for name, entry in header.items():
            self.assertEqual(entry["data_offsets"][0] % bridge.WIDTHS[entry["dtype"]], 0, name)

    def test_bf16_becomes_float32(self):
        bridge.write_safetensors(self.folder / "x.safetensors", {"x": ("BF16", [2], b"\x80\x3f\x40\xc0")}, {})
        self.converts("x.safetensors", "x.npz")
        with np.load(self.folder / "x.npz") as file:
            self.assertEqual((file["x"].dtype, list(file["x"])), (np.float32, [1, -3]))

    def test_types_that_the_format_has_not_are_refused(self):
        for array in (np.zeros(1, complex), np.zeros(1, np.uint32), np.array(["text"]), np.array([None]), [1, 2]):
            with self.assertRaisesRegex(bridge.ConversionError, "^x (has the type|must be a tensor)"):
                bridge.save(self.folder / "x", {"x": array})
        self.assertEqual(list(self.folder.iterdir()), [])

    def test_a_target_is_replaced_whole_or_not_at_all(self):
        (self.folder / "x").write_text("before")
        os.chmod(self.folder, 0o755)

        def fails(file):
            file.write(b"part")
            raise OSError("no space left")

        with self.assertRaises(OSError):
            bridge.replace(self.folder / "x", fails)
        self.assertEqual((self.folder / "x").read_text(), "before")
        self.assertEqual([path.name for path in self.folder.iterdir()], ["x"])
        bridge.save(self.folder / "x", {"x": np.ones(1)})
        self.assertEqual([path.name for path in self.folder.iterdir()], ["x"])
        umask = os.umask(0)
        os.umask(umask)
        self.assertEqual((self.folder / "x").stat().st_mode & 0o777, 0o666 & ~umask)

    def test_files_that_break_a_rule_are_refused(self):
        def entry(dtype="F32", shape=(1,), begin=0, end=4):
            return {"dtype": dtype, "shape": list(shape), "data_offsets": [begin, end]}

        def file(header, data=b"\0\0\0\0"):
            text = header if isinstance(header, bytes) else json.dumps(header).encode()
            return struct.pack("<Q", len(text)) + text + data

        files = {
            "at least 8 bytes": b"1234567",
            "the header claims": struct.pack("<Q", 100) + b"{}",
            "must be a JSON object": file(b" {}", b""),
            "Expecting": file(b'{"x": ', b""),
            "utf-8": file(b'{"\xff": 1}', b""),
            "names x twice": file(b'{"x": %s, "x": %s}' % (2 * (json.dumps(entry()).encode(),))),
            "the type F8_E4M3": file({"x": entry("F8_E4M3", end=1)}, b"1"),
            "must hold dtype, shape": file({"x": {"dtype": "F32", "shape": [1]}}),
            "entry of x must hold": file({"x": entry(shape=(True,))}),
            "entry of y must hold": file({"y": entry(shape=(-1,))}),
            "entry of z must hold": file({"z": entry(begin=0.0)}),
            "__metadata__ must be": file({"__metadata__": {"a": 1}}, b""),
            "x, which begins at 1": file({"x": entry(begin=1, end=5)}, b"12345"),
            "y, which begins at 2": file({"x": entry(), "y": entry(begin=2, end=6)}, b"123456"),
            "does not fill [0, 4)": file({"x": entry(shape=(2,))}),
            "type F64 does not fill": file({"x": entry("F64", shape=(2 ** 61 + 1,))}),
            "there are 4 bytes of data": file({"x": entry(shape=(2,), end=8)}),
            "expected 4 bytes of data, got 5": file({"x": entry()}, b"12345"),
        }
        for reason, content in files.items():
            with self.subTest(reason):
                (self.folder / "x").write_bytes(content)
                with self.assertRaises(bridge.ConversionError) as raised:
                    bridge.load(self.folder / "x", as_numpy=True)
                self.assertIn(reason, str(raised.exception))
                self.assertIn(str(self.folder / "x"), str(raised.exception))
        (self.folder / "x.safetensors").write_bytes(b"1234567")
        self.refuses(["x.safetensors", "y.npz"], "x.safetensors: expected at least 8 bytes, got 7")

    def test_what_cannot_be_read_or_written_is_a_sentence(self):
        bridge.save(self.folder / "x.safetensors", {"x": np.ones(1)})
        (self.folder / "bad.npz").write_text("nothing")
        np.save(self.folder / "single.npy", np.ones(1))
        os.rename(self.folder / "single.npy", self.folder / "single.npz")
        np.savez(self.folder / "object.npz", x=np.array([{}], dtype=object))
        self.refuses(["no.safetensors", "y.npz"], "no.safetensors: No such file")
        self.refuses(["x.safetensors", "no/y.npz"], "No such file")
        self.refuses(["bad.npz", "y.safetensors"], "bad.npz: this is not an .npz file")
        self.refuses(["single.npz", "y.safetensors"], "single.npz: expected an .npz of named arrays")
        self.refuses(["object.npz", "y.safetensors"], "object.npz: this is not an .npz file")
        self.refuses(["x.safetensors", "y.npz", "--key", "model"], "--key is for files of torch.save")
        self.refuses(["x.safetensors"], "required: target", "--help explains")
        self.refuses(["no.pt", "y.safetensors"], "no.pt: ")

    def test_help_is_readable(self):
        result = subprocess.run([sys.executable, SCRIPT, "--help"], capture_output=True, text=True, check=True)
        for part in ("model.pt model.safetensors", "F64 F32 F16 BF16", "Tied tensors", "--key"):
            self.assertIn(part, result.stdout)
        self.assertLess(max(map(len, result.stdout.splitlines())), 100)
        result = subprocess.run([sys.executable, SCRIPT, "no.npz", "y.npz"], capture_output=True, text=True)
        self.assertEqual((result.returncode, result.stderr),
                         (1, "convert_state_dict.py: no.npz: No such file or directory\n"))


@needs_torch
class WithPyTorch(Folder):
    def test_tensors_of_every_type_come_back_bit_by_bit(self):
        torch.save(tensors(), self.folder / "x.pt")
        self.converts("x.pt", "y.safetensors")
        self.assert_same(bridge.load(self.folder / "y.safetensors"), tensors())
        self.converts("y.safetensors", "z.pth")
        back = torch.load(self.folder / "z.pth")
        self.assert_same(back, tensors())
        for name, tensor in tensors().items():
            self.assertEqual((back[name].dtype, back[name].shape), (tensor.dtype, tensor.shape), name)

    def test_numpy_and_torch_agree_on_a_file(self):
        kept = {name: tensor for name, tensor in tensors().items() if tensor.dtype != torch.bfloat16}
        bridge.save(self.folder / "x", kept)
        self.assert_same(bridge.load(self.folder / "x", as_numpy=True), kept)
        bridge.save(self.folder / "y", {"x": tensors()["bf16"]})
        np.testing.assert_array_equal(bridge.load(self.folder / "y", as_numpy=True)["x"],
                                      tensors()["bf16"].float().numpy())

    def test_tensors_that_are_not_contiguous(self):
        x = torch.arange(24.0).reshape(2, 3, 4)
        strided = {"t": x.permute(2, 0, 1), "reversed": x.permute(2, 1, 0), "step": x[:, ::2, 1:],
                   "expanded": torch.ones(3, 1).expand(3, 5), "half": x.bfloat16().permute(2, 0, 1), "parameter": torch.nn.Parameter(x.mT)}
        bridge.save(self.folder / "x", strided)
        for name, tensor in bridge.load(self.folder / "x").items():
            self.assertTrue(torch.equal(tensor, strided[name]), name)

    def test_tied_tensors_are_written_under_both_names(self):
        def model():
            found = torch.nn.Sequential(torch.nn.Embedding(5, 3), torch.nn.Linear(3, 5))
            found[1].weight = found[0].weight
            return found

        first, second = model(), model()
        torch.save(first.state_dict(), self.folder / "x.pt")
        self.converts("x.pt", "y.safetensors")
        second.load_state_dict(bridge.load(self.folder / "y.safetensors"), strict=True)
        self.assertTrue(torch.equal(second[0].weight, first[0].weight))
        self.assertIs(second[0].weight, second[1].weight)

    def test_a_state_dict_in_a_larger_file_is_found_by_its_key(self):
        linear = torch.nn.Linear(2, 3)
        torch.save({"step": 3, "model": linear.state_dict(), "all": {"ema": linear.state_dict()}}, self.folder / "x.pt")
        for key in ("model", "all/ema"):
            self.converts("x.pt", "y.safetensors", "--key", key)
            linear.load_state_dict(bridge.load(self.folder / "y.safetensors"), strict=True)
        self.refuses(["x.pt", "z.safetensors"], "step must be a tensor, got int", "--key", "model, all")
        self.refuses(["x.pt", "z.safetensors", "--key", "ema"], "there is no ema in it, it holds step, model, all")
        self.refuses(["x.pt", "z.safetensors", "--key", "step"], "expected a state dict, got a int")

    def test_what_cannot_be_converted_is_a_sentence(self):
        (self.folder / "bad.pt").write_text("nothing")
        torch.save(torch.nn.Linear(2, 3), self.folder / "module.pt")  # a whole module is a program, not weights
        torch.save({"x": torch.ones(1, dtype=torch.complex64)}, self.folder / "complex.pt")
        torch.save({"x": torch.eye(2).to_sparse()}, self.folder / "sparse.pt")
        self.refuses(["bad.pt", "y.safetensors"], "bad.pt: torch.load cannot read this")
        self.refuses(["module.pt", "y.safetensors"], "module.pt: torch.load cannot read this as tensors")
        self.refuses(["complex.pt", "y.safetensors"], "complex.pt: x has the type torch.complex64")
        self.refuses(["sparse.pt", "y.safetensors"], "sparse.pt: ")


if __name__ == "__main__":
    unittest.main()
