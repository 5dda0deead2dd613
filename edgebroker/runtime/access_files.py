"""Loads the password file, the token keys and the ACL file that section `access` names."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from edgebridge.session.access import AccessPolicy, CertificateUser, ClientIdRule
from edgebridge.session.acl import Acl, AclInvalid
from edgebridge.session.authorization import AclRights
from edgebroker.errors import LineError
from edgebroker.runtime.private_files import is_open_to_others, read_setting_file
from edgebroker.runtime.settings.problems import Problem, ProblemCollector, SettingsRefused
from edgebroker.runtime.settings.sections import AccessSettings


def load_access(settings: AccessSettings, warn: Callable[[str], None]) -> AccessPolicy:
    """Reads the files that *settings* name. Raises SettingsRefused with all unreadable files and all invalid rules.

    An invalid line of passwords or keys is only reported through *warn*: it authenticates nobody, and the rest of the
    file is used.
    """
    passwords = tokens = rules = None
    problems: list[Problem] = []
    if settings.password_file is not None:
        from edgebridge.session.passwordfile import PasswordFile  # 1 MiB for the hash functions, as for tokens

        with ProblemCollector(problems):
            passwords = PasswordFile.parse(read_setting_file(settings.password_file, "access.password_file"))
            _report_problems(settings.password_file, passwords.problems, warn)
    if settings.token_keys is not None:
        from edgebridge.session.token import TokenKeys

        with ProblemCollector(problems):
            tokens = TokenKeys.parse(read_setting_file(settings.token_keys, "access.token_keys"))
            _report_problems(settings.token_keys, tokens.problems, warn)
    if settings.acl_file is not None:
        with ProblemCollector(problems):
            rules = AclRights(_rules(settings.acl_file))
    if problems:
        raise SettingsRefused(problems)
    certificate_user, client_ids = CertificateUser(settings.certificate_user), ClientIdRule(settings.client_ids)
    return AccessPolicy(passwords, certificate_user, rules, tokens, client_ids, settings.check_retain_source)


def what_differs(old: AccessPolicy, new: AccessPolicy) -> Iterator[str]:
    """Yields a line for each file whose content has changed. A file that is new is a change of the settings."""
    if old.passwords is not None and new.passwords is not None:
        users = _texts(new.passwords.users.values())
        if users != _texts(old.passwords.users.values()):
            yield f"access: other users or passwords, of {len(users)} users"
    if old.tokens is not None and new.tokens is not None and old.tokens.keys != new.tokens.keys:
        yield f"access: other keys of tokens, {len(new.tokens.keys)} in all"
    if old.rules is not None and new.rules is not None and _rules_by_user(old.rules) != _rules_by_user(new.rules):
        yield f"access: other rules, {sum(1 for _ in new.rules.acl.rules())} in all"


def _texts(parts: Iterable[object]) -> list[str]:
    return [str(part) for part in parts]  # without the number of the line


def _rules_by_user(rules: AclRights) -> dict[str, list[str]]:
    acl = rules.acl
    return {"": _texts(acl.patterns)} | {f"user {name}": _texts(own) for name, own in acl.users.items()}


def _rules(file: Path) -> Acl:
    try:
        return Acl.parse(read_setting_file(file, "access.acl_file"))
    except AclInvalid as invalid:
        problems = [
            Problem(str(file), error.line, "access.acl_file", error.reason, error.mend) for error in invalid.problems
        ]
        raise SettingsRefused(problems) from invalid


def _report_problems(file: Path, problems: Iterable[LineError], warn: Callable[[str], None]) -> None:
    for problem in problems:
        warn(f"{file}: {problem}")
    if is_open_to_others(file):
        warn(f"{file}: everybody on this machine may read it; chmod o-r mends that")
