"""Where a secret comes from. Only its place stands in the inventory, never the secret itself."""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator, BaseModel, model_validator

from wattherd.inventory.settings.kinds import Location, Many, Word, matching, wrong


def _program(words: tuple[str, ...]) -> tuple[str, ...]:
    if not words or not words[0].strip():
        raise wrong("a program and its words, such as [pass, show, herd/key]")
    return words


class Vault(BaseModel, extra="forbid", frozen=True, strict=True):
    """One key of a YAML file that ansible-vault encrypted. `password_file` may be left to ANSIBLE_VAULT_PASSWORD_FILE."""

    file: Location
    key: Word
    password_file: Location | None = None


class Secret(BaseModel, extra="forbid", frozen=True, strict=True):
    """Exactly one place: a file on the controller, its environment, a program's output (pass, op, sops, …), an ansible-vault file."""

    file: Location | None = None
    env: Annotated[str, matching(r"[A-Za-z_][A-Za-z0-9_]*", "an environment variable's name")] | None = None
    command: Annotated[Many[str], AfterValidator(_program)] | None = None
    vault: Vault | None = None

    @model_validator(mode="after")
    def _one_place(self) -> Secret:
        if sum(place is not None for place in (self.file, self.env, self.command, self.vault)) != 1:
            raise wrong("given exactly one of file, env, command and vault")
        return self
