"""People: created by platform admins, or at their first sign-in through an identity provider."""

from gpuaas_contract import errors
from gpuaas_contract.endpoint import Endpoint
from gpuaas_contract.paths import UserPath
from gpuaas_contract.wire import NoBody, Page, PageQuery, Request, Timestamp, Wire

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
    password: str = ""
    """10 to 1000 characters; empty: the person cannot sign in until an admin sets one."""


class SetPassword(Request):
    """Gives a person a new password."""

    password: str
    """10 to 1000 characters."""


class ChangePassword(Request):
    """Changes your own password."""

    present_password: str
    new_password: str
    """10 to 1000 characters."""


USER_CREATE = Endpoint(
    "identity.user.create",
    "POST",
    "/api/v1/admin/users",
    "Create a person",
    permission="identity.user.create",
    request=CreateUser,
    response=User,
    subject="user_id",
    status=201,
    example={"name": "ada"},
    description="Roles are given separately.",
)
USER_LIST = Endpoint(
    "identity.user.list",
    "GET",
    "/api/v1/admin/users",
    "List people, disabled ones included",
    permission="identity.user.read",
    request=NoBody,
    query=PageQuery,
    response=Page[User],
)
USER_GET = Endpoint(
    "identity.user.get",
    "GET",
    "/api/v1/admin/users/{user_id}",
    "Get one person",
    params=UserPath,
    permission="identity.user.read",
    request=NoBody,
    response=User,
)
USER_DISABLE = Endpoint(
    "identity.user.disable",
    "POST",
    "/api/v1/admin/users/{user_id}/disable",
    "Disable a person and end their sessions",
    params=UserPath,
    permission="identity.user.change",
    request=NoBody,
    response=User,
    subject="user_id",
    description="All sessions end at once. Roles stay.",
)
USER_ENABLE = Endpoint(
    "identity.user.enable",
    "POST",
    "/api/v1/admin/users/{user_id}/enable",
    "Enable a disabled person",
    params=UserPath,
    permission="identity.user.change",
    request=NoBody,
    response=User,
    subject="user_id",
    description="The person has the same roles as before.",
)
USER_SET_PASSWORD = Endpoint(
    "identity.user.set_password",
    "PUT",
    "/api/v1/admin/users/{user_id}/password",
    "Set a person's password and end their sessions",
    params=UserPath,
    permission="identity.user.change",
    repeat="natural",
    request=SetPassword,
    response=User,
    subject="user_id",
)
MY_PASSWORD = Endpoint(
    "auth.password.change",
    "PUT",
    "/api/v1/me/password",
    "Change your own password and end your other sessions",
    request=ChangePassword,
    response=User,
    subject="user_id",
    errors=(errors.CredentialsInvalid, errors.TooManyAttempts),
    description="Your other sessions end.",
)
ENDPOINTS = (USER_CREATE, USER_LIST, USER_GET, USER_DISABLE, USER_ENABLE, USER_SET_PASSWORD, MY_PASSWORD)
