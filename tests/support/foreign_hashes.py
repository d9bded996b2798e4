"""Hashes of passwords that other brokers made."""

from __future__ import annotations

# Made by mosquitto_passwd 2.0.11 (with -H sha512 the second); the passwords are "secret" and "p\u00e4ssword".
PBKDF2 = (
    "$7$101$tqqpYydIRzlihtJR$fD3Upae7nSkIY1/lglIaSIxHUfA1f5mNwcD+sbs3NmaUKs2nWpaFu4WW/W1mmXbcIFcIknWnWQb5WX8i8vJ5dA=="
)
SHA512 = "$6$UA95wNOuhzZjBIQx$Laf6tHua828na9t0i8IJYVbjAuOPrR7hxk61fJQtvdO5yu/dwUBzx/8ajzjuTx4tlBYjbYZEY0oFY7cJqhhxSg=="
# The example of EMQX's documentation of the import; its password is "mypassword3".
EMQX = "b6c743545a7817ae8c8f624371d5f5f0373234bb0ff36b8ffbf19bce0e06ab75"
EMQX_SALT = "de1024f462fb83910fd13151bd4bd235"
# RFC 7914, section 11: PBKDF2-HMAC-SHA-256 of "passwd" with the salt "salt", one iteration; its first 32 bytes.
EMQX_PBKDF2 = "55ac046e56e3089fec1691c22544b605f94185216dde0465e68b9d57c20dacbc"
