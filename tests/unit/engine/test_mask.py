"""The compiled mask: the same as the definition, at every length and alignment."""

from __future__ import annotations

import pytest

from iothub.engine.mask import unmask


def test_unmask_is_the_xor_with_the_repeated_key() -> None:
    """RFC 6455 section 5.3; masking twice gives the bytes back."""
    key = b"\x01\x80\xff\x00"
    for size in (*range(40), 1000, 65_536):
        data = bytes(at * 7 & 0xFF for at in range(size))
        masked = unmask(data, key)
        assert masked == bytes(byte ^ key[at & 3] for at, byte in enumerate(data))
        assert unmask(masked, key) == data


def test_unmask_refuses_a_key_of_another_length() -> None:
    """Nothing is read beyond a short key."""
    for key in (b"", b"123", b"12345"):
        with pytest.raises(ValueError, match="four bytes"):
            unmask(b"data", key)
