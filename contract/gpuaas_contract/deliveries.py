"""Deliveries: download access to one artifact, with a token that is valid for minutes."""

from typing import Annotated

import msgspec

from gpuaas_contract import errors
from gpuaas_contract.artifacts import FETCHING_ERRORS, HANDING_OUT_ERRORS
from gpuaas_contract.paths import ARTIFACT, ARTIFACT_CONTENT
from gpuaas_contract.wire import Label, OptionalLabel, Request, Timestamp, Wire

DELIVERY_TTL_MAX_S = 900
CONTENT_PATH = ARTIFACT_CONTENT.path


class CreateDelivery(Request):
    """Asks for a short-lived token to download one artifact."""

    purpose: Label
    """Purpose; recorded."""
    operation_id: OptionalLabel = ""
    """Operation for which the artifact is downloaded, if any; recorded with the delivery."""
    ttl_s: Annotated[int, msgspec.Meta(ge=1, le=DELIVERY_TTL_MAX_S)] = 300
    """How long the token is valid, in seconds."""


class Delivery(Wire):
    """A short-lived token to download one artifact."""

    delivery_id: str
    artifact_id: str
    url: str
    """Path under this API from which the artifact is downloaded: send a GET with the token as bearer."""
    token: str
    """Secret token for the download. Shown once; the platform stores only a digest."""
    expires_at: Timestamp
    digest: str
    size_bytes: int
    media_type: str


DELIVERY_CREATE = ARTIFACT.row(
    "/deliveries",
    "artifacts.delivery.create",
    "Create a short-lived token to download an artifact",
    "For an artifact of the project or a shared one that is verified and promoted.",
).post(
    CreateDelivery,
    Delivery,
    "artifacts.artifact.deliver",
    status=201,
    secret_answer=True,
    errors=HANDING_OUT_ERRORS,
    example={"purpose": "install"},
)
CONTENT_GET = ARTIFACT_CONTENT.row(
    "",
    "artifacts.content.get",
    "Download the content of a delivery",
    "Send the delivery's token as bearer. The connection is closed if the content does not match the published digest.",
).get(
    bytes,
    audience="public",
    media_type="application/octet-stream",
    errors=(*FETCHING_ERRORS, errors.DeliveryExpired, errors.DeliveryUnknown),
)
