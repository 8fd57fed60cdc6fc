#!/usr/bin/env python3
"""Makes kernels.ptx of hip.h and kernels.c with NVRTC; needs no GPU and no CUDA toolkit:

    pip install nvidia-cuda-nvrtc-cu11==11.8.89
    python make_ptx.py

The driver compiles the text for the GPU it finds. Version 11.8 writes what drivers since 520 take, and
compute_52 what every GPU since Maxwell runs. The first line has the digest of the sources, which a test compares.
"""
import ctypes
import glob
import hashlib
import pathlib
import site

here = pathlib.Path(__file__).parent
source = (here / "hip.h").read_bytes() + (here / "kernels.c").read_bytes()
libraries = [f for d in site.getsitepackages() for f in glob.glob(f"{d}/nvidia/cuda_nvrtc/lib/libnvrtc.so*")]
nvrtc = ctypes.CDLL(libraries[0])


def check(code):
    if code:
        raise SystemExit(f"NVRTC: error {code}")


program = ctypes.c_void_p()
check(nvrtc.nvrtcCreateProgram(ctypes.byref(program), source, b"kernels.c", 0, None, None))
options = (ctypes.c_char_p * 1)(b"--gpu-architecture=compute_52")
code = nvrtc.nvrtcCompileProgram(program, 1, options)
size = ctypes.c_size_t()
check(nvrtc.nvrtcGetProgramLogSize(program, ctypes.byref(size)))
log = ctypes.create_string_buffer(size.value)
check(nvrtc.nvrtcGetProgramLog(program, log))
print(log.value.decode(), end="")
check(code)
check(nvrtc.nvrtcGetPTXSize(program, ctypes.byref(size)))
ptx = ctypes.create_string_buffer(size.value)
check(nvrtc.nvrtcGetPTX(program, ptx))
digest = hashlib.sha256(source).hexdigest()
(here / "kernels.ptx").write_text(f"// made by make_ptx.py of hip.h and kernels.c, sha256 {digest}\n{ptx.value.decode()}")
