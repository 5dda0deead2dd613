"""Reading the files that say who may come in and do what."""

from __future__ import annotations

from collections.abc import Callable

from edgebridge.session.access import Access, CertificateUser
from edgebridge.session.acl import Acl, AclInvalid
from edgebridge.session.passwordfile import PasswordFile
from edgebridge.session.rulebook import RuleBook
from edgebroker.world.privatefile import FileRefused, is_open_to_others, read_private
from edgebroker.world.settings.access import AccessSettings


def load_access(settings: AccessSettings, tell: Callable[[str], None]) -> Access:
    """What the files of *settings* say now. Raises FileRefused if one cannot be read, or
    the rules are not in order: then nothing has changed.

    A bad line of the password file is told and lets nobody in; the rest of the file holds.
    """
    passwords = None
    if settings.password_file is not None:
        passwords = PasswordFile.parse(read_private(settings.password_file))
        for problem in passwords.problems:
            tell(f"{settings.password_file}: {problem}")
        if is_open_to_others(settings.password_file):
            tell(f"{settings.password_file}: everybody on this machine may read it; chmod o-r mends that")
    rules = None
    if settings.acl_file is not None:
        try:
            rules = RuleBook(Acl.parse(read_private(settings.acl_file)))
        except AclInvalid as invalid:
            lines = "\n".join(f"{settings.acl_file}: {problem}" for problem in invalid.problems)
            raise FileRefused(lines) from invalid
    return Access(passwords, CertificateUser(settings.certificate_user), rules)
