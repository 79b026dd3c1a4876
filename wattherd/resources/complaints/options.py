"""Complaints about the command line, the environment and the configuration of a server: options, values, ports, presets, templates.

The stems are the parts that stayed the same while upstream reworded the rest.
"""

from __future__ import annotations

from typing import Tuple

from wattherd.resources.complaints.rule import Groups, Rule
from wattherd.wire import finding

_LATER = "the option {name} still works in this build, and will be gone in a later one{advice}"
_WRITE = "let the inventory's typed option write it (invoke deploy picks what the node's binary takes) before you upgrade llama.cpp"
_OWN = "invoke deploy translates and checks options for the node's own binary; for raw flags see llama-server --help on the node"


def _swallowed(groups: Groups) -> Groups:
    """An option that began to take a value eats the next word: that word begins with a dash."""
    eaten = groups["value"].startswith("-")
    why = f"it now takes a value and swallowed the next word, {groups['value']}" if eaten else f"it does not take '{groups['value']}'"
    return {**groups, "why": why}


def _advised(groups: Groups) -> Groups:
    rest = groups["rest"].strip(" ?.:;,")
    rest = rest[4:] if rest.startswith("and ") else rest
    return {**groups, "advice": f": {rest}" if rest else ""}


def _address(groups: Groups) -> Groups:
    named = "?" not in (groups["host"], groups["port"])
    shown = f"[{groups['host']}]" if ":" in groups["host"] else groups["host"]
    return {"address": f" {shown}:{groups['port']}" if named else "", "filter": f" 'sport = :{groups['port']}'" if named else ""}


RULES: Tuple[Rule, ...] = (
    Rule(
        "device-unknown",
        r"invalid device: (?P<name>\S+)",
        "the device {name}, which the options name, is not there: the build lacks its back end, or the driver shows no such card",
        "compare with llama-server --list-devices on the node; name cards by UUID in the inventory",
    ),
    Rule(
        "rpc-missing",
        r"RPC (?:is )?not (?:supported|available)|failed to find RPC backend",
        "the options use --rpc, but this build has no RPC back end",
        "set llama_cpp options GGML_RPC: ON and deploy, or leave rpc out",
    ),
    Rule(
        "key-file",
        r"error while handling argument \"--api-key-file\":\s*(?P<why>.*)",
        "the file with the API key cannot be used ({why})",
        "compare its owner and mode with the unit's user; invoke deploy writes it anew",
    ),
    Rule(
        "option-removed",
        r"error while handling argument \"(?P<name>[^\"]+)\":.*(?:has been removed|no longer (?:supported|available))\.?\s*(?P<more>.*)",
        "this build no longer takes {name}: {more}",
        _OWN,
    ),
    Rule(
        "option-value",
        r"error while handling argument \"(?P<name>[^\"]+)\":.*unk[no]*wn value for \S+:? '?(?P<value>[^']*)",
        "the option {name} was given a wrong value: {why}",
        "give it one of the values that llama-server --help names (such as {name} on)",
        shape=_swallowed,
    ),
    Rule(
        "option-value",
        r"error while handling argument \"(?P<name>[^\"]+)\":.*expected value",
        "the option {name} takes a value in this build and got none: it stood last, or its value was empty",
        "give it a value (llama-server --help names the allowed ones, such as {name} on)",
    ),
    Rule(
        "option-value",
        r"error while handling argument \"(?P<name>[^\"]+)\":\s*(?P<why>.*)",
        "the option {name} has a value that this build cannot read ({why})",
        _OWN,
    ),
    Rule(
        "env-value",
        r"error while handling environment variable \"(?P<name>[^\"]+)\":\s*(?P<why>.*)",
        "the environment variable {name} is empty or has a value that this build cannot read ({why})",
        "find where it is set: systemctl show -p Environment,EnvironmentFiles UNIT; remove it, or give it a value",
    ),
    Rule(
        "option-unknown",
        r"error: (?:invalid|unknown) argument:? (?P<name>\S+)",
        "this build knows no option {name}: it was removed, renamed, or is misspelt",
        _OWN,
    ),
    Rule(
        "bind-failed",
        r"(?:could ?n[o']t|couldn't|failed to|unable to) bind\b.*?(?:hostname: (?P<host>[^,\s]+))?(?:,? port: (?P<port>\d+))?\s*$",
        "the server cannot open its address{address}: another process holds it, it is not an address of this node, "
        "or a TLS file cannot be read (the server says the same of all three)",
        "ss -ltnp{filter} shows who holds it; ip addr shows the node's addresses; check that its user can read the TLS files",
        shape=_address,
    ),
    Rule(
        "tls-missing",
        r"(?:built|compiled) without SSL|SSL (?:is )?not supported",
        "TLS files were given, but this build has no TLS",
        "end TLS in the proxy, or build where OpenSSL 3 is installed",
    ),
    Rule(
        "router-presets",
        r"failed to initialize router models: (?P<why>.*)",
        "the router's presets cannot be used: {why}",
        "mend the presets under serve in the inventory, then invoke deploy",
    ),
    Rule(
        "template-failed",
        r"(?:chat template parsing error|failed to (?:initialize|parse) chat template|expected iterable or object type"
        r"|unable to (?:generate|parse) (?:parser|template)|consider disabling jinja)(?:: (?P<why>.*))?",
        "the model's chat template does not work in this build; the model file itself is not at fault",
        "set jinja off and name a built-in template (--no-jinja --chat-template chatml), or give a corrected template file",
    ),
)  # fmt: skip

#: What a server says of options that still work: heard before an upgrade, it saves the upgrade.
WARNINGS: Tuple[Rule, ...] = (
    Rule(
        "option-repeated",
        r"argument '(?P<name>[^']+)' specified multiple times",
        "the option {name} is given more than once: only the last one counts",
        "give its values in one comma-separated list, or drop what is superseded",
        severity=finding.WARNING,
        deadly=False,
    ),
    Rule(
        "option-deprecated",
        r"(?P<name>(?<![\w-])--?[a-z][\w-]*(?:(?:,| and| or|/) ?--?[a-z][\w-]*)*)['\"]?[^.]{0,80}?\bdeprecated\b(?P<rest>.*)",
        _LATER,
        _WRITE,
        severity=finding.WARNING,
        deadly=False,
        shape=_advised,
    ),
    Rule(
        "option-deprecated",
        r"\bdeprecated\b[^-]{0,40}(?P<name>(?<![\w-])--?[a-z][\w-]*)(?P<rest>.*)",
        _LATER,
        _WRITE,
        severity=finding.WARNING,
        deadly=False,
        shape=_advised,
    ),
)
