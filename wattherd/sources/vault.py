"""Reads what ansible-vault wrote: AES-256 in counter mode, its keys from a password, its integrity by HMAC (formats 1.1 and 1.2).

The ciphers are `cryptography`'s; ansible-core would be a second configuration-management system beside this one, for one function.
"""

from __future__ import annotations

import binascii
import re

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, hmac, padding
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from cryptography.hazmat.primitives.kdf.pbkdf2 import PBKDF2HMAC

from wattherd import errors

_HEADER = re.compile(r"\$ANSIBLE_VAULT;(1\.1|1\.2);([A-Z0-9]+)(?:;([^\s;]+))?\s*\Z")
_ROUNDS = 10_000
_KEY_BYTES = 32
_BLOCK_BITS = 128


def is_vault(text: str) -> bool:
    return text.lstrip().startswith("$ANSIBLE_VAULT;")


def label_of(text: str) -> str:
    """The vault id that format 1.2 names; "default" where there is none."""
    found = _HEADER.match(text.strip().partition("\n")[0])
    return (found.group(3) if found else None) or "default"


def decrypt(text: str, password: bytes, place: str) -> bytes:
    """The plain bytes. `secret-locked` when the password is not the one, `secret-invalid` when it is no vault."""
    head, _, body = text.strip().partition("\n")
    found = _HEADER.match(head)
    if found is None or found.group(2) != "AES256":
        raise errors.Problem("secret-invalid", f"{place} is not an ansible-vault of format 1.1 or 1.2 with AES256")
    try:
        salt, signature, ciphertext = (binascii.unhexlify(part) for part in binascii.unhexlify("".join(body.split())).split(b"\n", 2))
    except ValueError:
        raise errors.Problem("secret-invalid", f"{place} is damaged: it is not the text that ansible-vault wrote") from None
    keys = PBKDF2HMAC(algorithm=hashes.SHA256(), length=2 * _KEY_BYTES + 16, salt=salt, iterations=_ROUNDS).derive(password)
    signing = hmac.HMAC(keys[_KEY_BYTES : 2 * _KEY_BYTES], hashes.SHA256())
    signing.update(ciphertext)
    try:
        signing.verify(signature)
    except InvalidSignature:
        raise errors.Problem(
            "secret-locked",
            f"the vault password does not open {place}",
            hint="vault: {password_file: …} or ANSIBLE_VAULT_PASSWORD_FILE names the file that holds it",
        ) from None
    opening = Cipher(algorithms.AES(keys[:_KEY_BYTES]), modes.CTR(keys[2 * _KEY_BYTES :])).decryptor()
    unpadding = padding.PKCS7(_BLOCK_BITS).unpadder()
    return unpadding.update(opening.update(ciphertext) + opening.finalize()) + unpadding.finalize()
