"""What the headers of a program say of where it runs: for the scripts beside this file."""

import re
import struct
import sys

# Numbers of processors in ELF files, and their names in the tags of wheels.
MACHINES = {62: "x86_64", 183: "aarch64"}
# Debian's names for them, and those of container images.
DEBIAN = {"x86_64": "amd64", "aarch64": "arm64"}
# What every system with glibc has. A program that needs another library must not say `manylinux`.
LIBRARIES = re.compile(r"(libc|libm|libdl|librt|libpthread|libgcc_s|ld-linux-.*)\.so\.[0-9]+")

# The standard library of Rust wants glibc 2.17 whatever symbols a program needs.
OLDEST = 17


def fail(text):
    sys.exit(f"error: {text}")


class Elf:
    """The little of an ELF file that says where it runs."""

    def __init__(self, path):
        self.data = path.read_bytes()
        if self.data[:6] != b"\x7fELF\x02\x01":
            fail(f"{path} is not a program for 64-bit Linux")
        (self.machine,) = struct.unpack_from("<H", self.data, 18)
        (start,) = struct.unpack_from("<Q", self.data, 40)
        size, count = struct.unpack_from("<HH", self.data, 58)
        # Of each section: type, offset, size, and the section that has its strings.
        self.sections = []
        for at in range(start, start + size * count, size):
            _, kind, _, _, offset, length, link = struct.unpack_from("<IIQQQQI", self.data, at)
            self.sections.append((kind, offset, length, link))

    def find(self, kind):
        """Returns the offset and the size of the section of a kind, and the offset of its strings."""
        for found, offset, length, link in self.sections:
            if found == kind:
                return offset, length, self.sections[link][1]
        return fail("the program is linked statically, or for something else than glibc")

    def architecture(self):
        """Returns the name of the processor that it is for."""
        if self.machine not in MACHINES:
            fail(f"there is no name for the processor {self.machine}")
        return MACHINES[self.machine]

    def text(self, at):
        return self.data[at : self.data.index(b"\0", at)].decode()

    def libraries(self):
        """Returns the libraries that are loaded with it (entries DT_NEEDED of the section SHT_DYNAMIC)."""
        offset, length, strings = self.find(6)
        entries = struct.iter_unpack("<QQ", self.data[offset : offset + length])
        return [self.text(strings + value) for tag, value in entries if tag == 1]

    def versions(self):
        """Returns the versions of symbols that it needs, such as `GLIBC_2.34` (section SHT_GNU_verneed)."""
        need, _, strings = self.find(0x6FFFFFFE)
        versions = []
        while True:
            _, count, _, first, next_need = struct.unpack_from("<HHIII", self.data, need)
            version = need + first
            for _ in range(count):
                _, _, _, name, next_version = struct.unpack_from("<IHHII", self.data, version)
                versions.append(self.text(strings + name))
                version += next_version
            if next_need == 0:
                return versions
            need += next_need


def platform(program):
    """Returns the tag of the systems that can run the program: those whose glibc is as new as it needs."""
    elf = Elf(program)
    foreign = [name for name in elf.libraries() if not LIBRARIES.fullmatch(name)]
    if foreign:
        fail(f"{program} needs libraries that not every system has: {', '.join(foreign)}")
    needed = [version.removeprefix("GLIBC_") for version in elf.versions() if version.startswith("GLIBC_2")]
    minor = max(OLDEST, *(int(version.split(".")[1]) for version in needed))
    return f"manylinux_2_{minor}_{elf.architecture()}"
