"""The password file: one user per line, comments between.

    # name:hash, and after another colon the secret for SCRAM, if wanted
    pump-3:$scrypt$ln=14,r=8,p=1$salt$key
    anna:$scrypt$ln=14,r=8,p=1$salt$key:$scram-sha-256$i=32768$salt$StoredKey$ServerKey

Lines of mosquitto_passwd ($6$ and $7$) are read too. A line that cannot be read is a problem with its number, and
opens the door to nobody.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import field
from typing import Final

from edgebridge.session.passwordhash import HashInvalid, PasswordHash, Scrypt, read_password_hash
from edgebridge.session.scram import ScramSecret, SecretInvalid
from edgebroker.dataclasses import dataclass
from edgebroker.errors import EdgebrokerError, LineError, add_line_error, clipped

DECOYS_MAX: Final = 4  # costs of hashes told apart: a file has one or two, and each is paid at every check
PASSWORD_BYTES_MAX: Final = 65_535  # the length field of an MQTT password has two bytes

MEND: Final = "set the password anew with edgebroker passwd"


class PasswordInvalid(EdgebrokerError):
    """A user name or password that cannot be stored."""


@dataclass(frozen=True, slots=True)
class User:
    """One user. `line` is where it stands, from 1."""

    name: str
    hash: PasswordHash
    scram: ScramSecret | None = None
    line: int = 0

    def __str__(self) -> str:
        return f"{self.name}:{self.hash}" + (f":{self.scram}" if self.scram else "")


@dataclass(frozen=True, slots=True)
class PasswordFile:
    """Who may come in. `users` by name; `problems` are lines that let nobody in."""

    users: Mapping[str, User] = field(default_factory=dict)
    problems: tuple[LineError, ...] = ()
    lines: tuple[str, ...] = ()
    decoys: tuple[PasswordHash, ...] = ()
    """A hash of each cost in the file, the costliest first: all are checked, whoever is named, to take as long."""

    @classmethod
    def parse(cls, text: str) -> PasswordFile:
        """Read the whole file. Raises nothing: what cannot be read is in `problems`."""
        users: dict[str, User] = {}
        problems: list[LineError] = []
        twice: set[str] = set()
        lines = tuple(text.removeprefix("\ufeff").split("\n"))
        for number, line in enumerate(lines, 1):
            bare = line.strip()
            if not bare or bare[0] == "#":
                continue
            try:
                user = _read_line(line, number)
            except (HashInvalid, SecretInvalid, PasswordInvalid) as error:
                add_line_error(problems, number, str(error), MEND)
                continue
            if user.name in users:
                twice.add(user.name)
                why = f"the user {clipped(user.name)} stands in line {users[user.name].line} too"
                add_line_error(problems, number, why, "neither line holds: delete one")
            else:
                users[user.name] = user
        for name in twice:
            del users[name]
        by_cost = {user.hash.cost: user.hash for user in reversed(users.values())}  # of several, the first
        decoys = tuple(by_cost[cost] for cost in sorted(by_cost, reverse=True)[:DECOYS_MAX])
        return cls(users, tuple(problems), lines, decoys)

    @property
    def decoy(self) -> PasswordHash | None:
        """The costliest hash of the file; None if there is none."""
        return self.decoys[0] if self.decoys else None

    def accepts(self, name: str, password: bytes) -> bool:
        """Whether *password* is that of *name*. Slow, and as slow if there is no such user or its hash is a quick one.

        Otherwise the time of an answer would tell which names exist: each is that of one hash of every cost.
        """
        user = self.users.get(name)
        is_right = user is not None and user.hash.accepts(password)
        for decoy in self.decoys:
            if user is None or user.hash.cost != decoy.cost:
                decoy.accepts(password)
        return is_right

    def with_user(self, user: User) -> PasswordFile:
        """The file with *user* in it, in the place of lines of the same name. Other lines stay as they are."""
        check_user_name(user.name)
        lines = list(self.lines)
        places = self._places(user.name)
        if places:
            lines[places[0]] = str(user)
        else:
            while lines and not lines[-1].strip():
                lines.pop()
            lines += [str(user), ""]
        for place in reversed(places[1:]):
            del lines[place]
        return PasswordFile.parse("\n".join(lines))

    def hashed(self, make: Callable[[str, str], User]) -> PasswordFile:
        """The file with a hash by *make* (name, password) in the place of each password that is plain text.

        What begins with '$' is a hash, or was meant to be one. Raises PasswordInvalid with the line's number.
        """
        lines = list(self.lines)
        for place, line in enumerate(lines):
            name, colon, password = map(str.strip, line.partition(":"))
            if not colon or name.startswith("#") or password.startswith("$"):
                continue
            try:
                lines[place] = str(make(name, password))
            except PasswordInvalid as error:
                raise PasswordInvalid(f"line {place + 1}: {error}") from None
        return PasswordFile.parse("\n".join(lines))

    def without_user(self, name: str) -> PasswordFile:
        """The file without *name*. Raises PasswordInvalid if no line has it."""
        places = self._places(name)
        if not places:
            raise PasswordInvalid(f"there is no user {clipped(name)}")
        kept = [line for place, line in enumerate(self.lines) if place not in places]
        return PasswordFile.parse("\n".join(kept))

    def __str__(self) -> str:
        return "\n".join(self.lines)

    def _places(self, name: str) -> list[int]:
        return [place for place, line in enumerate(self.lines) if line.partition(":")[0].strip() == name]


def make_user(name: str, password: str, salt: bytes, scram_salt: bytes | None = None) -> User:
    """A user with a scrypt hash of *password*; with *scram_salt* SCRAM can be used too. Raises PasswordInvalid."""
    check_user_name(name)
    octets = check_password(password)
    try:
        scram = None if scram_salt is None else ScramSecret.make(password, scram_salt)
    except SecretInvalid as error:
        raise PasswordInvalid(str(error)) from None
    return User(name, Scrypt.make(octets, salt), scram)


def check_user_name(name: str) -> str:
    """*name*, if a line of the file can hold it. Raises PasswordInvalid."""
    if not name or name != name.strip():
        raise PasswordInvalid("a user name is not empty and neither begins nor ends with a blank")
    if name.startswith("#"):
        raise PasswordInvalid("a user name does not begin with '#': the line would be a comment")
    if ":" in name:
        raise PasswordInvalid("a user name has no ':', which ends it in the file")
    if not name.isprintable() or "\ufeff" in name:
        raise PasswordInvalid("a user name has printable characters only")
    if len(name.encode()) > 1_024:
        raise PasswordInvalid("a user name has at most 1,024 bytes")
    return name


def check_password(password: str) -> bytes:
    """*password* as a client sends it. Raises PasswordInvalid."""
    try:
        octets = password.encode()
    except UnicodeEncodeError:
        raise PasswordInvalid("the password is no UTF-8") from None
    if not octets:
        raise PasswordInvalid("the password is empty")
    if len(octets) > PASSWORD_BYTES_MAX:
        raise PasswordInvalid(f"a password has at most {PASSWORD_BYTES_MAX:,} bytes in MQTT")
    if "\0" in password or "\n" in password or "\r" in password:
        raise PasswordInvalid("a password has no line breaks and no U+0000: other programs stop reading there")
    return octets


def _read_line(line: str, number: int) -> User:
    name, colon, rest = line.partition(":")
    if not colon:
        raise PasswordInvalid("there is no ':' after a user name")
    spelled, _, scram = rest.strip().partition(":")
    return User(
        check_user_name(name.strip()), read_password_hash(spelled), ScramSecret.read(scram) if scram else None, number
    )
