"""What the machine says about itself: memory of this process, free disk, end of a certificate.

Knows no threshold; each probe is one cheap look (a system call or a small file) and may be made every few seconds.
"""

from __future__ import annotations

import os
from pathlib import Path

ROOM_BYTES = (
    1 << 20
)  # a disk with less is full: a small write may still find a place where the next larger one does not

_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


def resident_bytes() -> int:
    """Return the resident memory of this process; 0 where /proc is missing."""
    try:
        pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    except (OSError, ValueError, IndexError):
        return 0
    return pages * _PAGE_BYTES


def disk_free_bytes(path: Path) -> int:
    """Return the space that this process may still use under `path`.

    Raises:
        OSError: The path is gone.
    """
    status = os.statvfs(path)
    return status.f_bavail * status.f_frsize


def disk_free_and_size(path: Path) -> tuple[int, int]:
    """Return how many bytes anybody may still write on the disk of `path`, and how large it is.

    Raises:
        OSError: The path is gone.
    """
    status = os.statvfs(path)
    return status.f_bavail * status.f_frsize, status.f_blocks * status.f_frsize


def is_read_only(path: Path) -> bool:
    """Say whether the file system of `path` is mounted read-only.

    Raises:
        OSError: The path is gone.
    """
    return bool(os.statvfs(path).f_flag & os.ST_RDONLY)


def certificate_end(file: Path) -> float:
    """Return when the first certificate of a PEM file ends, in Unix time.

    Raises:
        OSError: The file cannot be read.
        ValueError: It holds no certificate.
    """
    from cryptography import x509  # takes a while, and most hubs have no certificate

    octets = file.read_bytes()
    try:
        certificate = x509.load_pem_x509_certificates(octets)[0]
    except ValueError:
        raise ValueError("contains no certificate; expected a PEM file") from None
    return certificate.not_valid_after_utc.timestamp()
