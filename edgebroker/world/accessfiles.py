"""Reading the files that say who may come in and do what."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

from edgebridge.session.access import Access, CertificateUser
from edgebridge.session.acl import Acl, AclInvalid
from edgebridge.session.lineproblem import LineProblem
from edgebridge.session.passwordfile import PasswordFile
from edgebridge.session.rulebook import RuleBook
from edgebridge.session.token import TokenKeys
from edgebroker.world.privatefile import FileRefused, is_open_to_others, read_private
from edgebroker.world.settings.access import AccessSettings


def load_access(settings: AccessSettings, tell: Callable[[str], None]) -> Access:
    """What the files of *settings* say now. Raises FileRefused if one cannot be read, or
    the rules are not in order: then nothing has changed.

    A bad line of the passwords or of the keys is told and lets nobody in; the rest of the file holds.
    """
    passwords = None
    if settings.password_file is not None:
        passwords = PasswordFile.parse(read_private(settings.password_file))
        _tell_trouble(settings.password_file, passwords.problems, tell)
    tokens = None
    if settings.token_keys is not None:
        tokens = TokenKeys.parse(read_private(settings.token_keys))
        _tell_trouble(settings.token_keys, tokens.problems, tell)
    rules = None
    if settings.acl_file is not None:
        try:
            rules = RuleBook(Acl.parse(read_private(settings.acl_file)))
        except AclInvalid as invalid:
            lines = "\n".join(f"{settings.acl_file}: {problem}" for problem in invalid.problems)
            raise FileRefused(lines) from invalid
    return Access(passwords, CertificateUser(settings.certificate_user), rules, tokens)


def _tell_trouble(file: Path, problems: Iterable[LineProblem], tell: Callable[[str], None]) -> None:
    for problem in problems:
        tell(f"{file}: {problem}")
    if is_open_to_others(file):
        tell(f"{file}: everybody on this machine may read it; chmod o-r mends that")
