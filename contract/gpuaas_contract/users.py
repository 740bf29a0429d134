"""People: created by platform admins, or at their first sign-in through an identity provider."""

from gpuaas_contract import errors
from gpuaas_contract.paths import ADMIN, API, USER
from gpuaas_contract.wire import NoBody, Request, Secret, Timestamp, Wire

PASSWORD_LENGTH_MIN = 10
PASSWORD_LENGTH_MAX = 1000


class User(Wire):
    """A person who signs in to the platform."""

    user_id: str
    name: str
    state: str
    """`active` or `disabled`."""
    has_password: bool
    """False: they sign in through an identity provider, or cannot sign in yet."""
    issuer: str
    """Identity provider the person signs in through; empty: none."""
    external_id: str
    """`oidc:` and the provider's id of the person; empty without a provider."""
    created_by: str
    created_at: Timestamp


class CreateUser(Request):
    """Creates a person, without roles."""

    name: str
    """Sign-in name: up to 63 letters, digits and characters of ._@+-"""
    password: Secret = ""
    """10 to 1000 characters; empty: the person cannot sign in until an admin sets one."""


class SetPassword(Request):
    """Gives a person a new password."""

    password: Secret
    """10 to 1000 characters."""


class ChangePassword(Request):
    """Changes your own password."""

    present_password: Secret
    new_password: Secret
    """10 to 1000 characters."""


USER_CREATE = ADMIN.row("/users", "identity.user.create", "Create a person", "Roles are given separately.").post(
    CreateUser, User, status=201, example={"name": "ada"}
)
USER_LIST = ADMIN.row("/users", "identity.user.list", "List people, disabled ones included").list(
    User, "identity.user.read"
)
USER_GET = USER.row("", "identity.user.get", "Get one person").get(User, "identity.user.read")
USER_DISABLE = USER.row(
    "/disable",
    "identity.user.disable",
    "Disable a person and end their sessions",
    "All sessions end at once. Roles stay.",
).post(NoBody, User, "identity.user.change")
USER_ENABLE = USER.row(
    "/enable", "identity.user.enable", "Enable a disabled person", "The person has the same roles as before."
).post(NoBody, User, "identity.user.change")
USER_SET_PASSWORD = USER.row(
    "/password", "identity.user.set_password", "Set a person's password and end their sessions"
).put(SetPassword, User, "identity.user.change")
MY_PASSWORD = API.row(
    "/me/password",
    "auth.password.change",
    "Change your own password and end your other sessions",
    "Your other sessions end.",
).put(ChangePassword, User, permission="", repeat="key", errors=(errors.CredentialsInvalid, errors.TooManyAttempts))
